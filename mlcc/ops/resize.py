"""Resizing of images and volumes: nearest neighbour, linear, cubic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops import layout_rules
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import Tensor, fail, result_dims, shape_argument, shape_text
from mlcc.ops.window import np_to_layout, spatial_data, spatial_letters
from mlcc.te.scalar import Scalar, to_expr

METHODS = ("nearest_neighbor", "linear", "cubic")
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
CROP = "tf_crop_and_resize"

# ---------------------------------------------------------------- inference


def _infer_resize(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Infer the data's batch and channels with the spatial extents `size`."""
        data, size = spatial_data(call, ndim, "layout", "layout"), shape_argument(call, 1)
        if size.ndim != ndim:
            fail(call, "E0445", f"the size needs {ndim} extents, it has {size.ndim}")
        for name, known in (("coordinate_transformation_mode", MODES), ("rounding_method", ROUNDINGS)):
            if call.attrs[name] not in known:
                fail(call, "E0442", f'`{name}="{call.attrs[name]}"` is not known', _possible_text(known))
        if call.attrs["method"].lower() not in METHODS:
            fail(call, "E0442", f'`method="{call.attrs["method"]}"` is not known', _possible_text(METHODS))
        wanted = call.attrs["out_dtype"]
        dtype = data.data.dtype if wanted is None else DType.of(wanted)
        if data.extents is None or size.values is None:
            return data.result(None, dtype)
        extents = data.extents | dict(zip(data.space, size.values, strict=True))
        empty = [c for c in data.space if tir.const_int(data.extents[c]) == 0 and tir.const_int(extents[c]) != 0]
        if empty:
            fail(call, "E0445", f"{shape_text(data.data.dims)} has no pixels to interpolate")
        return data.result(extents, dtype)

    return infer


def _possible_text(names: Sequence[str]) -> str:
    return "possible values are " + ", ".join(f'"{n}"' for n in names)


@dataclass(frozen=True)
class ResizeAttrs:
    """The attributes of a resize call: method, coordinate transformation, rounding, region of interest."""

    method: str
    mode: str
    rounding: str
    alpha: float
    exclude: bool
    roi: tuple[tuple[float, float], ...]  # start and end of each dimension, as fractions of the extent
    extrapolation_value: float

    @staticmethod
    def of(call: relax.Call, ndim: int) -> ResizeAttrs:
        get = call.attrs.__getitem__
        roi = [float(getattr(v, "value", v)) for v in get("roi")]
        mode, rounding = get("coordinate_transformation_mode"), get("rounding_method")
        if rounding == "":
            rounding = "round" if mode == "align_corners" else "floor"
        spans = tuple(zip(roi[:ndim], roi[ndim:], strict=True))
        return ResizeAttrs(
            get("method").lower(), mode, rounding, get("cubic_alpha"), bool(get("cubic_exclude")), spans,
            get("extrapolation_value"),
        )  # fmt: skip


# ---------------------------------------------------------------- lowering: coordinates


def _float(value: tir.Expr) -> Scalar:
    return Scalar(construct.cast("float32", value))


def _whole_ratio(attrs: ResizeAttrs, extent: tir.Expr, target: tir.Expr) -> bool:
    """Return True if each pixel is repeated a whole number of times, so that integer arithmetic suffices."""
    if attrs.method != "nearest_neighbor" or attrs.mode != "asymmetric" or attrs.rounding != "floor":
        return False
    n, m = tir.const_int(extent), tir.const_int(target)
    return n is not None and m is not None and n > 0 and m % n == 0 and m / n <= 1 / (1e-5 * n + 1e-5)


def _coordinate(attrs: ResizeAttrs, x: Scalar, extent: tir.Expr, target: tir.Expr, span: tuple[float, float]) -> Any:
    """Return the float32 coordinate in the data of position `x` in the result."""
    ratio = _float(extent) / _float(target)
    several = Scalar(construct.greater(target, 1))
    steps = target if not isinstance(target, tir.IntImm) else construct.const(max(target.value - 1, 1), target.dtype)
    if steps is target:
        steps = construct.maximum(construct.sub(target, 1), 1)
    last = construct.sub(extent, 1)
    half = (x + 0.5) * ratio
    match attrs.mode:
        case "half_pixel":
            return half - 0.5
        case "align_corners":
            return _float(last) / Scalar(steps) * x
        case "asymmetric":
            return ratio * x
        case "pytorch_half_pixel":
            return te.if_then_else(several, half - 0.5, 0.0)
        case "tf_half_pixel_for_nn":
            return half
    begin, end = (te.const(v, "float32") for v in span)
    along = begin * Scalar(last) + x * (end - begin) * _float(last) / Scalar(steps)
    return te.if_then_else(several, along, (begin + end) * 0.5 * Scalar(last))


