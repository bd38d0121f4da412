"""Pooling over windows and global pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.frontend.onnx.helpers import iota_along, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.onnx.windows import Window, spatial_rank, window
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax
from mlcc.ir.dtypes import DType
from mlcc.ops.shapes import product


def _window(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> Window:
    spatial_rank(t, x)
    return window(t, node, x, node.attribute("kernel_shape", []))


def _pooled(t: OnnxTranslator, name: str, x: relax.Expr, geometry: Window, ceil: bool, count_pads: bool) -> relax.Expr:
    pool = getattr(t.op.nn, f"{name}_pool{geometry.spatial}d")
    return t.emit(pool(x, geometry.kernel, geometry.strides, geometry.pads, geometry.dilations, ceil, count_pads))


@converts("AveragePool")
def _average_pool(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    count_pads = bool(node.attribute("count_include_pad", 0))
    return _pooled(t, "avg", x, _window(t, node, x), bool(node.attribute("ceil_mode", 0)), count_pads)


@converts("LpPool")
def _lp_pool(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    geometry, ceil = _window(t, node, x), bool(node.attribute("ceil_mode", 0))
    if ceil:  # the sum of a truncated window must not be divided by its size
        raise Unsupported("`ceil_mode` of `LpPool` is not supported")
    return _norm(
        t,
        node,
        x,
        lambda v: t.op.multiply(
            _pooled(t, "avg", v, geometry, ceil, True), scalar_maker(t, x)(math.prod(geometry.kernel))
        ),
    )


def _norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, total: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Emit the p-norm over the elements that `total` sums up."""
    order = node.attribute("p", 2)
    scalar = scalar_maker(t, x)
    if order == 1:
        return total(t.emit(t.op.abs(x)))
    powers = t.op.multiply(x, x) if order == 2 else t.op.power(t.op.abs(x), scalar(order))
    summed = t.emit(total(t.emit(powers)))
    return t.op.sqrt(summed) if order == 2 else t.op.power(summed, scalar(1 / order))


@converts("GlobalAveragePool")
def _global_average(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.mean(x, list(range(2, t.ndim(x))), True)


@converts("GlobalMaxPool")
def _global_max(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.max(x, list(range(2, t.ndim(x))), True)


@converts("GlobalLpPool")
def _global_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return _norm(t, node, x, lambda v: t.op.sum(v, list(range(2, t.ndim(x))), True))


# ---------------------------------------------------------------- maxima and their indices


@converts("MaxPool")
def _max_pool(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> list[relax.Expr]:
    geometry, ceil = _window(t, node, x), bool(node.attribute("ceil_mode", 0))
    maxima = _pooled(t, "max", x, geometry, ceil, False)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return [maxima]
    return [maxima, _argmax_indices(t, x, maxima, geometry, bool(node.attribute("storage_order", 0)))]


def _argmax_indices(
    t: OnnxTranslator, x: relax.Expr, maxima: relax.Expr, geometry: Window, columns: bool
) -> relax.Expr:
    """Return the flat indices of the maxima, the first of equal ones in each window."""
    shape, rank = t.shape(maxima), t.ndim(x)
    wide = _pad_with_minimum(t, x, maxima, geometry)
    offsets = _kernel_offsets(geometry)
    seen = []
    for offset in offsets:
        begins = [o * d for o, d in zip(offset, geometry.dilations, strict=True)]
        spans = [construct.mul(construct.sub(n, 1), s) for n, s in zip(shape[2:], geometry.strides, strict=True)]
        ends = [t.simplify(construct.add(b, construct.add(span, 1))) for b, span in zip(begins, spans, strict=True)]
        part = t.op.strided_slice(wide, list(range(2, rank)), begins, ends, geometry.strides)
        seen.append(t.emit(part))
    chosen = t.emit(t.op.argmax(t.op.stack(seen, 0), 0, False))
    return _flat_indices(t, x, chosen, geometry, columns)


def _pad_with_minimum(t: OnnxTranslator, x: relax.Expr, maxima: relax.Expr, geometry: Window) -> relax.Expr:
    """Pad the operand with the least value of its dtype, as far as windows reach."""
    dtype = DType.of(t.dtype(x))
    least = float("-inf") if dtype.is_float else construct.min_value(dtype).value  # type: ignore[attr-defined]
    flat = [0, 0, 0, 0]
    for before, after, stride in zip(geometry.before, geometry.after, geometry.strides, strict=True):
        flat += [before, after + stride - 1]
    return t.emit(t.op.nn.pad(x, flat, "constant", least)) if any(flat) else x


def _kernel_offsets(geometry: Window) -> list[tuple[int, ...]]:
    """Return the kernel offsets in row-major order."""
    import itertools

    if math.prod(geometry.kernel) > 1024:
        raise Unsupported(f"indices of maxima in windows of {geometry.kernel} are not supported")
    return list(itertools.product(*(range(k) for k in geometry.kernel)))


def _flat_indices(t: OnnxTranslator, x: relax.Expr, chosen: relax.Expr, geometry: Window, columns: bool) -> relax.Expr:
    shape, given, rank = t.shape(chosen), t.shape(x), t.ndim(x)
    number = scalar_maker(t, chosen)
    order = range(geometry.spatial)
    flat: relax.Expr = number(0)
    rest = chosen
    places: dict[int, relax.Expr] = {}
    for at in reversed(order):
        step = t.op.multiply(t.op.floor_mod(rest, number(geometry.kernel[at])), number(geometry.dilations[at]))
        begin = t.op.multiply(iota_along(t, rank, 2 + at, shape[2 + at]), number(geometry.strides[at]))
        places[at] = t.emit(t.op.add(begin, t.op.subtract(step, number(geometry.before[at]))))
        rest = t.emit(t.op.floor_divide(rest, number(geometry.kernel[at])))
    size = product(given[2:])
    images = t.op.add(
        t.op.multiply(iota_along(t, rank, 0, shape[0]), t.integer_tensor([given[1]], "int64", ())),
        iota_along(t, rank, 1, shape[1]),
    )
    flat = t.emit(t.op.multiply(images, t.integer_tensor([size], "int64", ())))
    for at in order:
        beyond = list(order)[:at] if columns else list(order)[at + 1 :]
        stride = product([given[2 + i] for i in beyond])
        flat = t.emit(t.op.add(flat, t.op.multiply(places[at], t.integer_tensor([stride], "int64", ()))))
    return flat
