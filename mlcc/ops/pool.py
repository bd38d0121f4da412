"""Pooling: the maximum or the mean of a sliding window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.blocked_layouts import POOL_LAYOUTS, blocked_impl
from mlcc.ops.lazy import np
from mlcc.ops.pad import pad
from mlcc.ops.reduce import MAX_REDUCER, lowest_value, np_identity
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    extent_analyzer,
    fail,
    int64,
    prove,
    result_dims,
    simplify,
)
from mlcc.ops.split_layouts import parse_layout
from mlcc.ops.topi import compute_ax
from mlcc.ops.window import (
    SPATIAL,
    clamp_to_zero,
    np_to_layout,
    require_positive,
    spatial_data,
    spatial_letters,
    spatial_positions,
    window_slices,
    zero,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def _infer_pool(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Infer the number of windows per spatial dimension; with `ceil_mode` a last partial one counts."""
        data = spatial_data(call, ndim, "layout")
        if data.extents is None:
            return data.result(None, data.data.dtype)
        require_positive(call, "pool_size", "strides", "dilation")
        result_extents = dict(data.extents)
        for at, letter in enumerate(data.space):
            result_extents[letter] = pool_extent(call, result_extents[letter], at, ndim)
        return data.result(result_extents, data.data.dtype)

    return infer


def pool_extent(call: relax.Call, extent: tir.Expr, at: int, ndim: int) -> tir.Expr:
    """The number of windows along one dimension. With `ceil_mode` no window begins in the trailing padding."""
    stride, pads = call.attrs["strides"][at], call.attrs["padding"]
    reach = call.attrs["dilation"][at] * (call.attrs["pool_size"][at] - 1) + 1
    free = construct.add(extent, int64(pads[at] + pads[at + ndim] - reach))
    if not call.attrs["ceil_mode"]:
        return clamp_to_zero(simplify(construct.add(construct.floordiv(free, int64(stride)), int64(1))))
    steps = simplify(construct.floordiv(construct.add(free, int64(stride - 1)), int64(stride)))
    begin = construct.mul(steps, int64(stride))
    limit = construct.add(extent, int64(pads[at]))
    beyond = construct.greater_equal(begin, limit)
    more = construct.add(steps, int64(1))
    if pads[at + ndim] + stride <= reach or prove(construct.less(begin, limit), extent_analyzer(call)):
        return clamp_to_zero(simplify(more))
    return clamp_to_zero(simplify(te.if_then_else(Scalar(beyond), Scalar(steps), Scalar(more)).expr))


