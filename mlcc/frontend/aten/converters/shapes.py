"""Operators on shapes and axes: reshapes, permutations, slices, splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ops.relations import provably_equal
from mlcc.relax import op

# ---------------------------------------------------------------- extents


def extent_expr(value: Dim) -> tir.Expr:
    """Return an extent or index as an expression."""
    return construct.const(value, "int64") if isinstance(value, int) else value


def extent_difference(a: Dim, b: Dim) -> Dim:
    """Return the simplified difference of extents."""
    return simplify_extent(construct.sub(extent_expr(a), extent_expr(b)))


def extent_sum(a: Dim, b: Dim) -> Dim:
    """Return the simplified sum of extents."""
    return simplify_extent(construct.add(extent_expr(a), extent_expr(b)))


def extent_product(a: Dim, b: Dim) -> Dim:
    """Return the simplified product of extents."""
    return simplify_extent(construct.mul(extent_expr(a), extent_expr(b)))


def simplify_extent(value: tir.Expr) -> Dim:
    """Simplify an expression, to a number if it is constant."""
    simplified = Analyzer().simplify(value)
    known = tir.const_int(simplified)
    return simplified if known is None else known


def total_size(values: Sequence[Dim]) -> Dim:
    """The product of extents."""
    total: Dim = 1
    for value in values:
        total = extent_product(total, value)
    return total


def non_negative_index(place: Dim, extent: Dim) -> Dim:
    """Return a non-negative index for one that may count from the end."""
    if isinstance(place, int):
        return place if place >= 0 else extent_sum(extent, place)
    return simplify_extent(construct.floormod(place, extent_expr(extent)))


def normalize_axes(t: Translator, value: relax.Expr, dims: int | Sequence[int] | None) -> list[int]:
    """Return non-negative axes; all axes for None, no axes for a tensor of rank 0."""
    rank = t.ndim(value)
    if dims is None:
        return list(range(rank))
    axes = [t.axis(value, dim) for dim in ([dims] if isinstance(dims, int) else dims)]
    return axes if rank else []


# ---------------------------------------------------------------- shapes


@converts(
    "aten.view.default", "aten._unsafe_view", "aten.reshape", "aten.flatten.using_ints", "aten.unflatten.int",
    "aten.unsqueeze", "aten.squeeze", "aten.view_as", "aten.reshape_as", "aten._reshape_alias", "aten.view_copy",
    "aten.unsqueeze_copy", "aten.squeeze_copy", "aten.ravel", "aten.atleast_1d", "aten.atleast_2d", "aten.atleast_3d",
    "aten.expand_dims", "aten._reshape_copy", "aten.flatten.DimnameList",
)  # fmt: skip
def _reshape(t: Translator, self: relax.Expr, **ignored: Any) -> relax.Expr:
    return t.reshape(self, t.out_shape())  # the shape that the exporter states


@converts("aten.view.dtype", "aten.view_copy.dtype")
def _view_dtype(t: Translator, self: relax.Expr, dtype: str) -> relax.Expr:
    if dtype != t.dtype(self):
        raise Unsupported("a view in another dtype is not supported")
    return self


@converts("aten.expand", "aten.expand_as", "aten.expand_copy", "aten.broadcast_to")
def _expand(t: Translator, self: relax.Expr, size: Any = None, other: Any = None, implicit: bool = False) -> relax.Expr:
    return broadcast(t, self, t.out_shape())


def broadcast(t: Translator, value: relax.Expr, shape: Sequence[Dim]) -> relax.Expr:
    """Broadcast a value to a shape; a value of that shape is returned unchanged."""
    if same_shape(t.shape(value), shape):
        return value
    return t.emit(op.broadcast_to(value, t.shape_expr(shape)))


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Return True if two shapes are provably equal."""
    return len(a) == len(b) and all(provably_equal(extent_expr(x), extent_expr(y)) for x, y in zip(a, b, strict=True))


