"""Sorting, top-k, search in sorted sequences, counting."""

from __future__ import annotations

import math
from typing import Any

from mlcc.frontend.aten.converters.arithmetic import logaddexp
from mlcc.frontend.aten.converters.reductions import norm
from mlcc.frontend.aten.converters.shapes import select_index, slice_axis, total_size
from mlcc.frontend.aten.promotion import Value, as_tensor, is_float, promote_operands
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.relax import op


@converts("aten.sort")
def _sort(
    t: Translator, self: relax.Expr, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> list[relax.Expr]:
    if not t.ndim(self):
        return [self, t.scalar(0, "int64")]
    axis = t.axis(self, dim)
    order = t.emit(op.argsort(self, axis=axis, descending=descending, dtype="int64"))
    return [t.emit(op.gather_elements(self, order, axis)), order]


@converts("aten.argsort")
def _argsort(
    t: Translator, self: relax.Expr, dim: int = -1, descending: bool = False, stable: bool = False
) -> relax.Expr:
    return _sort(t, self, dim, descending)[1]


@converts("aten.msort")
def _msort(t: Translator, self: relax.Expr) -> relax.Expr:
    return _sort(t, self, 0)[0]


@converts("aten.topk")
def _topk(
    t: Translator, self: relax.Expr, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[relax.Expr]:
    if not isinstance(k, int):
        raise Unsupported("a symbolic k is not supported")
    if not t.ndim(self):
        return _sort(t, self)
    pair = t.emit(op.topk(self, k, t.axis(self, dim), "both", largest, "int64"))
    return [t.emit(pair[0]), t.emit(pair[1])]


@converts("aten.kthvalue")
def _kthvalue(t: Translator, self: relax.Expr, k: int, dim: int = -1, keepdim: bool = False) -> list[relax.Expr]:
    if not t.ndim(self):
        return _sort(t, self)
    axis = t.axis(self, dim)
    picked = [select_index(t, value, axis, k - 1) for value in _sort(t, self, axis)]
    return [t.emit(op.expand_dims(value, [axis])) for value in picked] if keepdim else picked


@converts("aten.median.dim")
def _median(t: Translator, self: relax.Expr, dim: int, keepdim: bool = False) -> list[relax.Expr]:
    if not t.ndim(self):
        return _sort(t, self)
    axis = t.axis(self, dim)
    count = _constant_extent(t, self, axis)
    values, order = _sort(t, self, axis)
    picked = [select_index(t, x, axis, (count - 1) // 2) for x in (values, order)]
    if is_float(t.dtype(self)):  # NaN are sorted to the end; the first NaN is the median if there is one
        missing = t.emit(op.isnan(self))
        there = t.emit(op.isnan(select_index(t, values, axis, count - 1)))
        first = op.argmax(op.astype(missing, "int8"), axis=axis)
        nan = t.scalar(math.nan, t.dtype(self))
        picked = [t.emit(op.where(there, nan, picked[0])), t.emit(op.where(there, first, picked[1]))]
    return [t.emit(op.expand_dims(x, [axis])) for x in picked] if keepdim else picked


@converts("aten._unique2")
def _unique(
    t: Translator, self: relax.Expr, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> list[relax.Expr | None]:
    flat = t.reshape(self, [total_size(t.shape(self))])
    outputs = t.emit(op.unique(flat, True, False, return_inverse, return_counts, 0))
    if not return_inverse and not return_counts:
        return [outputs, None, None]
    inverse = t.reshape(t.emit(outputs[1]), t.shape(self)) if return_inverse else None
    return [t.emit(outputs[0]), inverse, t.emit(outputs[1 + return_inverse]) if return_counts else None]


@converts("aten.median.default")
def _median_of_all(t: Translator, self: relax.Expr) -> relax.Expr:
    values = _sort(t, t.reshape(self, [total_size(t.shape(self))]), 0)[0]
    count = total_size(t.shape(self))
    if not isinstance(count, int):
        raise Unsupported("the median of a symbolic number of elements is not supported")
    middle = select_index(t, values, 0, (count - 1) // 2)
    if not is_float(t.dtype(self)):
        return middle
    last = select_index(t, values, 0, count - 1)  # NaN are sorted to the end
    return op.where(op.isnan(last), last, middle)


@converts("aten.searchsorted")
def _searchsorted(
    t: Translator, sorted_sequence: relax.Expr, self: Value, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    if sorter is not None:
        raise Unsupported("a sorter is not supported")
    after = right or side == "right"
    edges, values = promote_operands(t, sorted_sequence, self)
    if t.ndim(edges) == 1:
        places = t.emit(op.bucketize(values, edges, out_int32, after))
        return (
            op.where(op.isnan(values), as_tensor(t, t.shape(edges)[0], t.dtype(places)), places)
            if (is_float(t.dtype(values)))
            else places
        )  # NaN is inserted at the end
    wide = op.expand_dims(edges, [t.ndim(edges) - 1])
    after_or_equal = op.greater if after else op.greater_equal
    behind = after_or_equal(wide, op.expand_dims(values, [t.ndim(values)]))  # comparisons with NaN are false
    before = t.emit(op.astype(op.logical_not(behind), "int64"))
    return t.cast(t.emit(op.sum(before, axis=[-1])), "int32" if out_int32 else "int64")


@converts("aten.bucketize")
def _bucketize(
    t: Translator, self: Value, boundaries: relax.Expr, out_int32: bool = False, right: bool = False
) -> relax.Expr:
    return _searchsorted(t, boundaries, self, out_int32, right)


@converts("aten.isin")
def _isin(
    t: Translator, elements: Value | None = None, test_elements: Value | None = None, element: Value | None = None,
    test_element: Value | None = None, assume_unique: bool = False, invert: bool = False,
) -> relax.Expr:  # fmt: skip
    given = [value for value in (elements, element) if value is not None]
    wanted = [value for value in (test_elements, test_element) if value is not None]
    x, y = promote_operands(t, given[0], wanted[0])
    lines = t.reshape(y, [total_size(t.shape(y))])
    equal = op.equal(op.expand_dims(x, [t.ndim(x)]), lines)
    found = t.emit(op.max(equal, axis=[-1]))
    return op.logical_not(found) if invert else found


@converts("aten.histc")
def _histc(t: Translator, self: relax.Expr, bins: int = 100, min: float = 0, max: float = 0) -> relax.Expr:
    if min == max:
        raise Unsupported("bounds that depend on the data are not supported")
    dtype = t.dtype(self)
    flat = t.reshape(self, [total_size(t.shape(self))])
    low, high = t.scalar(min, dtype), t.scalar(max, dtype)
    inside = t.emit(op.logical_and(op.greater_equal(flat, low), op.less_equal(flat, high)))
    place = op.divide(op.multiply(op.subtract(flat, low), t.scalar(bins, dtype)), t.scalar(max - min, dtype))
    at = op.minimum(op.astype(op.where(inside, place, t.scalar(0, dtype)), "int64"), t.scalar(bins - 1, "int64"))
    ones = op.where(inside, t.scalar(1, dtype), t.scalar(0, dtype))
    return op.scatter_elements(t.full([bins], 0, dtype), t.emit(at), t.emit(ones), 0, "add")


# ---------------------------------------------------------------- cumulative extremes


@converts("aten.cummax", "aten._cummax_helper")
def _cummax(t: Translator, self: relax.Expr, dim: int) -> list[relax.Expr]:
    return _running_extreme(t, self, dim, op.greater_equal)


@converts("aten.cummin", "aten._cummin_helper")
def _cummin(t: Translator, self: relax.Expr, dim: int) -> list[relax.Expr]:
    return _running_extreme(t, self, dim, op.less_equal)


def _running_extreme(t: Translator, value: relax.Expr, dim: int, better: Any) -> list[relax.Expr]:
    """Emit cumulative extremes and their indices, the last of equal ones, by a scan in log2(n) steps."""
    if not t.ndim(value):
        return [value, t.scalar(0, "int64")]
    axis = t.axis(value, dim)
    extent = _constant_extent(t, value, axis)
    line = [1] * t.ndim(value)
    line[axis] = extent
    places = t.reshape(t.emit(op.arange(0, extent, 1, "int64")), line)
    at: relax.Expr = t.emit(op.broadcast_to(places, t.shape_expr(t.shape(value))))
    step = 1
    while step < extent:
        early, early_at = (_shift_along(t, x, axis, step, extent) for x in (value, at))
        later = better(value, early)
        if is_float(t.dtype(value)):
            later = op.logical_and(op.logical_or(later, op.isnan(value)), op.logical_or(
                op.isnan(value), op.logical_not(op.isnan(early))))  # fmt: skip
        own = t.emit(later)
        value, at = t.emit(op.where(own, value, early)), t.emit(op.where(own, at, early_at))
        step *= 2
    return [value, at]


def _constant_extent(t: Translator, value: relax.Expr, axis: int) -> int:
    extent = t.shape(value)[axis]
    size = tir.const_int(extent)
    if size is None:
        raise Unsupported("this operator on an axis of symbolic extent is not supported")
    return size


def _shift_along(t: Translator, value: relax.Expr, axis: int, step: int, extent: int) -> relax.Expr:
    """Shift the value by `step` elements along an axis; the first elements stay."""
    head, rest = slice_axis(t, value, axis, 0, step), slice_axis(t, value, axis, 0, extent - step)
    return t.emit(op.concat([head, rest], axis))


@converts("aten.logcumsumexp")
def _logcumsumexp(t: Translator, self: relax.Expr, dim: int) -> relax.Expr:
    if not t.ndim(self):
        return self
    axis = t.axis(self, dim)
    extent = _constant_extent(t, self, axis)
    value, step = self, 1
    while step < extent:
        rest = [*t.shape(value)]
        lowest = t.full([*rest[:axis], step, *rest[axis + 1 :]], -math.inf, t.dtype(value))
        early = t.emit(op.concat([lowest, slice_axis(t, value, axis, 0, extent - step)], axis))
        value = t.emit(logaddexp(t, value, early))
        step *= 2
    return value


# ---------------------------------------------------------------- distances


@converts("aten.cdist", "aten._cdist_forward", "aten._euclidean_dist")
def _cdist(
    t: Translator, x1: relax.Expr, x2: relax.Expr, p: float = 2.0, compute_mode: int | None = None
) -> relax.Expr:
    away = op.subtract(op.expand_dims(x1, [t.ndim(x1) - 1]), op.expand_dims(x2, [t.ndim(x2) - 2]))
    return norm(t, t.emit(away), float(p), [-1], False)


@converts("aten._pdist_forward", "aten.pdist")
def _pdist(t: Translator, self: relax.Expr, p: float = 2.0) -> relax.Expr:
    import numpy as np

    shape = t.static_shape(self)
    if shape is None:
        raise Unsupported("distances of a symbolic number of rows are not supported")
    one, two = (t.constant(places.astype("int64")) for places in np.triu_indices(shape[0], 1))
    return norm(t, t.emit(op.subtract(op.take(self, one, 0), op.take(self, two, 0))), float(p), [-1], False)


@converts("aten.bincount")
def _bincount(t: Translator, self: relax.Expr, weights: relax.Expr | None = None, minlength: int = 0) -> relax.Expr:
    raise Unsupported("a number of bins that depends on the data is not supported")
