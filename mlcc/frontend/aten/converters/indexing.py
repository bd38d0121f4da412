"""Converters of gathers and scatters: operators that read or write elements at indices held by tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.arithmetic import scaled
from mlcc.frontend.aten.converters.shapes import (
    broadcast,
    broadcast_shape,
    extent_difference,
    extent_sum,
    permute,
    select_index,
    slice_axis,
    total_size,
)
from mlcc.frontend.aten.promotion import Value, as_tensor
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ops.relations import variables
from mlcc.ops.values import tensor_info
from mlcc.relax import op

Indices = Sequence[relax.Expr | None]

# ---------------------------------------------------------------- x[i, :, j]


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(t: Translator, self: relax.Expr, indices: Indices) -> relax.Expr:
    picks = _index_tensors(t, self, indices)
    axes = list(picks)
    if not axes:
        return self
    if len(axes) == 1:
        return op.take(self, picks[axes[0]], axes[0])
    front = permute(t, self, _axes_first(t, self, axes))
    picked = t.emit(op.index_tensor(front, list(picks.values())))
    return _move_index_axes(t, picked, axes, len(broadcast_shape([t.shape(index) for index in picks.values()])))


def _index_tensors(t: Translator, value: relax.Expr, indices: Indices) -> dict[int, relax.Expr]:
    """Map axes to index tensors; a mask becomes the coordinates of its true elements, one tensor for each axis."""
    by_axis: dict[int, relax.Expr] = {}
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif t.dtype(index) in ("bool", "uint8"):
            for column in nonzero_coordinates(t, index, value):
                by_axis[axis] = column
                axis += 1
        else:
            by_axis[axis] = index
            axis += 1
    return by_axis


def nonzero_coordinates(t: Translator, mask: relax.Expr, *operands: relax.Expr) -> list[relax.Expr]:
    """Return the coordinates of the nonzero elements, a vector for each axis. Their number is the only symbol of the
    stated shape that no operand has."""
    used = {v for value in (mask, *operands) for v in variables(*t.shape(value))}
    unknown = [e for e in t.out_shape() if isinstance(e, tir.Var) and e not in used]
    if len(unknown) != 1:
        raise Unsupported("the program does not state how many elements a mask selects")
    places = t.emit(op.nonzero(t.cast(mask, "bool")))
    known = t.match_cast(places, tensor_info([t.ndim(mask), unknown[0]], "int64"))
    return [t.emit(op.squeeze(slice_axis(t, known, 0, at, at + 1), [0])) for at in range(t.ndim(mask))]


def _axes_first(t: Translator, value: relax.Expr, axes: Sequence[int]) -> list[int]:
    """Return the permutation that moves these axes to the front."""
    return [*axes, *(axis for axis in range(t.ndim(value)) if axis not in axes)]


def _move_index_axes(t: Translator, picked: relax.Expr, axes: Sequence[int], rank: int) -> relax.Expr:
    """Move the first `rank` axes of a gathered tensor to the place of the indices if these are adjacent."""
    return permute(t, picked, _index_axes_order(t.ndim(picked), axes, rank))


def _index_axes_order(ndim: int, axes: Sequence[int], rank: int) -> list[int]:
    """Return the permutation that moves the index axes from the front to their place in the result of indexing."""
    adjacent = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    begin = axes[0] if adjacent else 0
    rest = list(range(rank, ndim))
    return [*rest[:begin], *range(rank), *rest[begin:]]


@converts("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl")
def _index_put(
    t: Translator, self: relax.Expr, indices: Indices, values: relax.Expr, accumulate: bool = False,
    unsafe: bool = False,
) -> relax.Expr:  # fmt: skip
    given = [index for index in indices if index is not None]
    masks = [index for index in given if t.dtype(index) in ("bool", "uint8")]
    if masks:
        if len(given) > 1 or indices[0] is None or accumulate:
            raise Unsupported("a mask together with other indices, or with accumulate, is not supported")
        return _masked_put(t, self, masks[0], values)
    picks = _index_tensors(t, self, indices)
    axes = list(picks)
    order = _axes_first(t, self, axes)
    front = permute(t, self, order)
    places = broadcast_shape([t.shape(index) for index in picks.values()])
    whole = [*places, *t.shape(front)[len(axes) :]]
    layout = _index_axes_order(len(whole), axes, len(places))
    wide = broadcast(t, t.cast(values, t.dtype(self)), [whole[axis] for axis in layout])
    updates = permute(t, wide, [layout.index(axis) for axis in range(len(whole))])
    updated = t.emit(op.index_put(front, list(picks.values()), updates, accumulate))
    return permute(t, updated, [order.index(axis) for axis in range(len(order))])


def _masked_put(t: Translator, value: relax.Expr, mask: relax.Expr, values: relax.Expr) -> relax.Expr:
    """x[mask] = values: the k-th true element takes the k-th value."""
    rest = t.ndim(value) - t.ndim(mask)
    there = t.reshape(t.cast(mask, "bool"), [*t.shape(mask), *[1] * rest])
    updates = t.cast(values, t.dtype(value))
    first = tir.const_int(t.shape(values)[0]) if t.ndim(values) == rest + 1 else 1
    if t.ndim(values) > rest and first != 1:
        flat = t.reshape(t.cast(mask, "int64"), [total_size(t.shape(mask))])
        nth = op.subtract(op.cumsum(flat, axis=0), t.scalar(1, "int64"))
        taken = t.emit(op.take(updates, op.maximum(nth, t.scalar(0, "int64")), 0, mode="clip"))
        updates = t.reshape(taken, [*t.shape(mask), *t.shape(taken)[1:]])
    elif t.ndim(values) > rest:
        updates = t.reshape(updates, t.shape(updates)[1:])
    return op.where(there, updates, value)


@converts("aten.masked_scatter")
def _masked_scatter(t: Translator, self: relax.Expr, mask: relax.Expr, source: relax.Expr) -> relax.Expr:
    shape = t.out_shape()
    wide = broadcast(t, mask, shape)
    return _masked_put(t, broadcast(t, self, shape), wide, t.reshape(source, [total_size(t.shape(source))]))


@converts("aten.masked_select")
def _masked_select(t: Translator, self: relax.Expr, mask: relax.Expr) -> relax.Expr:
    shape = broadcast_shape([t.shape(self), t.shape(mask)])
    value, where = broadcast(t, self, shape), broadcast(t, mask, shape)
    count = total_size(shape)
    return op.take(t.reshape(value, [count]), nonzero_coordinates(t, t.reshape(where, [count]), self)[0], 0)


@converts("aten.nonzero", "aten.argwhere")
def _nonzero(t: Translator, self: relax.Expr) -> relax.Expr:
    if not t.ndim(self):
        raise Unsupported("`nonzero` of a tensor of rank 0 is not supported")
    return op.permute_dims(op.nonzero(t.cast(self, "bool")))


# ---------------------------------------------------------------- one axis


@converts("aten.index_select", "aten.index_select_copy")
def _index_select(t: Translator, self: relax.Expr, dim: int, index: relax.Expr) -> relax.Expr:
    if not t.ndim(self):
        return self
    return op.take(self, t.reshape(index, [total_size(t.shape(index))]), t.axis(self, dim))


@converts("aten.index_add")
def _index_add(
    t: Translator, self: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr, alpha: Value = 1
) -> relax.Expr:
    return _put_along_axis(t, self, dim, index, scaled(t, source, alpha, t.dtype(self)), True)


@converts("aten.index_copy")
def _index_copy(t: Translator, self: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr) -> relax.Expr:
    return _put_along_axis(t, self, dim, index, source, False)


@converts("aten.index_fill")
def _index_fill(t: Translator, self: relax.Expr, dim: int, index: relax.Expr, value: Value) -> relax.Expr:
    return _put_along_axis(t, self, dim, index, as_tensor(t, value, t.dtype(self)), False)


def _put_along_axis(
    t: Translator, value: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr, accumulate: bool
) -> relax.Expr:
    """Replace slices of the value at indices of one axis, or add to them."""
    if not t.ndim(value):
        value = t.reshape(value, [1])
        updated = _put_along_axis(t, value, 0, index, t.reshape(source, [1]), accumulate)
        return t.reshape(updated, [])
    axis = t.axis(value, dim)
    order = [axis, *(a for a in range(t.ndim(value)) if a != axis)]
    places = t.reshape(index, [total_size(t.shape(index))])
    updates = permute(t, source, order) if t.ndim(source) else source
    updated = t.emit(op.index_put(permute(t, value, order), [places], updates, accumulate))
    return permute(t, updated, [order.index(a) for a in range(len(order))])


@converts("aten.index_reduce")
def _index_reduce(
    t: Translator, self: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr, reduce: str,
    include_self: bool = True,
) -> relax.Expr:  # fmt: skip
    axis = t.axis(self, dim)
    shape: list[Dim] = [1] * t.ndim(self)
    shape[axis] = total_size(t.shape(index))
    wide = broadcast(t, t.reshape(index, shape), t.shape(source))
    return _reduced(t, self, axis, wide, source, reduce, include_self)


# ---------------------------------------------------------------- elements


@converts("aten.gather")
def _gather(t: Translator, self: relax.Expr, dim: int, index: relax.Expr, sparse_grad: bool = False) -> relax.Expr:
    shape = t.shape(index)
    if not t.ndim(self) or not shape:
        one, at = (t.reshape(v, [total_size(t.shape(v))]) for v in (self, index))
        return t.reshape(t.emit(op.gather_elements(one, at, 0)), shape)
    return op.gather_elements(self, index, t.axis(self, dim))


@converts("aten.take")
def _take(t: Translator, self: relax.Expr, index: relax.Expr) -> relax.Expr:
    return op.take(t.reshape(self, [total_size(t.shape(self))]), index, 0)


@converts("aten.take_along_dim")
def _take_along_dim(t: Translator, self: relax.Expr, indices: relax.Expr, dim: int | None = None) -> relax.Expr:
    if dim is None:
        flat, places = (t.reshape(value, [total_size(t.shape(value))]) for value in (self, indices))
        return op.gather_elements(flat, places, 0)
    axis = t.axis(self, dim)
    shape = broadcast_shape([[1 if a == axis else e for a, e in enumerate(t.shape(v))] for v in (self, indices)])
    one, two = (
        broadcast(t, v, [t.shape(v)[axis] if a == axis else e for a, e in enumerate(shape)]) for v in (self, indices)
    )
    return op.gather_elements(one, two, axis)


@converts("aten.scatter.src", "aten.scatter.reduce")
def _scatter(
    t: Translator, self: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr, reduce: str = "update"
) -> relax.Expr:
    return _scattered(t, self, dim, index, src, {"multiply": "mul"}.get(reduce, reduce))


@converts("aten.scatter.value", "aten.scatter.value_reduce")
def _scatter_value(
    t: Translator, self: relax.Expr, dim: int, index: relax.Expr, value: Value, reduce: str = "update"
) -> relax.Expr:
    wide = t.emit(op.broadcast_to(as_tensor(t, value, t.dtype(self)), t.shape_expr(t.shape(index))))
    return _scattered(t, self, dim, index, wide, {"multiply": "mul"}.get(reduce, reduce))


@converts("aten.scatter_add")
def _scatter_add(t: Translator, self: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr) -> relax.Expr:
    return _scattered(t, self, dim, index, src, "add")


@converts("aten.scatter_reduce.two")
def _scatter_reduce(
    t: Translator, self: relax.Expr, dim: int, index: relax.Expr, src: relax.Expr, reduce: str,
    include_self: bool = True,
) -> relax.Expr:  # fmt: skip
    return _reduced(t, *_scatter_operands(t, self, dim, index, src), reduce, include_self)


def _scattered(
    t: Translator, value: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr, reduction: str
) -> relax.Expr:
    data, axis, places, updates = _scatter_operands(t, value, dim, index, source)
    scattered = t.emit(op.scatter_elements(data, places, updates, axis, reduction))
    return t.reshape(scattered, t.shape(value))


def _scatter_operands(
    t: Translator, value: relax.Expr, dim: int, index: relax.Expr, source: relax.Expr
) -> tuple[relax.Expr, int, relax.Expr, relax.Expr]:
    """Return the operands of a scatter with at least one dimension; the source is cropped to the shape of the index."""
    if t.static_shape(index) == (0,) and t.ndim(value) != 1:
        index = t.reshape(index, [0] * max(t.ndim(value), 1))
    if not t.ndim(value):
        value, index, source = (t.reshape(v, [total_size(t.shape(v))]) for v in (value, index, source))
    for axis, extent in enumerate(t.shape(index)):
        source = slice_axis(t, source, axis, 0, extent)
    return value, t.axis(value, dim), index, source


def _reduced(
    t: Translator, value: relax.Expr, axis: int, index: relax.Expr, source: relax.Expr, reduce: str, include: bool
) -> relax.Expr:
    return op.scatter_reduce(value, index, source, axis, reduce, include)


# ---------------------------------------------------------------- tables of rows


@converts("aten.embedding")
def _embedding(t: Translator, weight: relax.Expr, indices: relax.Expr, **settings: Any) -> relax.Expr:
    return op.take(weight, indices, 0)


@converts("aten.one_hot")
def _one_hot(t: Translator, self: relax.Expr, num_classes: int = -1) -> relax.Expr:
    if num_classes < 0:
        raise Unsupported("a number of classes that depends on the data is not supported", "state num_classes")
    classes = op.arange(0, num_classes, 1, "int64")
    return op.astype(op.equal(op.expand_dims(t.cast(self, "int64"), [t.ndim(self)]), classes), "int64")


@converts("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def _embedding_bag(
    t: Translator, weight: relax.Expr, indices: relax.Expr, offsets: relax.Expr, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: relax.Expr | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> list[Any]:  # fmt: skip
    dtype = t.dtype(weight)
    count = t.shape(indices)[0]
    bags: Dim = t.shape(offsets)[0]
    places = t.emit(op.arange(0, count, 1, "int64"))
    kept: relax.Expr = t.full([count], True, "bool")
    if include_last_offset:
        bags = extent_difference(bags, 1)
        kept = t.emit(op.less(places, t.cast(select_index(t, offsets, 0, bags), "int64")))
        offsets = slice_axis(t, offsets, 0, 0, bags)
    after = op.bucketize(places, t.cast(offsets, "int64"), right=True)
    bag = t.emit(op.subtract(t.cast(t.emit(after), "int64"), t.scalar(1, "int64")))
    rows = t.emit(op.take(weight, indices, 0))
    if per_sample_weights is not None:
        rows = t.emit(op.multiply(rows, op.expand_dims(per_sample_weights, [1])))
    if padding_idx is not None and padding_idx != -1:
        row = extent_sum(t.shape(weight)[0], padding_idx) if padding_idx < 0 else padding_idx
        kept = t.emit(op.logical_and(kept, op.not_equal(indices, as_tensor(t, row, t.dtype(indices)))))
    shape = [bags, t.shape(weight)[1]]
    column = t.emit(op.expand_dims(kept, [1]))
    if mode == 2:
        return [_bag_maxima(t, shape, bag, column, rows), None, None, None]
    pooled = _bag_sums(t, shape, bag, column, rows)
    if mode == 1:
        sizes = _bag_sums(t, [bags, 1], bag, column, t.full([count, 1], 1, dtype))
        pooled = t.emit(op.divide(pooled, op.maximum(sizes, t.scalar(1, dtype))))
    return [pooled, None, None, None]


def _bag_sums(t: Translator, shape: Sequence[Dim], bag: relax.Expr, kept: relax.Expr, rows: relax.Expr) -> relax.Expr:
    dtype = t.dtype(rows)
    used = t.emit(op.where(kept, rows, t.scalar(0, dtype)))
    return t.emit(op.index_put(t.full(shape, 0, dtype), [bag], used, True))


def _bag_maxima(t: Translator, shape: Sequence[Dim], bag: relax.Expr, kept: relax.Expr, rows: relax.Expr) -> relax.Expr:
    """Emit the maximum of each bag; 0 for empty bags."""
    import math

    dtype = t.dtype(rows)
    lowest = t.scalar(-math.inf, dtype)
    used = t.emit(op.where(kept, rows, lowest))
    wide = broadcast(t, t.emit(op.expand_dims(bag, [1])), t.shape(rows))
    greatest = t.emit(op.scatter_elements(t.full(shape, -math.inf, dtype), wide, used, 0, "max"))
    return t.emit(op.where(op.equal(greatest, lowest), t.scalar(0, dtype), greatest))
