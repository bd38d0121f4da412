"""Axes known at run time only, and values for axes, as vectors with an element for each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ops.shapes import product


def vector_length(t: OnnxTranslator, vector: relax.Expr) -> int:
    """Return the length of a vector. Raises Unsupported if it is known at run time only."""
    shape = t.static_shape(vector)
    if shape is None or len(shape) > 1:
        raise Unsupported("the number of axes is known at run time only")
    return shape[0] if shape else 1


def non_negative_axes(t: OnnxTranslator, axes: relax.Expr, rank: int) -> relax.Expr:
    """Return non-negative axes; that they are in range is checked at run time."""
    wide = t.reshape(t.cast(axes, "int64"), [vector_length(t, axes)])
    limit = t.scalar(rank, "int64")
    positive = t.op.where(t.op.less(wide, t.scalar(0, "int64")), t.op.add(wide, limit), wide)
    return t.emit(t.op.take(t.integer_tensor(range(rank), "int64"), positive, 0))


def axis_matches(t: OnnxTranslator, axes: relax.Expr, rank: int) -> relax.Expr:
    """Return a bool matrix of dimensions (rows) and axes (columns): true where they are equal."""
    places = t.reshape(t.integer_tensor(range(rank), "int64"), [rank, 1])
    return t.emit(t.op.equal(places, t.op.expand_dims(non_negative_axes(t, axes, rank), [0])))


def axis_mask(t: OnnxTranslator, axes: relax.Expr, rank: int) -> relax.Expr:
    """Return a mask over the dimensions: true for those among the axes."""
    return t.emit(t.op.max(axis_matches(t, axes, rank), [1]))


def scatter_by_axis(
    t: OnnxTranslator, axes: relax.Expr | None, values: relax.Expr, otherwise: Sequence[Dim] | int, rank: int
) -> relax.Expr:
    """Scatter values of axes to a vector over all dimensions; dimensions not among the axes get `otherwise`."""
    vector = t.cast(values, "int64")
    if axes is None:
        return vector
    rest = [otherwise] * rank if isinstance(otherwise, int) else otherwise
    matching = axis_matches(t, axes, rank)
    spread = t.op.sum(t.op.where(matching, t.op.expand_dims(vector, [0]), t.scalar(0, "int64")), [1])
    return t.emit(t.op.where(t.op.max(matching, [1]), spread, t.integer_tensor(rest, "int64")))


def element(t: OnnxTranslator, vector: relax.Expr, at: int) -> relax.Expr:
    """Return an element of a vector as a scalar."""
    return t.emit(t.op.squeeze(t.op.strided_slice(vector, [0], [at], [at + 1], assume_inbound=True), [0]))


def bounded_extents(t: OnnxTranslator, vector: relax.Expr, limits: Sequence[Dim]) -> list[Dim]:
    """Return the elements of a vector as extents with upper bounds, by which memory is planned."""
    return [
        extent if isinstance(extent, int) else construct.minimum(extent, limit)
        for extent, limit in zip(t.extents(vector), limits, strict=True)
    ]


def _max_extent(shape: Sequence[Dim]) -> Dim:
    """Return the maximum of the extents and 1."""
    most: Dim = 1
    for extent in shape:
        most = construct.maximum(extent, most)
    return most


def unreduced_extents(t: OnnxTranslator, x: relax.Expr, axes: relax.Expr) -> list[Dim]:
    """Return the extents of the dimensions that are not among the axes, which are distinct."""
    rank = t.ndim(x)
    order = t.op.argsort(t.op.astype(axis_mask(t, axes, rank), "int32"), 0, False, "int64")
    count = max(rank - vector_length(t, axes), 0)
    first = t.op.strided_slice(order, [0], [0], [count], assume_inbound=True)
    kept = t.emit(t.op.take(t.integer_tensor(t.shape(x), "int64"), first, 0))
    return bounded_extents(t, kept, [_max_extent(t.shape(x))] * count)


def unsqueezed_extents(t: OnnxTranslator, x: relax.Expr, axes: relax.Expr) -> list[Dim]:
    """Return the extents with 1 inserted at the axes (`Unsqueeze`), which are distinct."""
    rank = t.ndim(x) + vector_length(t, axes)
    new = axis_mask(t, axes, rank)
    zero, one = t.scalar(0, "int64"), t.scalar(1, "int64")
    before = t.op.subtract(t.op.cumsum(t.op.where(new, zero, one), 0, "int64"), one)
    old = t.integer_tensor([*t.shape(x), 1], "int64")  # never empty
    extents = t.emit(t.op.where(new, one, t.op.take(old, t.op.maximum(before, zero), 0)))
    return bounded_extents(t, extents, [_max_extent(t.shape(x))] * rank)


def pad_or_crop(
    t: OnnxTranslator, x: relax.Expr, before: relax.Expr, extents: Sequence[Dim], mode: str, filler: relax.Expr
) -> relax.Expr:
    """Pad or crop a tensor to these extents. Its elements begin at `before`, a vector of positions that may be
    negative; `mode` is that of ONNX's `Pad`."""
    zero, two = t.scalar(0, "int64"), t.scalar(2, "int64")
    for axis, extent in enumerate(extents):
        n = t.integer_tensor([t.shape(x)[axis]], "int64", ())
        last = t.op.subtract(n, t.scalar(1, "int64"))
        at = t.emit(t.op.subtract(t.op.arange(0, extent, 1, "int64"), element(t, before, axis)))
        if mode == "wrap":
            place = t.op.floor_mod(at, n)
        elif mode == "reflect":
            around = t.op.floor_mod(at, t.op.maximum(t.op.multiply(last, two), t.scalar(1, "int64")))
            place = t.op.minimum(around, t.op.subtract(t.op.multiply(last, two), around))
        else:
            place = t.op.maximum(t.op.minimum(at, last), zero)
        taken = t.emit(t.op.take(x, place, axis))
        if mode == "constant":
            inside = t.emit(t.op.logical_and(t.op.greater_equal(at, zero), t.op.less(at, n)))
            seen = t.reshape(inside, [extent if i == axis else 1 for i in range(t.ndim(x))])
            taken = t.emit(t.op.where(seen, taken, filler))
        x = taken
    return x


