"""Padding, image resizing, and sampling grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.creation import as_constant
from mlcc.frontend.aten.converters.shapes import extent_expr, permute
from mlcc.frontend.aten.promotion import Value, as_tensor, is_float
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ops.relations import provably_equal
from mlcc.relax import op

# ---------------------------------------------------------------- padding


@converts("aten.pad")
def _pad(
    t: Translator, self: relax.Expr, pad: list[Dim], mode: str = "constant", value: Value | None = None
) -> relax.Expr:
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise Unsupported(f'mode="{mode}"')
    return pad_borders(t, self, pad, mode, 0 if value is None else value)


@converts("aten.constant_pad_nd")
def _constant_pad(t: Translator, self: relax.Expr, pad: list[Dim], value: Value = 0) -> relax.Expr:
    return pad_borders(t, self, pad, "constant", value)


@converts("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def _reflection_pad(t: Translator, self: relax.Expr, padding: list[Dim]) -> relax.Expr:
    return pad_borders(t, self, padding, "reflect", 0)


@converts("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def _replication_pad(t: Translator, self: relax.Expr, padding: list[Dim]) -> relax.Expr:
    return pad_borders(t, self, padding, "replicate", 0)


@converts("aten._pad_circular")
def _circular_pad(t: Translator, self: relax.Expr, pad: list[Dim]) -> relax.Expr:
    return pad_borders(t, self, pad, "circular", 0)


@converts("aten._pad_enum")
def _pad_enum(t: Translator, self: relax.Expr, pad: list[Dim], mode: int, value: Value | None = None) -> relax.Expr:
    return _pad(t, self, pad, ("constant", "reflect", "replicate", "circular")[mode], value)


def pad_borders(t: Translator, value: relax.Expr, pad: Sequence[Dim], mode: str, border: Value) -> relax.Expr:
    """Pad the last dimensions, the last one first in `pad`; negative widths crop."""
    if not all(isinstance(width, int) for width in pad):
        return _pad_by_concat(t, value, pad, mode, border)
    widths: list[int] = []
    for at in range(len(pad) - 2, -1, -2):
        widths += [int(pad[at]), int(pad[at + 1])]  # type: ignore[arg-type]
    widths = [0] * (2 * t.ndim(value) - len(widths)) + widths
    if mode == "constant" and isinstance(border, (int, float)) and math.isfinite(border):
        return op.nn.pad(value, widths, pad_value=float(border))
    if mode == "constant":
        return _pad_by_concat(t, value, pad, mode, border)
    cut = [min(width, 0) for width in widths]
    if any(cut):
        value = t.emit(op.nn.pad(value, cut))
    return op.nn.pad(value, [max(width, 0) for width in widths], pad_mode=mode)


def _pad_by_concat(t: Translator, value: relax.Expr, pad: Sequence[Dim], mode: str, border: Value) -> relax.Expr:
    """Pad by concatenation, for borders of symbolic width or with a value known at run time only."""
    if mode != "constant":
        raise Unsupported("padding of symbolic width is supported for constants only")
    dtype = t.dtype(value)
    for at in range(0, len(pad), 2):
        axis = t.ndim(value) - 1 - at // 2
        parts = []
        for width in pad[at : at + 2]:
            shape: list[Dim] = [*t.shape(value)]
            shape[axis] = width
            filled = op.full(t.shape_expr(shape), as_tensor(t, border, dtype), dtype)
            parts.append(None if width == 0 else t.emit(filled))
        value = t.emit(op.concat([x for x in (parts[0], value, parts[1]) if x is not None], axis))
    return value


# ---------------------------------------------------------------- resizing

_RESIZE: dict[int, Any] = {2: op.image.resize2d, 3: op.image.resize3d}
_ALPHA = -0.75  # of cubic interpolation


def _upsample(kind: str, n: int, corners: bool) -> Any:
    """Return the converter of an upsampling operator of `n` dimensions, in both of its forms."""

    def resize(t: Translator, value: relax.Expr, size: Any, factors: Any, align: bool) -> relax.Expr:
        target = [t.out_shape()[2 + at] for at in range(n)] if size is None else list(size)
        scales = list(factors) if factors is not None else [None] * n
        return _resize(t, value, target, scales, kind, align)

    def with_corners(
        t: Translator, input: relax.Expr | None = None, output_size: Any = None, align_corners: bool = False,
        scale_factors: Any = None, self: relax.Expr | None = None, **scales: float | None,
    ) -> relax.Expr:  # fmt: skip
        value = input if self is None else self
        assert value is not None
        return resize(t, value, output_size, scale_factors or _named_scales(scales, n), align_corners)

    def without(
        t: Translator, input: relax.Expr | None = None, output_size: Any = None, scale_factors: Any = None,
        self: relax.Expr | None = None, **scales: float | None,
    ) -> relax.Expr:  # fmt: skip
        value = input if self is None else self
        assert value is not None
        return resize(t, value, output_size, scale_factors or _named_scales(scales, n), False)

    return with_corners if corners else without


def _named_scales(scales: dict[str, float | None], n: int) -> list[float | None]:
    """Return `scales_d`, `scales_h`, `scales_w` in this order, or `scales` for one dimension."""
    unknown = set(scales) - {"scales", "scales_d", "scales_h", "scales_w"}
    if unknown:
        raise Unsupported(f"unknown arguments: {', '.join(sorted(unknown))}")
    names = ("scales",) if n == 1 else ("scales_d", "scales_h", "scales_w")[3 - n :]
    return [scales.get(name) for name in names]


for _kind, _n, _name, _corners in (
    ("nearest", 1, "nearest1d", False), ("nearest", 2, "nearest2d", False), ("nearest", 3, "nearest3d", False),
    ("linear", 1, "linear1d", True), ("linear", 2, "bilinear2d", True), ("linear", 3, "trilinear3d", True),
    ("cubic", 2, "bicubic2d", True), ("smooth", 2, "_bilinear2d_aa", True), ("smooth cubic", 2, "_bicubic2d_aa", True),
):  # fmt: skip
    _prefix = "aten._upsample" if _name.startswith("_") else "aten.upsample_"
    converts(f"{_prefix}{_name}")(_upsample(_kind, _n, _corners))
for _n in (1, 2, 3):
    converts(f"aten._upsample_nearest_exact{_n}d")(_upsample("exact", _n, False))


def _resize(
    t: Translator, value: relax.Expr, target: Sequence[Dim], scales: Sequence[float | None], kind: str, align: bool
) -> relax.Expr:
    n = len(target)
    extents = t.shape(value)[2:]
    if n in _RESIZE and all(map(_fits_resize_operator, extents, target, scales, [kind] * n)):
        mode = "align_corners" if align else "asymmetric" if kind == "nearest" else "half_pixel"
        return _RESIZE[n](
            value, t.shape_expr(target), method={"nearest": "nearest_neighbor"}.get(kind, kind),
            coordinate_transformation_mode=mode, rounding_method="floor" if kind == "nearest" else "",
            cubic_alpha=_ALPHA,
        )  # fmt: skip
    for at in range(n):
        if not (provably_equal(extent_expr(target[at]), extents[at]) and (scales[at] in (None, 1) or align)):
            value = _resize_axis(t, value, 2 + at, target[at], scales[at], kind, align)
    return value


def _fits_resize_operator(extent: tir.Expr, target: Dim, scale: float | None, kind: str) -> bool:
    """Return True if `R.image.resize2d`, which takes sizes but no scale factors, samples at PyTorch's coordinates."""
    before, after = tir.const_int(extent), tir.const_int(extent_expr(target))
    whole = before is not None and after is not None and before > 0 and after % before == 0
    if kind == "nearest" and before is not None and after is not None:
        return whole and scale in (None, after // before)
    if kind not in ("linear", "cubic", "nearest"):
        return False
    if scale is None:
        return kind != "nearest"
    if before is not None and after is not None:
        return before * scale == after
    return float(scale).is_integer() and provably_equal(
        extent_expr(target), construct.mul(extent, construct.const(int(scale), "int64"))
    )


def _resize_axis(
    t: Translator, value: relax.Expr, axis: int, target: Dim, scale: float | None, kind: str, align: bool
) -> relax.Expr:
    """Resize one dimension: each output element is a weighted sum of a few input elements (taps)."""
    before, after = tir.const_int(t.shape(value)[axis]), tir.const_int(extent_expr(target))
    if before is None or after is None:
        raise Unsupported(f"interpolation ({kind}) of a symbolic size with these factors is not supported")
    places, weights = _taps(before, after, scale, kind, align)
    dtype = t.dtype(value)
    if weights is None:
        return t.emit(op.take(value, t.constant(places[:, 0]), axis))
    rank = t.ndim(value)
    wide = dtype if is_float(dtype) else "float32"
    total: relax.Expr | None = None
    for tap in range(places.shape[1]):
        factor = as_constant(t, weights[:, tap].reshape([-1, *[1] * (rank - axis - 1)]), wide)
        taken = t.cast(t.emit(op.take(value, t.constant(places[:, tap]), axis)), wide)
        part = t.emit(op.multiply(taken, factor))
        total = part if total is None else t.emit(op.add(total, part))
    assert total is not None
    return total if wide == dtype else t.cast(t.emit(op.round(total)), dtype)


def _taps(before: int, after: int, scale: float | None, kind: str, align: bool) -> tuple[Any, Any]:
    """Return the source indices and interpolation weights of each output position; no weights (None) for one tap."""
    import numpy as np

    single = np.float32
    i = np.arange(after).astype(single)
    if align:
        ratio = single(before - 1) / single(after - 1) if after > 1 else single(0)
    else:
        ratio = single(1 / scale) if scale else single(before) / single(after)
    if kind in ("nearest", "exact"):
        at = np.floor((i + single(0.5)) * ratio if kind == "exact" else i * ratio)
        return np.minimum(at.astype("int64"), before - 1)[:, None], None
    if kind.startswith("smooth"):
        return _antialiased_taps(before, after, float(ratio), kind == "smooth cubic")
    at = i * ratio if align else (i + single(0.5)) * ratio - single(0.5)
    if kind == "linear":
        at = np.maximum(at, single(0))
    low = np.floor(at)
    rest = (at - low).astype(single)
    offsets = np.array([0, 1] if kind == "linear" else [-1, 0, 1, 2])
    places = np.clip(low[:, None].astype("int64") + offsets, 0, before - 1)
    if kind == "linear":
        return places, np.stack([1 - rest, rest], 1)
    return places, np.stack([_cubic(np.abs(rest - offset), _ALPHA) for offset in offsets], 1)


def _cubic(x: Any, a: float) -> Any:
    """The cubic convolution kernel (Keys 1981)."""
    import numpy as np

    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _antialiased_taps(before: int, after: int, ratio: float, cubic: bool) -> tuple[Any, Any]:
    """Taps of an antialiased resize: a kernel as wide as the input range of an output pixel."""
    import numpy as np

    stretch = max(ratio, 1.0)
    support = (2 if cubic else 1) * stretch
    centres = ratio * (np.arange(after) + 0.5)
    begins = np.maximum((centres - support + 0.5).astype("int64"), 0)
    ends = np.minimum((centres + support + 0.5).astype("int64"), before)
    taps = int((ends - begins).max(initial=1))
    places = begins[:, None] + np.arange(taps)
    x = np.abs((places - centres[:, None] + 0.5) / stretch)
    weights = _cubic(x, -0.5) if cubic else np.maximum(1 - x, 0)
    weights = np.where(places < ends[:, None], weights, 0)
    return np.minimum(places, before - 1), weights / weights.sum(1, keepdims=True)


# ---------------------------------------------------------------- grids

_METHODS = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")


@converts("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def _grid_sampler(
    t: Translator, input: relax.Expr, grid: relax.Expr, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> relax.Expr:
    n = t.ndim(input) - 2
    places = permute(t, grid, [0, n + 1, *range(1, n + 1)])
    return op.image.grid_sample(
        input, places, method=_METHODS[interpolation_mode], layout="NCHW" if n == 2 else "NCDHW",
        padding_mode=_BORDERS[padding_mode], align_corners=align_corners,
    )  # fmt: skip


@converts("aten.affine_grid_generator")
def _affine_grid(t: Translator, theta: relax.Expr, size: Sequence[Dim], align_corners: bool) -> relax.Expr:
    """Map coordinates from -1 to 1 (of the corners, or of the outermost pixels' edges) by the affine map."""
    dtype = t.dtype(theta)
    space = list(size)[2:]
    n = len(space)
    columns = []
    for at in range(n - 1, -1, -1):
        line = _normalized_coordinates(t, space[at], align_corners, dtype)
        shape: list[Dim] = [1] * n
        shape[at] = space[at]
        columns.append(t.emit(op.broadcast_to(t.reshape(line, shape), t.shape_expr(space))))
    columns.append(t.full(space, 1, dtype))
    base = t.emit(op.stack(columns, n))
    flat = t.reshape(base, [math.prod(space) if all(isinstance(e, int) for e in space) else _area(space), n + 1])  # type: ignore[arg-type]
    grid = t.emit(op.matmul(flat, op.permute_dims(theta, [0, 2, 1])))
    return t.reshape(grid, t.out_shape())


def _area(space: Sequence[Dim]) -> Dim:
    from mlcc.frontend.aten.converters.shapes import total_size

    return total_size(space)


def _normalized_coordinates(t: Translator, extent: Dim, corners: bool, dtype: str) -> relax.Expr:
    size = tir.const_int(extent_expr(extent))
    if size is None:
        raise Unsupported("a grid of symbolic size is not supported")
    import numpy as np

    if size < 2:
        return t.full([size], 0, dtype)
    line = np.linspace(-1, 1, size)
    return as_constant(t, line if corners else line * (size - 1) / size, dtype)