def _round_coordinate(attrs: ResizeAttrs, at: Scalar) -> Scalar:
    match attrs.rounding:
        case "round":
            place = te.round(at)
        case "round_prefer_floor":
            place = te.ceil(at - 0.5)
        case "round_prefer_ceil":
            place = te.floor(at + 0.5)
        case "floor":
            place = te.floor(at + 1e-5)
        case _:
            place = te.ceil(at - 1e-5)
    return place.astype("int32")


# ---------------------------------------------------------------- lowering: taps


def _cubic_weights(t: Any, alpha: float) -> list[Any]:
    t2, t3 = t * t, t * t * t
    return [
        alpha * (t3 - 2 * t2 + t), (alpha + 2) * t3 - (3 + alpha) * t2 + 1,
        -(alpha + 2) * t3 + (3 + 2 * alpha) * t2 - alpha * t, -alpha * t3 + alpha * t2,
    ]  # fmt: skip


def _cubic_taps(attrs: ResizeAttrs, at: Scalar, extent: tir.Expr) -> list[tuple[Scalar, Any]]:
    """Return the four positions around `at` with their cubic weights."""
    first = te.floor(at).astype("int32")
    weights = _cubic_weights(at - te.floor(at), attrs.alpha)
    if attrs.exclude:
        for i in range(4):
            off = te.any(first - 1 + i < 0, first + i > Scalar(extent))
            weights[i] = te.if_then_else(off, 0.0, weights[i])
        total = sum(weights)
        weights = [w / total for w in weights]
    return [(first + i - 1, weights[i]) for i in range(4)]


def _interpolate(
    attrs: ResizeAttrs, coordinates: Sequence[Scalar], extents: Sequence[tir.Expr], pixel: Callable[..., Any]
) -> Any:
    """Interpolate between pixels, one dimension after the other."""
    if not coordinates:
        return pixel()
    at, extent = coordinates[0], extents[0]

    def rest(place: Scalar) -> Any:
        return _interpolate(attrs, coordinates[1:], extents[1:], lambda *others: pixel(place, *others))

    if attrs.method == "linear":
        first = te.floor(at).astype("int32")
        fraction = at - first
        return rest(first) * (1.0 - fraction) + rest(first + 1) * fraction
    return sum(rest(place) * weight for place, weight in _cubic_taps(attrs, at, extent))


def _lower(ndim: int) -> Callable[..., te.Tensor]:
    def lowering(call: relax.Call, x: te.Tensor, size: Sequence[tir.Expr]) -> te.Tensor:
        attrs, layout = ResizeAttrs.of(call, ndim), call.attrs["layout"]
        where = [layout.index(c) for c in spatial_letters(ndim)]
        extents = [x.buffer.shape[p] for p in where]
        wide = _interpolation_dtype(attrs, x.dtype)
        assert isinstance(call.struct_info, relax.TensorStructInfo) and call.struct_info.dtype is not None
        dtype = call.struct_info.dtype

        def element(*i: Any) -> Any:
            def pixel(*places: Scalar) -> Any:
                at = list(i)
                for p, place, extent in zip(where, places, extents, strict=True):
                    bound = construct.minimum(to_expr(place), construct.sub(extent, 1))
                    at[p] = Scalar(construct.maximum(bound, 0))
                value = x(*at)
                return value if wide is None else value.astype(wide)

            coordinates = []
            for p, extent, target, span in zip(where, extents, size, attrs.roi, strict=True):
                if _whole_ratio(attrs, extent, target):
                    coordinates.append(te.truncdiv(i[p], te.truncdiv(Scalar(target), Scalar(extent))))
                else:
                    coordinates.append(
                        _coordinate(attrs, i[p].var if isinstance(i[p], te.Axis) else i[p], extent, target, span)
                    )
            if attrs.method == "nearest_neighbor":
                value = pixel(*(_round_coordinate(attrs, a) if a.dtype.is_float else a for a in coordinates))
            else:
                value = _interpolate(attrs, coordinates, extents, pixel)
            if attrs.mode == CROP:
                for at, extent in zip(coordinates, extents, strict=True):
                    beyond = te.if_then_else(at > Scalar(construct.sub(extent, 1)), attrs.extrapolation_value, value)
                    value = te.if_then_else(at < 0, attrs.extrapolation_value, beyond)
            return value.astype(dtype)

        resized: te.Tensor = te.compute(result_dims(call), element, name="resize")
        return resized

    return lowering


