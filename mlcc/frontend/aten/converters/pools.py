"""Pooling: the maximum with its index, or the mean, of sliding or adaptive windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.shapes import same_shape, total_size
from mlcc.frontend.aten.promotion import is_float
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.aten.windows import Ints, gather_windows, per_dimension, window_positions
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.relax import op

_MAX: dict[int, Any] = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVG: dict[int, Any] = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_ADAPTIVE: dict[int, Any] = {
    1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d,
}  # fmt: skip


def _batched(t: Translator, value: relax.Expr, n: int) -> tuple[relax.Expr, bool]:
    """Add a batch axis to data of `n` spatial dimensions if it has none. Return the data, and whether it had one."""
    if t.ndim(value) == n + 2:
        return value, True
    return t.emit(op.expand_dims(value, [0])), False


def _unbatched(t: Translator, value: relax.Expr, batched: bool) -> relax.Expr:
    return value if batched else t.emit(op.squeeze(value, [0]))


# ---------------------------------------------------------------- max pooling


def _max_pool(n: int, with_places: bool) -> Any:
    def convert(
        t: Translator, self: relax.Expr, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        kernel, pads, steps = per_dimension(kernel_size, n), per_dimension(padding, n), per_dimension(dilation, n)
        strides = per_dimension(stride, n) if stride or isinstance(stride, int) else kernel
        x, batched = _batched(t, self, n)
        maxima = t.emit(
            _MAX[n](x, pool_size=kernel, strides=strides, padding=pads * 2, dilation=steps, ceil_mode=ceil_mode)
        )
        if not with_places:
            return _unbatched(t, maxima, batched)
        positions = [
            window_positions(t, size, k, s, p, d)
            for size, k, s, p, d in zip(t.shape(maxima)[2:], kernel, strides, pads, steps, strict=True)
        ]
        return [
            _unbatched(t, value, batched) for value in (maxima, _flat_argmax(t, x, positions, any(pads) or ceil_mode))
        ]

    return convert


for _n in (1, 2, 3):
    converts(f"aten.max_pool{_n}d")(_max_pool(_n, False))
    converts(f"aten.max_pool{_n}d_with_indices")(_max_pool(_n, True))


def _clamp_positions(t: Translator, places: relax.Expr, extent: tir.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Return the positions, with 0 for those out of bounds, and a mask of those in bounds."""
    limit = t.emit(op.reshape(op.shape_to_tensor(t.shape_expr([extent])), t.shape_expr([])))
    zero = t.scalar(0, "int64")
    good = t.emit(op.logical_and(op.greater_equal(places, zero), op.less(places, limit)))
    return t.emit(op.where(good, places, zero)), good


def _flat_argmax(t: Translator, value: relax.Expr, positions: Sequence[relax.Expr], padded: bool) -> relax.Expr:
    """Return the index of each window's maximum in the flattened data of its channel."""
    n = len(positions)
    extents = t.shape(value)[2:]
    pairs = [_clamp_positions(t, places, extent) for places, extent in zip(positions, extents, strict=True)]
    seen = gather_windows(t, value, [places for places, _ in pairs])
    flat: relax.Expr | None = None
    good: relax.Expr | None = None
    for at, (places, there) in enumerate(pairs):
        flat = _as_window_axis(t, places, at, n) if flat is None else t.emit(
            op.add(op.multiply(flat, _extent_scalar(t, extents[at])), _as_window_axis(t, places, at, n))
        )  # fmt: skip
        mine = _as_window_axis(t, there, at, n)
        good = mine if good is None else t.emit(op.logical_and(good, mine))
    assert flat is not None and good is not None
    kernel = total_size([t.shape(places)[1] for places in positions])
    counts = [t.shape(places)[0] for places in positions]
    if padded:
        seen = t.emit(op.where(good, seen, t.scalar(_min_value(t.dtype(value)), t.dtype(value))))
    batch = t.shape(value)[:2]
    lines = t.reshape(seen, [*batch, *counts, kernel])
    chosen = t.emit(op.argmax(lines, axis=-1, keepdims=True))
    if is_float(t.dtype(value)):  # the last one of several NaN
        from_end = t.emit(op.argmax(op.flip(lines, -1), axis=-1, keepdims=True))
        last = op.subtract(_extent_scalar(t, c.sub(c.as_expr(kernel), 1)), from_end)
        missing = op.isnan(op.max(lines, axis=[-1], keepdims=True))
        chosen = t.emit(op.where(missing, last, chosen))
    places = t.emit(op.broadcast_to(t.reshape(flat, [1, 1, *counts, kernel]), t.shape_expr([*batch, *counts, kernel])))
    return t.emit(op.squeeze(op.gather_elements(places, chosen, 2 + n), [2 + n]))


