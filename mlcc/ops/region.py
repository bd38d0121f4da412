"""Pooling of regions of interest (ROI align, ROI pool)."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.index_bounds import checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl, Precision
from mlcc.ops.shapes import Tensor, fail, int64, known_different, require_float, result, result_dims, shape_text, tensor
from mlcc.ops.window import np_to_layout, require_positive
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def infer_regions(call: relax.Call) -> Tensor:
    """Infer one image of `pooled_size` per region (image, x1, y1, x2, y2)."""
    data, regions = tensor(call, 0), tensor(call, 1)
    layout = call.attrs["layout"]
    layouts = ("NCHW", "NHWC") if "mode" in call.attrs else ("NCHW",)
    if layout not in layouts:
        fail(call, "E0442", f'`layout` must be {" or ".join(layouts)}, not "{layout}"')
    if call.attrs.get("mode", "avg") not in ("avg", "max"):
        fail(call, "E0442", f'`mode` must be "avg" or "max", not "{call.attrs["mode"]}"')
    for info, number, ndim in ((data, "data", 4), (regions, "regions", 2)):
        if info.ndim not in (-1, ndim):
            fail(call, "E0445", f"the {number} need {ndim} dimensions, they have {info.ndim}")
        require_float(call, info)
    if regions.dims is not None and known_different(regions.dims[1], int64(5)):
        fail(call, "E0445", f"a region is 5 numbers (image, x1, y1, x2, y2): {shape_text(regions.dims)}")
    require_positive(call, "pooled_size")
    if data.dims is None or regions.dims is None:
        return result(None, data.dtype, 4, data.vdevice)
    height, width = (int64(v) for v in call.attrs["pooled_size"])
    extents = {"N": regions.dims[0], "C": data.dims[layout.index("C")], "H": height, "W": width}
    return result([extents[c] for c in layout], data.dtype, vdevice=data.vdevice)


# ---------------------------------------------------------------- lowering: roi_align


def _bilinear(x: te.Tensor, layout: str, image: Any, channel: Any, y: Scalar, x_: Scalar) -> Any:
    """Interpolate bilinearly between four pixels; those outside count as 0."""
    low = {"H": te.floor(y).astype("int32"), "W": te.floor(x_).astype("int32")}
    fraction = {"H": y - low["H"], "W": x_ - low["W"]}
    last = {c: Scalar(construct.sub(x.buffer.shape[layout.index(c)], 1)) for c in "HW"}
    total: Any = 0
    for far_x in (0, 1):
        for far_y in (0, 1):
            place = {"N": image, "C": channel, "H": low["H"] + far_y, "W": low["W"] + far_x}
            weight_x = fraction["W"] if far_x else 1 - fraction["W"]
            weight_y = fraction["H"] if far_y else 1 - fraction["H"]
            inside = te.all(
                place["H"] >= 0, place["H"] <= last["H"], place["W"] >= 0, place["W"] <= last["W"]
            )  # fmt: skip
            total = total + te.if_then_else(inside, weight_x * weight_y * x(*(place[c] for c in layout)), 0)
    return total


def _lower_align(call: relax.Call, x: te.Tensor, regions: te.Tensor) -> te.Tensor:
    """Reduce samples on a regular grid in every bin to their mean or maximum."""
    layout, ratio, aligned = call.attrs["layout"], call.attrs["sample_ratio"], call.attrs["aligned"]
    sizes, factor = call.attrs["pooled_size"], call.attrs["spatial_scale"]
    dtype = regions.dtype
    extents = {c: x.buffer.shape[layout.index(c)] for c in "HW"}

    def element(*axes: Any) -> Any:
        at = dict(zip(layout, axes, strict=True))
        i = at["N"]
        image = regions(i, 0).astype("int32")
        begin = {"W": regions(i, 1) * factor, "H": regions(i, 2) * factor}
        end = {"W": regions(i, 3) * factor, "H": regions(i, 4) * factor}
        bins, counts, steps = {}, {}, {}
        for c, pooled in zip("HW", sizes, strict=True):
            span = end[c] - begin[c]
            if not aligned:
                span = Scalar(construct.maximum(span.expr, te.const(1, dtype).expr))
            bins[c] = span / te.const(pooled, dtype)
            counts[c] = te.const(ratio, "int32") if ratio > 0 else te.ceil(bins[c]).astype("int32")
        guarded = aligned and ratio <= 0  # a region without area has no samples
        for c in "HW":
            count = Scalar(construct.maximum(counts[c].expr, 1)) if guarded else counts[c]
            steps[c] = te.reduce_axis((0, count), f"r{c.lower()}")

        def coordinate(c: str) -> Any:
            start = begin[c] + at[c].astype(dtype) * bins[c]
            return start + (steps[c].astype(dtype) + te.const(0.5, dtype)) * bins[c] / counts[c].astype(dtype)

        value = _sample(x, layout, image, at["C"], coordinate("H"), coordinate("W"), extents, dtype)
        some = te.all(counts["H"] > 0, counts["W"] > 0)
        if call.attrs["mode"] == "avg":
            value = (value / (counts["H"] * counts["W"]).astype(dtype)).astype(x.dtype)
            value = te.if_then_else(some, value, te.const(0, x.dtype)) if guarded else value
            return te.sum(value, axis=[steps["H"], steps["W"]])
        value = value.astype(x.dtype)
        value = te.if_then_else(some, value, te.const(0, x.dtype)) if guarded else value
        return te.max(value, axis=[steps["H"], steps["W"]])

    names = {"N": "i", "C": "c", "H": "ph", "W": "pw"}
    samples: te.Tensor = te.compute(
        result_dims(call), element, name="compute", varargs_names=[names[c] for c in layout]
    )
    return samples


def _sample(
    x: te.Tensor, layout: str, image: Any, channel: Any, y: Scalar, x_: Scalar, extents: dict[str, tir.Expr],
    dtype: DType,
) -> Any:  # fmt: skip
    """Sample bilinearly; samples more than a pixel outside the image are 0."""
    height, width = (Scalar(construct.cast(dtype, extents[c])) for c in "HW")
    outside = te.any(y < -1.0, x_ < -1.0, y > height, x_ > width)
    clipped = [
        Scalar(construct.minimum(construct.maximum(v.expr, 0.0), construct.cast(dtype, construct.sub(extents[c], 1))))
        for c, v in (("H", y), ("W", x_))
    ]
    return te.if_then_else(outside, te.const(0, x.dtype), _bilinear(x, layout, image, channel, clipped[0], clipped[1]))


# ---------------------------------------------------------------- lowering: roi_pool


def _lower_pool(call: relax.Call, x: te.Tensor, regions: te.Tensor) -> te.Tensor:
    """Compute the maximum of every bin, 0 for an empty bin."""
    factor, dtype = call.attrs["spatial_scale"], regions.dtype
    sizes = dict(zip("HW", call.attrs["pooled_size"], strict=True))
    extents = dict(zip("HW", x.buffer.shape[2:], strict=True))

    def corner(i: Any, number: int) -> Scalar:
        return te.floor(regions(i, number) * factor + te.const(0.5, dtype)).astype("int32")

    def bounds(i: Any, ph: Any, pw: Any) -> dict[str, tuple[Scalar, Scalar]]:
        ranges = {}
        for c, bin_, first in (("H", ph, 2), ("W", pw, 1)):
            begin, end = corner(i, first), corner(i, first + 2)
            span = Scalar(construct.maximum((end - begin + 1).expr, construct.const(1, "int32")))
            step = span.astype(dtype) / te.const(sizes[c], dtype)
            low = te.floor(Scalar(to_expr(bin_)).astype(dtype) * step).astype("int32") + begin
            high = te.ceil((bin_ + 1).astype(dtype) * step).astype("int32") + begin
            ranges[c] = (_clamp(low, extents[c]), _clamp(high, extents[c]))
        return ranges

    window = {c: te.reduce_axis((0, Scalar(extents[c])), f"r{c.lower()}") for c in "HW"}

    def greatest(i: Any, c: Any, ph: Any, pw: Any) -> Any:
        limits = bounds(i, ph, pw)
        image = regions(i, 0).astype("int32")
        valid = te.all(*(v for s in "HW" for v in (limits[s][0] <= window[s], window[s] < limits[s][1])))
        lowest = te.const(float("-inf"), x.dtype)
        value = te.if_then_else(valid, x(image, c, window["H"], window["W"]), lowest)
        return te.max(value, axis=list(window.values()))

    dims = result_dims(call)
    pooled = te.compute(dims, greatest, name="compute")

    def element(i: Any, c: Any, ph: Any, pw: Any) -> Any:
        limits = bounds(i, ph, pw)
        empty = te.any(*(limits[s][1] <= limits[s][0] for s in "HW"))
        return te.if_then_else(empty, te.const(0, x.dtype), pooled(i, c, ph, pw))

    maxima: te.Tensor = te.compute(dims, element, name="compute")
    return maxima


def _clamp(place: Scalar, extent: tir.Expr) -> Scalar:
    return Scalar(construct.minimum(construct.maximum(place.expr, 0), extent))


# ---------------------------------------------------------------- NumPy


def _np_sample(image: Any, y: Any, x: Any) -> Any:
    """Sample (channels, height, width) bilinearly at coordinates y, x."""
    height, width = image.shape[1:]
    outside = (y < -1) | (x < -1) | (y > height) | (x > width)
    y, x = (np.clip(v, 0, n - 1).astype(v.dtype) for v, n in ((y, height), (x, width)))
    total: Any = 0
    for far_y, far_x in np.ndindex(2, 2):
        low_y, low_x = np.floor(y), np.floor(x)
        at = [np.clip(v, 0, n - 1).astype(int) for v, n in ((low_y + far_y, height), (low_x + far_x, width))]
        weight = ((y - low_y) if far_y else 1 - (y - low_y)) * ((x - low_x) if far_x else 1 - (x - low_x))
        total = total + weight * image[:, at[0], at[1]]
    return np.where(outside, 0, total)


def _image(x: Any, region: Any) -> int:
    """Return the batch index of the image that a region belongs to. Raises IndexError for an index out of range."""
    number = int(np.clip(np.nan_to_num(float(region[0])), -1e19, 1e19))
    return int(checked_indices(np.int64(max(min(number, 2**63 - 1), -(2**63))), len(x), 0, False))


def _np_align(call: relax.Call, x: Any, regions: Any) -> Any:
    x = np_to_layout(x, call.attrs["layout"], "NCHW")
    f, (rows, columns) = regions.dtype.type, call.attrs["pooled_size"]
    aligned = np.zeros((len(regions), x.shape[1], rows, columns), x.dtype)
    for n, region in enumerate(regions):
        begin, end = (region[a:b][::-1] * f(call.attrs["spatial_scale"]) for a, b in ((1, 3), (3, 5)))
        span = end - begin if call.attrs["aligned"] else np.maximum(end - begin, f(1))
        step = span / np.array([rows, columns], span.dtype)
        ratio = call.attrs["sample_ratio"]
        counts = [ratio, ratio] if ratio > 0 else [int(np.ceil(s)) for s in step]
        if min(counts) <= 0:
            continue
        for ph, pw in np.ndindex(rows, columns):
            places = [
                begin[a] + f(p) * step[a] + (np.arange(counts[a]).astype(f) + f(0.5)) * step[a] / f(counts[a])
                for a, p in enumerate((ph, pw))
            ]
            y, x_ = np.meshgrid(*places, indexing="ij")
            samples = np.reshape(_np_sample(x[_image(x, region)], y, x_), (x.shape[1], -1))
            aligned[n, :, ph, pw] = np.mean(samples, 1) if call.attrs["mode"] == "avg" else np.max(samples, 1)
    return np_to_layout(aligned, "NCHW", call.attrs["layout"])


def _np_pool(call: relax.Call, x: Any, regions: Any) -> Any:
    f, sizes = regions.dtype.type, call.attrs["pooled_size"]
    pooled = np.zeros((len(regions), x.shape[1], *sizes), x.dtype)
    for n, region in enumerate(regions):
        corners = np.floor(region[1:] * f(call.attrs["spatial_scale"]) + f(0.5)).astype(int)
        begin, end = corners[1::-1], corners[:1:-1]
        for place in np.ndindex(*sizes):
            at = []
            for a, p in enumerate(place):
                step = f(max(end[a] - begin[a] + 1, 1)) / f(sizes[a])
                low, high = int(np.floor(f(p) * step)) + begin[a], int(np.ceil(f(p + 1) * step)) + begin[a]
                at.append(slice(*(min(max(v, 0), x.shape[2 + a]) for v in (low, high))))
            seen = x[(_image(x, region), slice(None), *at)]
            pooled[(n, slice(None), *place)] = np.max(seen, (1, 2)) if seen.size else 0
    return pooled


OPS: dict[str, Impl] = {
    "vision.roi_align": Impl(
        'data, rois, pooled_size: ints2, spatial_scale: float, sample_ratio: int = -1, aligned: bool = False,'
        ' layout: str = "NCHW", mode: str = "avg"',
        infer_regions, _np_align, _lower_align, precision=Precision.FOLLOW,
    ),
    "vision.roi_pool": Impl(
        'data, rois, pooled_size: ints2, spatial_scale: float, layout: str = "NCHW"', infer_regions, _np_pool,
        _lower_pool, precision=Precision.FOLLOW,
    ),
    "vision.all_class_non_max_suppression": Impl(
        'boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, output_format: str = "onnx"',
    ),
    "vision.get_valid_counts": Impl("data, score_threshold: float = 0.0, id_index: int = 0, score_index: int = 1"),
    "vision.multibox_transform_loc": Impl(
        "cls_pred, loc_pred, anchor, clip: bool = False, threshold: float = 0.0, variances: floats4 = 1.0, "
        "keep_background: bool = True, apply_softmax: bool = True",
    ),
    "vision.non_max_suppression": Impl(
        "data, valid_count, indices, max_output_size: int = -1, iou_threshold: float = 0.5, force_suppress: "
        "bool = False, top_k: int = -1, coord_start: int = 2, score_index: int = 1, id_index: int = 0, "
        "return_indices: bool = True, invalid_to_bottom: bool = False, soft_nms_sigma: float = 0.0, "
        "score_threshold: float = 0.0",
    ),
}  # fmt: skip