def _interpolation_dtype(attrs: ResizeAttrs, dtype: DType) -> str | None:
    """The dtype to interpolate in; None if pixels are only copied."""
    if attrs.method == "nearest_neighbor" and attrs.mode != CROP and not str(dtype).endswith("float16"):
        return None
    return "float64" if str(dtype) == "float64" else "float32"


# ---------------------------------------------------------------- NumPy


def _np_coordinates(attrs: ResizeAttrs, n: int, m: int, span: tuple[float, float]) -> Any:
    """The source coordinates of all positions along a dimension."""
    f = np.float32
    x, ratio, steps = np.arange(m, dtype=f), f(n) / f(max(m, 1)), f(max(m - 1, 1))
    half = (x + f(0.5)) * ratio
    if attrs.mode == CROP:
        begin, end = f(span[0]), f(span[1])
        along = begin * f(n - 1) + x * (end - begin) * f(n - 1) / steps
        return along if m > 1 else np.full(m, (begin + end) * f(0.5) * f(n - 1), f)
    if attrs.mode == "pytorch_half_pixel" and m <= 1:
        return np.zeros(m, f)
    return {
        "half_pixel": half - f(0.5),
        "align_corners": f(n - 1) / steps * x,
        "asymmetric": ratio * x,
        "pytorch_half_pixel": half - f(0.5),
        "tf_half_pixel_for_nn": half,
    }[attrs.mode]


def _np_taps(attrs: ResizeAttrs, at: Any, n: int) -> list[tuple[Any, Any]]:
    """Return pairs of source positions and weights along a dimension."""
    f = np.float32
    if attrs.method == "nearest_neighbor":
        place = {
            "round": lambda: np.round(at),
            "round_prefer_floor": lambda: np.ceil(at - f(0.5)),
            "round_prefer_ceil": lambda: np.floor(at + f(0.5)),
            "floor": lambda: np.floor(at + f(1e-5)),
            "ceil": lambda: np.ceil(at - f(1e-5)),
        }[attrs.rounding]()
        return [(place, None)]
    first = np.floor(at)
    fraction = at - first
    if attrs.method == "linear":
        return [(first, 1 - fraction), (first + 1, fraction)]
    weights = [np.asarray(w, f) for w in _cubic_weights(fraction, attrs.alpha)]
    places = [first + i - 1 for i in range(4)]
    if attrs.exclude:
        weights = [np.where((p < 0) | (p > n - 1), 0, w).astype(f) for p, w in zip(places, weights, strict=True)]
        total = sum(weights)
        weights = [w / total for w in weights]
    return list(zip(places, weights, strict=True))


def _np_resize(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any, size: Sequence[int]) -> Any:
        """Resize one dimension after the other."""
        attrs, layout = ResizeAttrs.of(call, ndim), call.attrs["layout"]
        order = "NC" + spatial_letters(ndim)
        resized = np_to_layout(x, layout, order)
        input_dtype = resized.dtype
        if attrs.method != "nearest_neighbor":
            resized = resized.astype(np.float64 if input_dtype == np.float64 else np.float32)
        crops = []
        for axis, (m, span) in enumerate(zip(size, attrs.roi, strict=True), 2):
            n, shape = resized.shape[axis], [-1 if a == axis else 1 for a in range(ndim + 2)]
            at = _np_coordinates(attrs, n, m, span)
            parts = [
                (np.take(resized, np.clip(place, 0, n - 1).astype(int), axis), weight)
                for place, weight in _np_taps(attrs, at, n)
            ]
            resized = sum(p if w is None else p * np.reshape(w, shape) for p, w in parts)
            crops.append(np.reshape((at < 0) | (at > n - 1), shape))
        if attrs.mode == CROP:
            for crop in crops:
                resized = np.where(crop, np.float32(attrs.extrapolation_value), resized)
        wanted = call.attrs["out_dtype"]
        resized = np_to_layout(resized, order, layout)
        return resized.astype(input_dtype) if wanted is None else resized

    return reference


def _parameters(n: int) -> str:
    rounding = "round" if n == 2 else ""
    return (
        f'data, size: shape, roi: floats{2 * n} = 0.0, layout: str = "NC{spatial_letters(n)}", method: str = "linear", '
        f'coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "{rounding}", '
        "cubic_alpha: float = -0.75, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: dtype? = None"
    )


OPS: dict[str, Impl] = {
    f"image.resize{n}d": Impl(
        _parameters(n), _infer_resize(n), _np_resize(n), _lower(n), FusionKind.INJECTIVE, precision=Precision.FOLLOW,
        layout=layout_rules.resize,
    )
    for n in (2, 3)
}  # fmt: skip