def _as_window_axis(t: Translator, places: relax.Expr, at: int, n: int) -> relax.Expr:
    """Reshape the (windows, kernel) table of a dimension to broadcast over all dimensions."""
    count, kernel = t.shape(places)
    shape: list[Dim] = [1 for _ in range(2 * n)]
    shape[at], shape[n + at] = count, kernel
    return t.reshape(places, shape)


def _extent_scalar(t: Translator, extent: tir.Expr) -> relax.Expr:
    return t.emit(op.reshape(op.shape_to_tensor(t.shape_expr([extent])), t.shape_expr([])))


def _min_value(dtype: str) -> float | int:
    from mlcc.ir.dtypes import DType

    kind = DType.of(dtype)
    return -math.inf if is_float(dtype) else 0 if str(dtype).startswith("u") else -(2 ** (kind.bits - 1))


def _adaptive_max_pool(n: int) -> Any:
    def convert(t: Translator, self: relax.Expr, output_size: Ints) -> list[relax.Expr]:
        x, batched = _batched(t, self, n)
        positions = [
            _adaptive_windows(t, extent, size)
            for extent, size in zip(t.shape(x)[2:], per_dimension(output_size, n), strict=True)
        ]
        seen = gather_windows(t, x, positions)
        maxima = t.emit(op.max(seen, axis=list(range(2 + n, 2 + 2 * n))))
        return [_unbatched(t, value, batched) for value in (maxima, _flat_argmax(t, x, positions, False))]

    return convert


for _n in (1, 2, 3):
    converts(f"aten.adaptive_max_pool{_n}d")(_adaptive_max_pool(_n))


def _adaptive_windows(t: Translator, extent: tir.Expr, count: int) -> relax.Expr:
    """Return the gather indices of adaptive windows, (count, longest); shorter windows repeat their last index."""
    import numpy as np

    size = tir.const_int(extent)
    if size is None:
        raise Unsupported("adaptive windows over a symbolic extent are not supported")
    begins = [at * size // count for at in range(count)]
    ends = [-(-(at + 1) * size // count) for at in range(count)]
    longest = max((end - begin for begin, end in zip(begins, ends, strict=True)), default=0)
    table = [[min(begin + k, end - 1) for k in range(longest)] for begin, end in zip(begins, ends, strict=True)]
    return t.constant(np.array(table, "int64").reshape(count, longest))


# ---------------------------------------------------------------- average pooling


def _avg_pool(n: int) -> Any:
    def convert(
        t: Translator, self: relax.Expr, kernel_size: Ints, stride: Ints = (), padding: Ints = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> relax.Expr:  # fmt: skip
        kernel, pads = per_dimension(kernel_size, n), per_dimension(padding, n)
        strides = per_dimension(stride, n) if stride or isinstance(stride, int) else kernel
        if divisor_override is not None and ceil_mode:
            raise Unsupported("divisor_override together with ceil_mode is not supported")
        x, batched = _batched(t, self, n)
        means: relax.Expr = t.emit(
            _AVG[n](
                x, pool_size=kernel, strides=strides, padding=pads * 2, ceil_mode=ceil_mode,
                count_include_pad=count_include_pad or divisor_override is not None,
            )
        )  # fmt: skip
        if divisor_override is not None:
            means = t.emit(op.multiply(means, t.scalar(math.prod(kernel) / divisor_override, t.dtype(self))))
        return _unbatched(t, means, batched)

    return convert


def _adaptive_avg_pool(n: int) -> Any:
    def convert(t: Translator, self: relax.Expr, output_size: Sequence[Dim] | int) -> relax.Expr:
        x, batched = _batched(t, self, n)
        wanted = [output_size] * n if isinstance(output_size, int) else list(output_size)
        if same_shape(t.shape(x)[2:], wanted):
            return self
        return _unbatched(t, t.emit(_ADAPTIVE[n](x, output_size=per_dimension(wanted, n))), batched)  # type: ignore[arg-type]

    return convert


for _n in (1, 2, 3):
    converts(f"aten.avg_pool{_n}d")(_avg_pool(_n))
    converts(f"aten.adaptive_avg_pool{_n}d", f"aten._adaptive_avg_pool{_n}d")(_adaptive_avg_pool(_n))


# ---------------------------------------------------------------- unpooling


def _max_unpool(n: int) -> Any:
    def convert(
        t: Translator, self: relax.Expr, indices: relax.Expr, output_size: Sequence[Dim], stride: Any = None,
        padding: Any = None,
    ) -> relax.Expr:  # fmt: skip
        outer = list(t.shape(self)[:-n])
        lines = [*outer, total_size(t.shape(self)[-n:])]
        zeros = t.full([*outer, total_size(list(output_size))], 0, t.dtype(self))
        filled = op.scatter_elements(zeros, t.reshape(indices, lines), t.reshape(self, lines), len(outer))
        return t.reshape(t.emit(filled), [*outer, *output_size])

    return convert


for _n in (2, 3):
    converts(f"aten.max_unpool{_n}d")(_max_unpool(_n))
