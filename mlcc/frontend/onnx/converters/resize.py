"""Converters of `Resize` and `Upsample`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.dynamic_axes import element
from mlcc.frontend.onnx.dynamic_resize import DynamicResizedAxis
from mlcc.frontend.onnx.helpers import is_float, one_of, scalar_maker, swap_axes
from mlcc.frontend.onnx.interpolation import (
    CROP,
    ResizeAttributes,
    ResizedAxis,
    interpolation_matrix,
    nearest_indices,
    out_of_bounds,
)
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType

MODES = ("nearest", "linear", "cubic")
METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
POLICIES = {"stretch": None, "not_larger": min, "not_smaller": max}


@converts("Upsample", since=7)
def _upsample_of_attribute(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return _upsample(t, node, x, [float(s) for s in node.attribute("scales")])


@converts("Upsample", since=9)
@converts("Resize", since=10)
def _upsample_of_input(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scales: relax.Expr) -> relax.Expr:
    if t.constant_array(scales) is None:
        return _dynamic_resize(t, x, _upsampling(node), list(range(t.ndim(x))), None, scales, None)
    return _upsample(t, node, x, [float(s) for s in t.array(scales)])


def _upsampling(node: OnnxNode) -> ResizeAttributes:
    mode = {"bilinear": "linear"}.get(node.attribute("mode", "nearest"), node.attribute("mode", "nearest"))
    return ResizeAttributes(one_of(mode, MODES[:2], "mode"), "asymmetric", "floor", -0.75, False, False, 0.0)


def _upsample(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scales: Sequence[float]) -> relax.Expr:
    how = _upsampling(node)
    targets = [_scaled_extent(d, s) for d, s in zip(t.shape(x), scales, strict=True)]
    return resize(t, x, how, list(range(t.ndim(x))), targets, scales, ())


@converts("Resize", since=11)
def _resize(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    roi: relax.Expr | None = None,
    scales: relax.Expr | None = None,
    sizes: relax.Expr | None = None,
) -> relax.Expr:
    how = ResizeAttributes(
        one_of(node.attribute("mode", "nearest"), MODES, "mode"),
        node.attribute("coordinate_transformation_mode", "half_pixel"),
        node.attribute("nearest_mode", "round_prefer_floor"),
        node.attribute("cubic_coeff_a", -0.75),
        bool(node.attribute("exclude_outside", 0)),
        bool(node.attribute("antialias", 0)),
        node.attribute("extrapolation_value", 0.0),
    )
    axes = [t.axis(x, a) for a in node.attribute("axes", range(t.ndim(x)))]
    if any(_is_data(t, value) for value in (scales, sizes, roi if how.coordinates == CROP else None)):
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        return _dynamic_resize(t, x, how, axes, roi, scales, sizes, policy)
    cut = [float(v) for v in t.array(roi)] if roi is not None and how.coordinates == CROP else ()
    if _is_given(t, scales):
        assert scales is not None
        factors = [float(v) for v in t.array(scales)]
        targets = [_scaled_extent(t.shape(x)[a], s) for a, s in zip(axes, factors, strict=True)]
        return resize(t, x, how, axes, targets, factors, cut)
    if not _is_given(t, sizes):
        raise Unsupported("scales or sizes must be given")
    assert sizes is not None
    policy = one_of(node.attribute("keep_aspect_ratio_policy", "stretch"), list(POLICIES), "keep_aspect_ratio_policy")
    return resize(t, x, how, axes, *_target_extents(t, x, axes, t.integers(sizes), policy), cut)


def _is_given(t: OnnxTranslator, value: relax.Expr | None) -> bool:
    """Return True if an input is present and not empty; up to opset 12 an omitted input may be an empty tensor."""
    return value is not None and tir.const_int(t.shape(value)[0]) != 0


def _is_data(t: OnnxTranslator, value: relax.Expr | None) -> bool:
    """Return True if an input is present and known at run time only."""
    return (
        value is not None
        and _is_given(t, value)
        and t.known_integers(value) is None
        and t.constant_array(value) is None
    )


def _dynamic_resize(
    t: OnnxTranslator, x: relax.Expr, how: ResizeAttributes, axes: Sequence[int], roi: relax.Expr | None,
    scales: relax.Expr | None, sizes: relax.Expr | None, policy: str = "stretch",
) -> relax.Expr:  # fmt: skip
    """Resize a tensor by scales or sizes known at run time only."""
    old = t.cast(t.integer_tensor([t.shape(x)[a] for a in axes], "int64"), "float64")
    if _is_given(t, scales):
        assert scales is not None
        factors = t.cast(scales, "float64")
        wanted = t.op.floor(t.op.add(t.op.multiply(old, factors), t.scalar(1e-6, "float64")))
    elif _is_given(t, sizes):
        assert sizes is not None
        wanted = t.cast(sizes, "float64")
        factors = t.emit(t.op.divide(wanted, old))
        if one_of(policy, list(POLICIES), "keep_aspect_ratio_policy") != "stretch":
            one = (t.op.min if policy == "not_larger" else t.op.max)(factors, [0], True)
            factors = t.emit(t.op.broadcast_to(one, t.shape_expr([len(axes)])))
            wanted = t.op.floor(t.op.add(t.op.multiply(old, factors), t.scalar(0.5, "float64")))
    else:
        raise Unsupported("scales or sizes must be given")
    extents = t.extents(t.emit(t.op.astype(wanted, "int64")))
    if len(extents) != len(axes):
        raise Unsupported(f"{len(extents)} scales or sizes do not fit {len(axes)} axes")
    cut = None if roi is None or how.coordinates != CROP else t.cast(roi, "float64")
    dtype = DType.of(t.dtype(x))
    pixels = x if how.mode == "nearest" else t.cast(x, _interpolation_dtype(dtype))
    for i, axis in enumerate(axes):
        span = [
            element(t, cut, at) if cut is not None else t.scalar(float(at > i), "float64") for at in (i, i + len(axes))
        ]
        part = DynamicResizedAxis(t, axis, t.shape(x)[axis], extents[i], element(t, factors, i), *span)
        pixels = part.resized(pixels, how)
    return pixels if how.mode == "nearest" else _cast_back(t, pixels, dtype)


def _interpolation_dtype(dtype: DType) -> str:
    """Return the dtype in which pixels of a dtype are interpolated."""
    return "float64" if dtype.bytes > 4 or dtype.is_int and dtype.bytes == 4 else "float32"


def _scaled_extent(extent: Dim, scale: float) -> Dim:
    """floor(extent * scale)"""
    number = extent if isinstance(extent, int) else tir.const_int(extent)
    if number is not None:
        return math.floor(number * scale + 1e-6)
    whole = round(scale) if scale >= 1 else round(1 / scale)
    if abs((scale if scale >= 1 else 1 / scale) - whole) > 1e-6:
        raise Unsupported(f"the symbolic extent `{extent}` is scaled by {scale}, which is not an integer: give sizes")
    if whole == 1:
        return extent
    if scale < 1:
        raise Unsupported(f"the symbolic extent `{extent}` may not be a multiple of {whole}: give sizes")
    return construct.mul(extent, whole)


def _target_extents(
    t: OnnxTranslator, x: relax.Expr, axes: Sequence[int], sizes: Sequence[Dim], policy: str
) -> tuple[list[Dim], list[float | None]]:
    """Return the extents of the result and their scales; None for a symbolic scale, the ratio of the extents."""
    before = [tir.const_int(t.shape(x)[a]) for a in axes]
    after = [s if isinstance(s, int) else tir.const_int(s) for s in sizes]
    scales = [None if b is None or s is None else s / b for b, s in zip(before, after, strict=True)]
    pick = POLICIES[policy]
    if pick is None:
        return list(sizes), list(scales)
    known = [s for s in scales if s is not None]
    if len(known) != len(scales):
        raise Unsupported(f'`keep_aspect_ratio_policy="{policy}"` needs constant extents')
    scale = pick(known)
    return [math.floor(scale * b + 0.5) for b in before if b is not None], [scale] * len(scales)


def resize(
    t: OnnxTranslator,
    x: relax.Expr,
    how: ResizeAttributes,
    axes: Sequence[int],
    targets: Sequence[Dim],
    scales: Sequence[float | None],
    roi: Sequence[float],
) -> relax.Expr:
    """Resize these axes of a tensor."""
    shape = list(t.shape(x))
    for axis, target in zip(axes, targets, strict=True):
        shape[axis] = target if isinstance(target, tir.Expr) else construct.const(target, "int64")
    parts = []
    for i, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        span = (roi[i], roi[len(axes) + i]) if roi else (0.0, 1.0)
        before, after = tir.const_int(t.shape(x)[axis]), tir.const_int(shape[axis])
        if before is None or after is None:
            return _resize_operator(t, x, how, shape, (0.0, 1.0) if not roi else None)
        parts.append(ResizedAxis(axis, before, after, after / before if scale is None else scale, *span))
    parts = [part for part in parts if not part.is_identity(how)]
    if not parts:
        return x
    if all(p.after for p in parts) and _fits_resize_operator(t, x, how, parts) or _repeats_pixels(t, how, parts):
        plain = how if how.mode != "nearest" else replace(how, coordinates="asymmetric", nearest="floor")
        space = _spatial(t, x, [p.axis for p in parts])
        if space is not None:
            return _resize_operator(t, x, plain, shape, (0.0, 1.0))
    return _resize_nearest(t, x, how, parts) if how.mode == "nearest" else _resize_interpolated(t, x, how, parts)


def _fits_resize_operator(
    t: OnnxTranslator, x: relax.Expr, how: ResizeAttributes, parts: Sequence[ResizedAxis]
) -> bool:
    """Return True if relax's resize operator computes the same interpolation."""
    plain = how.coordinates not in (CROP, "half_pixel_symmetric") and not how.antialias
    return (
        plain and how.mode != "nearest" and not how.exclude_outside and is_float(t, x) and all(p.exact for p in parts)
    )


