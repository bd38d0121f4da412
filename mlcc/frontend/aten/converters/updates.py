"""Converters of updates: tensors with a part replaced (functional writes through views), and strided parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.frontend.aten.converters.shapes import extent_sum, non_negative_index
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.relax import op

if TYPE_CHECKING:
    import numpy as np


@converts("aten.slice_scatter")
def _slice_scatter(
    t: Translator, self: relax.Expr, src: relax.Expr, dim: int = 0, start: Dim | None = None, end: Dim | None = None,
    step: int = 1,
) -> relax.Expr:  # fmt: skip
    axis = t.axis(self, dim)
    extent = t.shape(self)[axis]
    count = t.shape(src)[axis]
    if step == 1 and not start and c.equal(extent, count) == c.const(True, "bool"):
        return src
    begin = _clamp_bound(0 if start is None else start, extent)
    last = extent_sum(begin, count) if step == 1 else _clamp_bound(extent if end is None else end, extent)
    return t.emit(op.slice_scatter(self, t.cast(src, t.dtype(self)), begin, last, step, axis))


@converts("aten.select_scatter")
def _select_scatter(t: Translator, self: relax.Expr, src: relax.Expr, dim: int, index: Dim) -> relax.Expr:
    axis = t.axis(self, dim)
    begin = non_negative_index(index, t.shape(self)[axis])
    part = t.emit(op.expand_dims(t.cast(src, t.dtype(self)), [axis]))
    return t.emit(op.slice_scatter(self, part, begin, extent_sum(begin, 1), 1, axis))


def _clamp_bound(bound: Dim, extent: tir.Expr) -> Dim:
    """Clamp a bound of a slice to the extent, counted from the front, as PyTorch does."""
    known = tir.const_int(extent)
    if isinstance(bound, int) and known is not None:
        return min(max(bound + known if bound < 0 else bound, 0), known)
    index = non_negative_index(bound, extent)
    return 0 if isinstance(index, int) and index == 0 else c.maximum(c.minimum(index, extent), c.const(0, "int64"))


# ---------------------------------------------------------------- by flat index


@converts("aten.diagonal_scatter")
def _diagonal_scatter(
    t: Translator, self: relax.Expr, src: relax.Expr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> relax.Expr:
    return _scatter_at(t, self, src, _flat_indices(t, self).diagonal(offset, dim1, dim2))


@converts("aten.as_strided", "aten.as_strided_copy")
def _as_strided(
    t: Translator, self: relax.Expr, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> relax.Expr:
    places = _strided_indices(t, self, size, stride, storage_offset)
    flat = t.reshape(self, [_element_count(t, self)])
    taken = t.emit(op.take(flat, t.constant(places.reshape(-1)), 0))
    return t.reshape(taken, list(places.shape))


@converts("aten.as_strided_scatter")
def _as_strided_scatter(
    t: Translator, self: relax.Expr, src: relax.Expr, size: Sequence[Dim], stride: Sequence[Dim],
    storage_offset: Dim | None = None,
) -> relax.Expr:  # fmt: skip
    return _scatter_at(t, self, src, _strided_indices(t, self, size, stride, storage_offset))


def _element_count(t: Translator, value: relax.Expr) -> int:
    return int(_flat_indices(t, value).size)


def _flat_indices(t: Translator, value: relax.Expr) -> np.ndarray:
    """Return the flat index of each element."""
    import numpy as np

    shape = t.static_shape(value)
    if shape is None:
        raise Unsupported("strided access to a tensor of symbolic shape is not supported")
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)


def _strided_indices(
    t: Translator, value: relax.Expr, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None
) -> np.ndarray:
    """Return the flat indices of a strided view (`as_strided`) of a contiguous tensor."""
    import numpy as np

    places = _flat_indices(t, value).reshape(-1)
    sizes, steps, begin = ([n for n in given if isinstance(n, int)] for given in (size, stride, [offset or 0]))
    if len(sizes) != len(size) or len(steps) != len(sizes) or not begin:
        raise Unsupported("strided access with symbolic sizes or strides is not supported")
    numbers = np.full((), begin[0])
    for n, step in zip(sizes, steps, strict=True):
        numbers = numbers[..., None] + np.arange(n) * step
    if numbers.size and (numbers.min() < 0 or numbers.max() >= places.size):
        raise Unsupported("a strided view reaches outside the tensor's memory")
    return numbers


def _scatter_at(t: Translator, value: relax.Expr, part: relax.Expr, places: np.ndarray) -> relax.Expr:
    """Replace the elements at these flat indices."""
    if len(set(places.reshape(-1).tolist())) != places.size:
        raise Unsupported("it writes to elements that appear several times in the view")
    flat = t.reshape(value, [_element_count(t, value)])
    updates = t.reshape(t.cast(part, t.dtype(value)), [int(places.size)])
    updated = t.emit(op.scatter_elements(flat, t.constant(places.reshape(-1)), updates, 0))
    return t.reshape(updated, t.shape(value))