class DynamicReduction:
    """Reductions over axes known at run time only, as scatters: each element is combined into its result element."""

    def __init__(self, t: OnnxTranslator, x: relax.Expr, axes: relax.Expr, keep: bool) -> None:
        self.t, self.shape, self.keep = t, t.shape(x), keep
        over = axis_mask(t, axes, len(self.shape))
        whole = t.integer_tensor(self.shape, "int64")
        kept = t.emit(t.op.where(over, t.scalar(1, "int64"), whole))
        self.extents = bounded_extents(t, kept, [_max_extent([n]) for n in self.shape])
        self.result = self.extents if keep else unreduced_extents(t, x, axes)
        self.places = self._result_indices()

    def _result_indices(self) -> relax.Expr:
        """Return the flat index of the result into which each element of the data is reduced."""
        t, rank = self.t, len(self.shape)
        total: Any = t.scalar(0, "int64")
        for axis, extent in enumerate(self.extents):
            along = t.op.arange(0, self.shape[axis], 1, "int64")
            last = t.integer_tensor([construct.sub(extent, 1)], "int64")
            step = t.integer_tensor([product(self._extent_exprs(axis + 1))], "int64")
            place = t.op.multiply(t.op.minimum(along, last), step)
            total = t.op.add(total, t.op.expand_dims(place, [i for i in range(rank) if i != axis]))
        return t.emit(t.op.flatten(t.op.broadcast_to(total, t.shape_expr(self.shape)) if rank else total))

    def _extent_exprs(self, first: int = 0) -> list[tir.Expr]:
        return [construct.as_expr(n, INT64) for n in self.extents[first:]]

    def reduce(self, name: str, value: relax.Expr, keep: bool | None = None) -> relax.Expr:
        """Emit the reduction of that name."""
        if name == "mean":
            return self._mean(value, keep)
        t, own = self.t, DType.of(self.t.dtype(value))
        wide = "int32" if own.is_bool else "float32" if own.is_float and own.bits < 32 else str(own)
        start = t.full([product(self._extent_exprs())], _identity(name, DType.of(wide), own.is_bool), wide)
        flat = t.emit(t.op.flatten(t.cast(value, wide)))
        how = {"max": "amax", "min": "amin"}.get(name, name)
        reduced = t.emit(t.op.scatter_reduce(start, self.places, flat, 0, how))
        return t.cast(t.reshape(reduced, self.extents if keep else self.result), own)

    def _mean(self, value: relax.Expr, keep: bool | None) -> relax.Expr:
        t, dtype = self.t, self.t.dtype(value)
        if not DType.of(dtype).is_float:
            raise Unsupported("means of integers over axes known at run time only")
        count = construct.floordiv(product(self.shape), construct.maximum(product(self._extent_exprs()), 1))
        number = t.cast(t.integer_tensor([count], "int64", ()), dtype)
        return t.emit(t.op.divide(self.reduce("sum", value, keep), number))

    def squeeze_reduced(self, value: relax.Expr) -> relax.Expr:
        """Drop the reduced axes, which a reduction kept, unless the result keeps them."""
        return value if self.keep else self.t.reshape(value, self.result)


def _identity(name: str, dtype: DType, of_bools: bool) -> float:
    """Return the identity element of a reduction."""
    if name in ("sum", "prod"):
        return int(name == "prod")
    if of_bools:
        return int(name == "min")
    if dtype.is_float:
        return float("-inf") if name == "max" else float("inf")
    bound = construct.min_value(dtype) if name == "max" else construct.max_value(dtype)
    assert isinstance(bound, tir.IntImm)
    return bound.value