def _infer_adaptive(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Infer the spatial extents that `output_size` requests."""
        data = spatial_data(call, ndim, "layout")
        if data.extents is None:
            return data.result(None, data.data.dtype)
        result_extents = dict(data.extents)
        for letter, extent in zip(data.space, call.attrs["output_size"] or (), strict=False):
            if extent <= 0:
                fail(call, "E0442", f"`output_size` must be positive, not {list(call.attrs['output_size'])}")
            result_extents[letter] = int64(extent)
        return data.result(result_extents, data.data.dtype)

    return infer


# ---------------------------------------------------------------- lowering


def _padded_data(call: relax.Call, x: te.Tensor, fill: te.Scalar) -> tuple[te.Tensor, list[int]]:
    """Return the padded data and the positions of its spatial dimensions."""
    layout = call.attrs["layout"]
    if call.attrs["out_layout"] != layout:
        fail(call, "E0442", "`out_layout` must equal `layout` to be lowered")
    spatial_axes = spatial_positions(layout)
    pads = call.attrs["padding"]
    extra = _extra(call, x, spatial_axes)
    if not any(pads) and not any(extra):
        return x, spatial_axes
    before, after = [0] * x.ndim, [0] * x.ndim
    for at, place in enumerate(spatial_axes):
        before[place] = pads[at]
        after[place] = pads[at + len(spatial_axes)] + extra[at]
    return pad(x, before, after, fill, "pad_temp", ax=True), spatial_axes


def _extra(call: relax.Call, x: te.Tensor, spatial_axes: Sequence[int]) -> list[int]:
    """Return how many elements `ceil_mode` may read past the end, per dimension."""
    return [call.attrs["strides"][at] - 1 if call.attrs["ceil_mode"] else 0 for at in range(len(spatial_axes))]


def _pool_axes(call: relax.Call, x: te.Tensor, spatial_axes: Sequence[int]) -> list[te.Axis]:
    return [te.reduce_axis((0, construct.const(n, x.buffer.shape[p].dtype)), f"rv{i}")
            for i, (n, p) in enumerate(zip(call.attrs["pool_size"], spatial_axes, strict=True))]  # fmt: skip


def _window_index(
    call: relax.Call, i: Sequence[Any], spatial_axes: Sequence[int], window: Sequence[te.Axis]
) -> list[Any]:
    at = list(i)
    for n, place in enumerate(spatial_axes):
        at[place] = i[place] * call.attrs["strides"][n] + window[n] * call.attrs["dilation"][n]
    return at


def _pool_compute(shape: Any, fn: Callable[..., Any], name: str, rule: str) -> te.Tensor:
    names = [f"ax{i}" for i in range(len(shape))]
    attrs = {"schedule_rule": f"meta_schedule.{rule}"}
    pooled: te.Tensor = te.compute(tuple(shape), fn, name=name, attrs=attrs, varargs_names=names)
    return pooled


def _windows_unsplit(call: relax.Call) -> bool:
    """Return True if windows move along unsplit axes only and the result has the layout of the data.

    Inner parts of split axes are then treated like the batch axis.
    """
    layout = call.attrs["layout"]
    unsplit = all(factor is None or letter not in SPATIAL for letter, factor in parse_layout(layout) or ())
    return unsplit and layout == call.attrs["out_layout"]


def _lower_max_pool(
    call: relax.Call, x: te.Tensor, reducer: Any = te.max, least: Callable[..., Any] = te.min_value
) -> te.Tensor:
    """Reduce each window to its maximum by `reducer`; `least` is its identity."""
    padded, spatial_axes = _padded_data(call, x, Scalar(to_expr(least(str(x.dtype)))))
    window = _pool_axes(call, x, spatial_axes)

    def element(*i: Any) -> Any:
        return reducer(padded(*_window_index(call, i, spatial_axes, window)), axis=window)

    return _pool_compute(result_dims(call), element, "pool_max", "pool_max")


def _lower_avg_pool(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """The sum over the window, divided by the number of elements that count."""
    padded, spatial_axes = _padded_data(call, x, zero(x.dtype))
    window = _pool_axes(call, x, spatial_axes)
    total = compute_ax(
        result_dims(call),
        lambda *i: te.sum(padded(*_window_index(call, i, spatial_axes, window)), axis=window),
        "pool_sum",
    )

    def element(*i: Any) -> Any:
        divisor = construct.const(1, x.buffer.shape[0].dtype)
        for n, place in enumerate(spatial_axes):
            divisor = construct.mul(
                divisor, averaged_count(call, to_expr(i[place]), x.buffer.shape[place], n, len(spatial_axes))
            )
        if not call.attrs["count_include_pad"]:
            divisor = construct.maximum(divisor, 1)
        return total(*i) / topi.convert_integer(divisor, x.dtype)

    return _pool_compute(result_dims(call), element, "pool_avg", "pool_avg")


def averaged_count(call: relax.Call, index: tir.Expr, extent: tir.Expr, at: int, ndim: int) -> tir.Expr:
    """Return the number of elements of a window that an average counts along one dimension."""
    stride, pads = call.attrs["strides"][at], call.attrs["padding"]
    dilation, size = call.attrs["dilation"][at], call.attrs["pool_size"][at]
    begin = construct.sub(construct.mul(index, stride), pads[at])
    end = construct.add(begin, (size - 1) * dilation)
    if call.attrs["count_include_pad"]:
        end = construct.minimum(end, construct.add(extent, pads[at + ndim] - 1))
    else:
        missing = construct.maximum(construct.negate(begin), 0)
        skipped = construct.floordiv(construct.add(missing, dilation - 1), dilation)
        begin = construct.add(begin, construct.mul(skipped, dilation))
        end = construct.minimum(end, construct.sub(extent, 1))
    return construct.add(construct.floordiv(construct.sub(end, begin), dilation), 1)


def _lower_adaptive(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """Average windows from floor(i * n / m) to ceil((i + 1) * n / m), for m results of n elements."""
    if call.attrs["out_layout"] != call.attrs["layout"]:
        fail(call, "E0442", "`out_layout` must equal `layout` to be lowered")
    dims = result_dims(call)
    spatial_axes = spatial_positions(call.attrs["layout"])

    def begin(i: Any, place: int) -> tir.Expr:
        return construct.floordiv(construct.mul(to_expr(i), x.buffer.shape[place]), dims[place])

    def size(i: Any, place: int) -> tir.Expr:
        extent, count = x.buffer.shape[place], dims[place]
        whole = simplify(construct.floormod(extent, count))
        if isinstance(whole, tir.IntImm) and whole.value == 0:
            return simplify(construct.floordiv(extent, count))
        reached = construct.mul(construct.add(to_expr(i), 1), extent)
        up = construct.floordiv(construct.sub(construct.add(reached, count), 1), count)
        return construct.sub(up, begin(i, place))

    def total(*i: Any) -> Any:
        window = [te.reduce_axis((0, Scalar(size(i[p], p))), f"rv{n}") for n, p in enumerate(spatial_axes)]
        at = list(i)
        for k, p in zip(window, spatial_axes, strict=True):
            at[p] = Scalar(construct.add(begin(i[p], p), k.expr))
        return te.sum(x(*at), axis=window)

    summed = compute_ax(dims, total, "adaptive_pool_sum")

    def element(*i: Any) -> Any:
        number = construct.const(1, x.buffer.shape[0].dtype)
        for p in spatial_axes:
            number = construct.mul(number, size(i[p], p))
        return summed(*i) / topi.convert_integer(number, x.dtype)

    return _pool_compute(dims, element, "adaptive_pool_avg", "adaptive_pool_avg")


# ---------------------------------------------------------------- NumPy


def _np_pool(ndim: int, largest: bool) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        space = spatial_letters(ndim)
        layout = call.attrs["layout"]
        x = np_to_layout(x, layout, "NC" + space)
        pads = call.attrs["padding"]
        out = [tir.const_int(pool_extent(call, int64(x.shape[2 + i]), i, ndim)) or 0 for i in range(ndim)]
        more = [(pads[i], pads[i + ndim] + call.attrs["strides"][i]) for i in range(ndim)]
        widths = [(0, 0), (0, 0), *more]
        lowest = np_identity(call, True)
        values = np.pad(x, widths, constant_values=lowest if largest else 0)
        inside = np.pad(np.ones(x.shape[2:]), more)
        if call.attrs["count_include_pad"]:
            inside = np.pad(np.ones([x.shape[2 + i] + pads[i] + pads[i + ndim] for i in range(ndim)]),
                            [(0, call.attrs["strides"][i]) for i in range(ndim)])  # fmt: skip
        total = np.full((*x.shape[:2], *out), lowest if largest else 0, x.dtype)
        number = np.zeros(out)
        for place in np.ndindex(*call.attrs["pool_size"]):
            at = window_slices(call, place, out)
            seen = values[(slice(None), slice(None), *at)]
            total = np.maximum(total, seen) if largest else total + seen
            number = number + inside[tuple(at)]
        pooled = total if largest else (total / np.maximum(number, 1)).astype(x.dtype)
        return np_to_layout(pooled, "NC" + space, call.attrs["out_layout"])

    return reference


def _np_adaptive(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        space = spatial_letters(ndim)
        x = np_to_layout(x, call.attrs["layout"], "NC" + space)
        sizes = call.attrs["output_size"] or x.shape[2:]
        means = np.zeros((*x.shape[:2], *sizes), x.dtype)
        for place in np.ndindex(*sizes):
            at = [
                slice(p * x.shape[2 + i] // sizes[i], -(-(p + 1) * x.shape[2 + i] // sizes[i]))
                for i, p in enumerate(place)
            ]
            seen = x[(slice(None), slice(None), *at)]
            means[(slice(None), slice(None), *place)] = np.mean(seen, axis=tuple(range(2, 2 + ndim)))
        return np_to_layout(means, "NC" + space, call.attrs["out_layout"])

    return reference


ATTR_ORDER = ("pool_size", "strides", "dilation", "padding", "ceil_mode", "count_include_pad", "layout", "out_layout")


def pool_parameters(n: int, include_pad: bool = False) -> str:
    """Return the parameter list that describes the windows of a pool over `n` spatial dimensions."""
    return (
        f"pool_size: ints{n} = 1, strides: ints{n} = 1, padding: pads{2 * n} = 0, dilation: ints{n} = 1, "
        f"ceil_mode: bool = False, count_include_pad: bool = {include_pad}, {_layouts(n)}"
    )


def _layouts(n: int) -> str:
    return f'layout: str = "NC{spatial_letters(n)}", out_layout: str? = layout'


def _entry(
    parameters: str, infer: Any, numpy: Any, lower: Any, kind: FusionKind, order: tuple[str, ...] | None = ATTR_ORDER,
    accurate: Any = None,
) -> Impl:  # fmt: skip
    return Impl(
        parameters, infer, numpy, lower, kind, precision=Precision.FOLLOW, layout=layout_rules.pool, attr_order=order,
        accurate=accurate,
    )  # fmt: skip


OPS: dict[str, Impl] = {
    f"nn.{name}_pool{n}d": blocked_impl(impl, *POOL_LAYOUTS, in_place=_windows_unsplit)
    for n in (1, 2, 3)
    for name, impl in (
        (
            "max",
            _entry(
                f"data, {pool_parameters(n)}",
                _infer_pool(n),
                _np_pool(n, True),
                _lower_max_pool,
                FusionKind.OUT_EWISE_FUSABLE,
                accurate=functools.partial(_lower_max_pool, reducer=MAX_REDUCER, least=lowest_value),
            ),
        ),
        (
            "avg",
            _entry(
                f"data, {pool_parameters(n, n != 2)}",
                _infer_pool(n),
                _np_pool(n, False),
                _lower_avg_pool,
                FusionKind.OUT_EWISE_FUSABLE,
            ),
        ),
        (
            "adaptive_avg",
            _entry(
                f"data, output_size: ints{n}? = None, {_layouts(n)}",
                _infer_adaptive(n),
                _np_adaptive(n),
                _lower_adaptive,
                FusionKind.OPAQUE,
                None,
            ),
        ),
    )
}