def _repeats_pixels(t: OnnxTranslator, how: ResizeAttributes, parts: Sequence[ResizedAxis]) -> bool:
    """Return True if nearest resizing repeats each pixel an integral number of times."""
    import numpy as np

    def whole(part: ResizedAxis) -> bool:
        if part.before == 0 or part.after == 0 or part.after % part.before:
            return False
        return bool(np.all(nearest_indices(how, part) == np.arange(part.after) // (part.after // part.before)))

    return how.mode == "nearest" and how.coordinates != CROP and all(whole(p) for p in parts)


def _spatial(t: OnnxTranslator, x: relax.Expr, axes: Sequence[int]) -> int | None:
    """Return the number of spatial axes if relax's resize operators cover these axes, else None."""
    rank = t.ndim(x)
    return rank - 2 if 3 <= rank <= 5 and min(axes) >= 2 else None


def _resize_operator(
    t: OnnxTranslator, x: relax.Expr, how: ResizeAttributes, shape: Sequence[Dim], span: tuple[float, float] | None
) -> relax.Expr:
    """Emit `R.image.resize2d` or `R.image.resize3d`."""
    from mlcc.ops.relations import SubtypeCheck, check_subtype
    from mlcc.ops.values import tensor_info

    old = t.shape(x)
    changed = [
        i
        for i in range(len(old))
        if check_subtype(tensor_info([shape[i]], "bool"), tensor_info([old[i]], "bool")) is not SubtypeCheck.COVERS
    ]
    if not changed:
        return x
    space = _spatial(t, x, changed)
    coordinates = {"half_pixel_symmetric": "half_pixel"}.get(how.coordinates, how.coordinates)
    if space is None or how.antialias or span is None:
        raise Unsupported(
            f"`{how.mode}` resizing is not supported if symbolic, antialiased, cropped or not of the last axes"
        )
    options = {
        "method": METHODS[how.mode],
        "coordinate_transformation_mode": coordinates,
        "rounding_method": how.nearest if how.mode == "nearest" else "",
        "cubic_alpha": how.alpha,
        "cubic_exclude": int(how.exclude_outside),
    }
    if space == 3:
        return t.op.image.resize3d(x, t.shape_expr(shape[2:]), **options)
    if space == 2:
        return t.op.image.resize2d(x, t.shape_expr(shape[2:]), **options)
    rows = t.op.expand_dims(x, [2])
    return t.op.squeeze(t.op.image.resize2d(rows, t.shape_expr([1, shape[2]]), **options), [2])


def _resize_nearest(
    t: OnnxTranslator, x: relax.Expr, how: ResizeAttributes, parts: Sequence[ResizedAxis]
) -> relax.Expr:
    """Gather the nearest pixels."""
    for part in parts:
        gathered = t.op.take(x, t.constant(nearest_indices(how, part)), part.axis)
        x = _fill_extrapolated(t, t.emit(gathered), how, part)
    return x


def _resize_interpolated(
    t: OnnxTranslator, x: relax.Expr, how: ResizeAttributes, parts: Sequence[ResizedAxis]
) -> relax.Expr:
    """Interpolate by products with weight matrices."""
    dtype = DType.of(t.dtype(x))
    wide = _interpolation_dtype(dtype)
    pixels, last = t.cast(x, wide), t.ndim(x) - 1
    for part in parts:
        matrix = t.constant(interpolation_matrix(how, part).T.astype(wide))
        rows = pixels if part.axis == last else swap_axes(t, pixels, part.axis, last)
        mixed = t.emit(t.op.matmul(rows, matrix))
        pixels = mixed if part.axis == last else swap_axes(t, mixed, part.axis, last)
        pixels = _fill_extrapolated(t, pixels, how, part)
    return _cast_back(t, pixels, dtype)


def _cast_back(t: OnnxTranslator, value: relax.Expr, dtype: DType) -> relax.Expr:
    """Cast back to the dtype of the data; integers are rounded and clipped."""
    if dtype.is_int:
        low = 0 if dtype.is_uint else -(2 ** (dtype.bits - 1))
        high = 2 ** (dtype.bits - (not dtype.is_uint)) - 1
        value = t.emit(t.op.clip(t.op.round(value), low, high))
    return t.cast(value, dtype)


def _fill_extrapolated(t: OnnxTranslator, value: relax.Expr, how: ResizeAttributes, part: ResizedAxis) -> relax.Expr:
    """Replace positions outside the data by the extrapolation value."""
    if how.coordinates != CROP:
        return value
    mask = out_of_bounds(how, part)
    if not mask.any():
        return value
    shape = [part.after if i == part.axis else 1 for i in range(t.ndim(value))]
    return t.emit(t.op.where(t.constant(mask.reshape(shape)), scalar_maker(t, value)(how.extrapolation_value), value))