@converts("aten.broadcast_tensors")
def _broadcast_tensors(t: Translator, tensors: list[relax.Expr]) -> list[relax.Expr]:
    shape = broadcast_shape([t.shape(value) for value in tensors])
    return [broadcast(t, value, shape) for value in tensors]


def broadcast_shape(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The broadcast shape of tensors: of the extents along an axis, the first that is not the constant 1."""
    rank = max(map(len, shapes), default=0)
    joint: list[Dim] = []
    wide: list[list[Dim]] = [[*[1] * (rank - len(shape)), *shape] for shape in shapes]
    for column in zip(*wide, strict=True):
        joint.append(next((extent for extent in column if tir.const_int(extent_expr(extent)) != 1), 1))
    return joint


# ---------------------------------------------------------------- axes


def permute(t: Translator, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """Permute the axes of a value. Consecutive permutations are combined."""
    order = list(axes)
    before = t.bb.lookup_binding(value)
    if isinstance(before, relax.Call) and before.op == _PERMUTE and before.attrs["axes"] is not None:
        value, order = before.args[0], [before.attrs["axes"][axis] % len(order) for axis in order]
    return value if order == list(range(len(order))) else t.emit(op.permute_dims(value, order))


_PERMUTE = tir.Op("relax.permute_dims")


@converts("aten.permute", "aten.permute_copy")
def _permute(t: Translator, self: relax.Expr, dims: list[int]) -> relax.Expr:
    return permute(t, self, normalize_axes(t, self, dims))


@converts(
    "aten.transpose.int", "aten.transpose_copy", "aten.swapaxes", "aten.swapdims", "aten.t", "aten.numpy_T",
    "aten.matrix_H", "aten.mT", "aten.mH", "aten.adjoint", "aten.t_copy",
)  # fmt: skip
def _transpose(
    t: Translator, self: relax.Expr, dim0: int = -1, dim1: int = -2, axis0: int | None = None, axis1: int | None = None
) -> relax.Expr:
    rank = t.ndim(self)
    if rank < 2:
        return self
    one, two = (t.axis(self, dim) for dim in (dim0 if axis0 is None else axis0, dim1 if axis1 is None else axis1))
    order = list(range(rank))
    order[one], order[two] = two, one
    return permute(t, self, order)


@converts("aten.movedim", "aten.moveaxis")
def _movedim(t: Translator, self: relax.Expr, source: int | list[int], destination: int | list[int]) -> relax.Expr:
    sources, targets = normalize_axes(t, self, source), normalize_axes(t, self, destination)
    rest = [axis for axis in range(t.ndim(self)) if axis not in sources]
    order: list[int] = []
    for place in range(t.ndim(self)):
        order.append(sources[targets.index(place)] if place in targets else rest.pop(0))
    return permute(t, self, order)


@converts("aten.flip", "aten.fliplr", "aten.flipud")
def _flip(t: Translator, self: relax.Expr, dims: list[int]) -> relax.Expr:
    for axis in normalize_axes(t, self, dims):
        self = t.emit(op.flip(self, axis))
    return self


@converts("aten.rot90")
def _rot90(t: Translator, self: relax.Expr, k: int = 1, dims: Sequence[int] = (0, 1)) -> relax.Expr:
    one, two = (t.axis(self, dim) for dim in dims)
    order = list(range(t.ndim(self)))
    order[one], order[two] = two, one
    turns = k % 4
    if turns == 0:
        return self
    if turns == 2:
        return op.flip(op.flip(self, one), two)
    if turns == 1:
        return permute(t, t.emit(op.flip(self, two)), order)
    return op.flip(permute(t, self, order), two)


# ---------------------------------------------------------------- slices

_END = 2**63 - 1


def slice_axis(t: Translator, value: relax.Expr, axis: int, begin: Dim, end: Dim, step: int = 1) -> relax.Expr:
    """Slice the elements from `begin` to `end`, which are in bounds, along an axis."""
    extent = t.shape(value)[axis]
    if step == 1 and provably_equal(extent_expr(begin), extent_expr(0)) and provably_equal(extent_expr(end), extent):
        return value
    return t.emit(op.strided_slice(value, [axis], [begin], [end], [step], assume_inbound=True))


@converts("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(
    t: Translator, self: relax.Expr, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> relax.Expr:
    axis = t.axis(self, dim)
    if step == 1 and same_shape(t.shape(self), t.out_shape()):
        return self  # the whole axis, since the extents are equal
    begin = 0 if start is None else start
    return t.emit(op.strided_slice(self, [axis], [begin], [_END if end is None else end], [step]))


@converts("aten.narrow", "aten.narrow_copy")
def _narrow(t: Translator, self: relax.Expr, dim: int, start: Dim, length: Dim) -> relax.Expr:
    axis = t.axis(self, dim)
    if isinstance(start, relax.Expr):
        raise Unsupported("a start that is a tensor is not supported")
    begin = non_negative_index(start, t.shape(self)[axis]) if isinstance(start, int) else start
    return slice_axis(t, self, axis, begin, extent_sum(begin, length))


@converts("aten.select.int", "aten.select_copy.int")
def _select(t: Translator, self: relax.Expr, dim: int, index: Dim) -> relax.Expr:
    return select_index(t, self, t.axis(self, dim), index)


def select_index(t: Translator, value: relax.Expr, axis: int, index: Dim) -> relax.Expr:
    """Select an index of an axis, and drop that axis."""
    begin = non_negative_index(index, t.shape(value)[axis])
    return t.emit(op.squeeze(slice_axis(t, value, axis, begin, extent_sum(begin, 1)), [axis]))


def split_axis(t: Translator, value: relax.Expr, axis: int, lengths: Sequence[Dim]) -> list[relax.Expr]:
    """Split the value into parts of these lengths along an axis."""
    ends: list[Dim] = []
    for length in lengths:
        ends.append(extent_sum(ends[-1] if ends else 0, length))
    if len(lengths) == 1 and provably_equal(extent_expr(ends[0]), t.shape(value)[axis]):
        return [value]
    known = [end for end in ends if isinstance(end, int)]
    if len(known) == len(ends) and tir.const_int(t.shape(value)[axis]) is not None:
        pieces = t.emit(op.split(value, known[:-1], axis))
        return [t.emit(pieces[at]) for at in range(len(lengths))]
    return [slice_axis(t, value, axis, begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@converts("aten.split_with_sizes", "aten.split.sizes", "aten.split_with_sizes_copy", "aten.unsafe_split_with_sizes")
def _split_with_sizes(
    t: Translator, self: relax.Expr, split_sizes: list[Dim] | None = None, split_size: list[Dim] | None = None,
    dim: int = 0,
) -> list[relax.Expr]:  # fmt: skip
    return split_axis(t, self, t.axis(self, dim), split_sizes or split_size or [])


@converts("aten.split.Tensor", "aten.split_copy.Tensor", "aten.unsafe_split.Tensor")
def _split(t: Translator, self: relax.Expr, split_size: Dim, dim: int = 0) -> list[relax.Expr]:
    axis = t.axis(self, dim)
    return split_axis(t, self, axis, chunk_lengths(t.shape(self)[axis], split_size))


def chunk_lengths(extent: Dim, length: Dim) -> list[Dim]:
    """Return the lengths of parts of `length` elements; the last may be shorter."""
    whole = simplify_extent(extent_expr(extent))
    size = simplify_extent(extent_expr(length))
    if isinstance(whole, int) and isinstance(size, int):
        if not whole:
            return [0]
        return [min(size, whole - begin) for begin in range(0, whole, size)]
    count = simplify_extent(
        construct.floordiv(
            construct.sub(construct.add(extent_expr(whole), extent_expr(size)), extent_expr(1)), extent_expr(size)
        )
    )
    if not isinstance(count, int):
        raise Unsupported("the number of parts is not known")
    return [*[size] * (count - 1), extent_difference(whole, extent_product(size, count - 1))]


@converts("aten.chunk", "aten.unsafe_chunk")
def _chunk(t: Translator, self: relax.Expr, chunks: int, dim: int = 0) -> list[relax.Expr]:
    axis = t.axis(self, dim)
    extent = simplify_extent(t.shape(self)[axis])
    if extent == 0:
        return [self] * chunks
    length = simplify_extent(construct.floordiv(extent_expr(extent_sum(extent, chunks - 1)), extent_expr(chunks)))
    if isinstance(extent, int):
        return split_axis(t, self, axis, chunk_lengths(extent, length))
    if provably_equal(extent_expr(extent_product(length, chunks)), extent_expr(extent)):
        return split_axis(t, self, axis, [length] * chunks)
    raise Unsupported("cannot split an axis whose extent is not known to be a multiple of the number of parts")


@converts("aten.tensor_split.sections", "aten.tensor_split.indices")
def _tensor_split(
    t: Translator, self: relax.Expr, sections: int | None = None, indices: list[Dim] | None = None, dim: int = 0
) -> list[relax.Expr]:
    axis = t.axis(self, dim)
    extent = simplify_extent(t.shape(self)[axis])
    if sections is not None:
        if not isinstance(extent, int):
            raise Unsupported("cannot split a symbolic extent into equal parts")
        short, longer = divmod(extent, sections)
        return split_axis(t, self, axis, [short + (at < longer) for at in range(sections)])
    places: list[Dim] = [0, *(indices or []), _END]
    slices = zip(places, places[1:], strict=False)
    return [t.emit(op.strided_slice(self, [axis], [begin], [end], [1])) for begin, end in slices]


@converts("aten.unbind", "aten.unbind_copy")
def _unbind(t: Translator, self: relax.Expr, dim: int = 0) -> list[relax.Expr]:
    axis = t.axis(self, dim)
    count = tir.const_int(t.shape(self)[axis])
    if count is None:
        raise Unsupported("the number of parts is not known")
    return [t.emit(op.squeeze(piece, [axis])) for piece in split_axis(t, self, axis, [1] * count)] if count else []


@converts("aten.diagonal", "aten.diagonal_copy", "aten.linalg_diagonal")
def _diagonal(t: Translator, self: relax.Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> relax.Expr:
    return diagonal(t, self, offset, t.axis(self, dim1), t.axis(self, dim2), t.out_shape()[-1])


def diagonal(t: Translator, value: relax.Expr, offset: int, one: int, two: int, length: Dim) -> relax.Expr:
    """Return the diagonal of two axes as the last axis."""
    rest = [axis for axis in range(t.ndim(value)) if axis not in (one, two)]
    value = permute(t, value, [one, two, *rest])
    places = t.emit(op.arange(0, length, 1, "int64"))
    rows, columns = (
        t.emit(op.add(places, t.scalar(moved, "int64"))) if moved else places
        for moved in (max(-offset, 0), max(offset, 0))
    )
    picked = t.emit(op.index_tensor(value, [rows, columns]))
    return permute(t, picked, [*range(1, len(rest) + 1), 0])


@converts("aten.unfold", "aten.unfold_copy")
def _unfold(t: Translator, self: relax.Expr, dimension: int, size: int, step: int) -> relax.Expr:
    if not t.ndim(self):
        return t.reshape(self, [size])
    axis = t.axis(self, dimension)
    windows = t.out_shape()[axis]
    begins = t.emit(op.multiply(op.arange(0, windows, 1, "int64"), t.scalar(step, "int64")))
    within = t.emit(op.arange(0, size, 1, "int64"))
    places = t.emit(op.add(op.expand_dims(begins, [1]), within))
    taken = t.emit(op.take(self, places, axis))
    order = [*range(axis + 1), *range(axis + 2, t.ndim(taken)), axis + 1]
    return permute(t, taken, order)
