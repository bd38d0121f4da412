"""Converters of data-dependent sampling: grid sampling, regions of interest, unpooling, deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.dynamic_axes import pad_or_crop, scatter_by_axis
from mlcc.frontend.onnx.helpers import constant_extent, iota_along, one_of, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax
from mlcc.ops.shapes import product

if TYPE_CHECKING:
    import numpy as np

METHODS = {
    "bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"
}  # fmt: skip
LAYOUTS = {4: "NCHW", 5: "NCDHW"}


@converts("GridSample", since=16)
def _grid_sample(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, grid: relax.Expr) -> relax.Expr:
    rank = t.ndim(x)
    if rank not in LAYOUTS:
        raise Unsupported("the input must be an image or a volume")
    places = t.op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])
    method = METHODS[one_of(node.attribute("mode", "linear"), list(METHODS), "mode")]
    padding = node.attribute("padding_mode", "zeros")
    return t.op.image.grid_sample(x, places, method, LAYOUTS[rank], padding, bool(node.attribute("align_corners", 0)))


@converts("AffineGrid", since=20)
def _affine_grid(t: OnnxTranslator, node: OnnxNode, maps: relax.Expr, size: relax.Expr) -> relax.Expr:
    space = t.extents(size)[2:]
    grid = t.op.image.affine_grid(maps, t.shape_expr(space), bool(node.attribute("align_corners", 0)))
    return t.op.permute_dims(grid, [0, *range(2, len(space) + 2), 1])


@converts("RoiAlign", since=10)
def _roi_align_of_corners(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, regions: relax.Expr, images: relax.Expr
) -> relax.Expr:
    return _roi_align(t, node, x, regions, images, "output_half_pixel")


@converts("RoiAlign", since=16)
def _roi_align_of_centres(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, regions: relax.Expr, images: relax.Expr
) -> relax.Expr:
    return _roi_align(t, node, x, regions, images, node.attribute("coordinate_transformation_mode", "half_pixel"))


def _roi_align(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, regions: relax.Expr, images: relax.Expr, mode: str
) -> relax.Expr:
    aligned = one_of(mode, ("half_pixel", "output_half_pixel"), "coordinate_transformation_mode") == "half_pixel"
    pooling = one_of(node.attribute("mode", "avg"), ("avg", "max"), "mode")
    scale, ratio = node.attribute("spatial_scale", 1.0), node.attribute("sampling_ratio", 0)
    pooled = [node.attribute("output_height", 1), node.attribute("output_width", 1)]
    if aligned:
        regions = t.emit(t.op.subtract(regions, scalar_maker(t, regions)(0.5 / scale)))
    if pooling == "max":
        return _max_roi_align(t, x, regions, images, pooled, scale, ratio, aligned)
    numbers = t.op.expand_dims(t.cast(images, t.dtype(regions)), [1])
    placed = t.emit(t.op.concat([numbers, regions], 1))
    return t.op.vision.roi_align(x, placed, pooled, scale, ratio or -1, aligned)


def _max_roi_align(
    t: OnnxTranslator,
    x: relax.Expr,
    regions: relax.Expr,
    images: relax.Expr,
    pooled: Sequence[int],
    scale: float,
    ratio: int,
    aligned: bool,
) -> relax.Expr:
    """Return the maximum of the weighted neighbours of all samples in a bin; ONNX does not add them up first."""
    if ratio <= 0:
        raise Unsupported('`mode="max"` needs a sampling ratio')
    sides = [
        _sample_neighbours(t, x, regions, axis, pooled[axis] * ratio, pooled[axis], scale, aligned) for axis in range(2)
    ]
    count, channels = t.shape(regions)[0], t.shape(x)[1]
    grid: list[Dim] = [count, pooled[0] * ratio, pooled[1] * ratio]
    image = t.op.broadcast_to(t.reshape(t.cast(images, "int64"), [count, 1, 1]), t.shape_expr(grid))
    pixels = t.emit(t.op.permute_dims(x, [0, 2, 3, 1]))
    greatest: relax.Expr | None = None
    for row, row_weight in sides[0]:
        for column, column_weight in sides[1]:
            places = [t.op.broadcast_to(p, t.shape_expr(grid)) for p in (row, column)]
            corner = t.op.gather_nd(pixels, t.op.stack([image, *places], 3))
            value = t.emit(t.op.multiply(corner, t.op.expand_dims(t.op.multiply(row_weight, column_weight), [3])))
            greatest = value if greatest is None else t.emit(t.op.maximum(greatest, value))
    assert greatest is not None
    bins = t.reshape(greatest, [count, pooled[0], ratio, pooled[1], ratio, channels])
    return t.op.permute_dims(t.op.max(bins, [2, 4]), [0, 3, 1, 2])


def _sample_neighbours(
    t: OnnxTranslator,
    x: relax.Expr,
    regions: relax.Expr,
    axis: int,
    samples: int,
    bins: int,
    scale: float,
    aligned: bool,
) -> list[tuple[relax.Expr, relax.Expr]]:
    """Return the two pixels around each sample along an axis, with linear weights; 0 for samples out of bounds."""
    s, shape = scalar_maker(t, regions), [1, samples, 1] if axis == 0 else [1, 1, samples]
    begin, end = (
        t.op.multiply(t.op.strided_slice(regions, [1], [c], [c + 1], assume_inbound=True), s(scale))
        for c in (1 - axis, 3 - axis)
    )
    span = t.op.subtract(end, begin)
    span = t.emit(span if aligned else t.op.maximum(span, s(1)))
    steps = iota_along(t, 2, 1, samples, t.dtype(regions))
    at = t.op.add(begin, t.op.multiply(t.op.add(steps, s(0.5)), t.op.divide(span, s(samples))))
    at = t.reshape(t.emit(at), [t.shape(regions)[0], *shape[1:]])
    extent = t.op.astype(t.op.shape_to_tensor(t.shape_expr([t.shape(x)[2 + axis]])), t.dtype(regions))
    last = t.emit(t.op.subtract(extent, s(1)))
    inside = t.op.logical_and(t.op.greater_equal(at, s(-1)), t.op.less_equal(at, extent))
    at = t.emit(t.op.minimum(t.op.maximum(at, s(0)), last))
    low = t.emit(t.op.floor(at))
    high = t.op.minimum(t.op.add(low, s(1)), last)
    part = t.emit(t.op.subtract(at, low))
    weights = (t.op.subtract(s(1), part), part)
    return [
        (t.cast(t.emit(place), "int64"), t.emit(t.op.where(inside, weight, s(0))))
        for place, weight in zip((low, high), weights, strict=True)
    ]


@converts("MaxRoiPool")
def _max_roi_pool(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, regions: relax.Expr) -> relax.Expr:
    return t.op.vision.roi_pool(x, regions, node.attribute("pooled_shape"), node.attribute("spatial_scale", 1.0))


@converts("MaxUnpool", since=9)
def _max_unpool(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, places: relax.Expr, shape: relax.Expr | None = None
) -> relax.Expr:
    kernel = node.attribute("kernel_shape")
    space = len(kernel)
    strides, pads = node.attribute("strides", [1] * space), node.attribute("pads", [0] * 2 * space)
    inferred: list[Dim] = list(t.shape(x)[:2])
    for i, extent in enumerate(t.shape(x)[2:]):
        cut = pads[i] + pads[space + i] - kernel[i]
        inferred.append(construct.sub(construct.mul(construct.sub(extent, 1), strides[i]), cut))
    flat = t.full([product([construct.cast("int64", d) for d in inferred])], 0, t.dtype(x))
    count = [product(t.shape(x))]
    filled = t.op.scatter_elements(flat, t.reshape(places, count), t.reshape(x, count), 0)
    whole = t.reshape(t.emit(filled), inferred)
    if shape is None:
        return whole
    wanted = t.integers(shape)
    missing = [constant_extent(construct.sub(w, m), "the padding of the output")
               for w, m in zip(wanted, inferred, strict=True)]  # fmt: skip
    return t.op.nn.pad(whole, [v for m in missing for v in (0, m)])


@converts("Col2Im", since=18)
def _col2im(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, image: relax.Expr, block: relax.Expr) -> relax.Expr:
    """Emit a transposed convolution whose kernels put each element of a patch in its place."""
    import numpy as np

    size, kernel = (
        [constant_extent(v, "extents of images and patches") for v in t.integers(s)] for s in (image, block)
    )
    space = len(kernel)
    if space > 3:
        raise Unsupported("patches of more than 3 dimensions are not supported")
    strides, dilations = node.attribute("strides", [1] * space), node.attribute("dilations", [1] * space)
    pads = node.attribute("pads", [0] * 2 * space)
    steps, rest = [], []
    for i in range(space):
        free = size[i] + pads[i] + pads[space + i] - dilations[i] * (kernel[i] - 1) - 1
        steps.append(free // strides[i] + 1)
        rest.append(free % strides[i])
    count = math.prod(kernel)
    batch, columns = t.shape(x)[0], constant_extent(t.shape(x)[1], "the number of elements of a patch")
    patches = t.reshape(x, [construct.mul(batch, columns // count), count, *steps])
    places = t.constant(np.eye(count, dtype=np.float32).reshape(count, 1, *kernel))
    convolve = (t.op.nn.conv1d_transpose, t.op.nn.conv2d_transpose, t.op.nn.conv3d_transpose)[space - 1]
    folded = convolve(patches, t.cast(places, t.dtype(x)), strides, pads, rest, dilations)
    return t.reshape(t.emit(folded), [batch, columns // count, *size])


@converts("CenterCropPad", since=18)
def _center_crop_pad(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, shape: relax.Expr) -> relax.Expr:
    rank = t.ndim(x)
    axes = [t.axis(x, a) for a in node.attribute("axes", range(rank))]
    targets = t.known_integers(shape)
    if targets is None:
        return _dynamic_center_crop_pad(t, x, axes, shape)
    if len(targets) != len(axes):
        raise Unsupported(f"`shape` must have {len(axes)} extents, not {len(targets)}")
    for axis, target in zip(axes, targets, strict=True):
        more = constant_extent(construct.sub(target, t.shape(x)[axis]), "the change of an extent")
        if more < 0:
            begin = -more // 2
            x = t.emit(t.op.strided_slice(x, [axis], [begin], [construct.add(target, begin)], assume_inbound=True))
        elif more > 0:
            width = [0] * 2 * rank
            width[2 * axis], width[2 * axis + 1] = more // 2, more - more // 2
            x = t.emit(t.op.nn.pad(x, width))
    return x


def _dynamic_center_crop_pad(t: OnnxTranslator, x: relax.Expr, axes: Sequence[int], shape: relax.Expr) -> relax.Expr:
    """Crop or pad to extents known at run time only."""
    old, two = t.integer_tensor(t.shape(x), "int64"), t.scalar(2, "int64")
    wanted = scatter_by_axis(t, t.integer_tensor(axes, "int64"), shape, t.shape(x), t.ndim(x))
    more = t.op.subtract(wanted, old)
    half = t.op.floor_divide(t.op.abs(more), two)
    before = t.emit(t.op.where(t.op.less(more, t.scalar(0, "int64")), t.op.negative(half), half))
    return pad_or_crop(t, x, before, t.extents(wanted), "constant", t.scalar(0, t.dtype(x)))


@converts("DeformConv", since=19)
def _deform_conv(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    offset: relax.Expr,
    bias: relax.Expr | None = None,
    mask: relax.Expr | None = None,
) -> relax.Expr:
    """Sample the image at the offset positions, then multiply by the kernel."""
    if t.ndim(x) != 4:
        raise Unsupported("deformable convolutions are supported for 2-D images only")
    kernel = [constant_extent(e, "the kernel's extents") for e in t.shape(w)[2:]]
    strides, dilations = node.attribute("strides", [1, 1]), node.attribute("dilations", [1, 1])
    pads, groups, shares = (
        node.attribute("pads", [0] * 4),
        node.attribute("group", 1),
        node.attribute("offset_group", 1),
    )
    (batch, channels, *size), (out, taps) = t.shape(x), (t.shape(w)[0], math.prod(kernel))
    space = list(t.shape(offset)[2:])
    each = construct.floordiv(channels, shares)
    moves = t.reshape(offset, [construct.mul(batch, shares), taps, 2, *space])
    s = scalar_maker(t, offset)
    normal = []
    for i in range(2):
        starts = t.op.multiply(iota_along(t, 4, i + 2, space[i], t.dtype(offset)), s(strides[i]))
        tap = t.constant(_taps(kernel, i, dilations[i], pads[i]).astype(t.dtype(offset)))
        moved = t.op.squeeze(t.op.strided_slice(moves, [2], [i], [i + 1], assume_inbound=True), [2])
        place = t.op.add(t.op.add(starts, tap), moved)
        extent = t.op.astype(t.op.shape_to_tensor(t.shape_expr([size[i]])), t.dtype(offset))
        normal.append(t.op.subtract(t.op.divide(t.op.add(t.op.multiply(place, s(2)), s(1)), extent), s(1)))
    grid = t.emit(t.op.stack([normal[1], normal[0]], 1))  # (images, 2, taps, rows, columns)
    rows: list[Dim] = [construct.mul(batch, shares), 2, construct.mul(taps, space[0]), space[1]]
    parts = t.reshape(x, [construct.mul(batch, shares), each, *size])
    samples = t.emit(t.op.image.grid_sample(parts, t.reshape(grid, rows), "bilinear", "NCHW", "zeros", False))
    samples = t.reshape(samples, [construct.mul(batch, shares), each, taps, *space])
    if mask is not None:
        samples = t.emit(t.op.multiply(samples, t.reshape(mask, [construct.mul(batch, shares), 1, taps, *space])))
    inner = construct.mul(construct.floordiv(channels, groups), taps)
    columns = t.reshape(samples, [batch, groups, inner, product(space)])
    weights = t.reshape(w, [1, groups, construct.floordiv(out, groups), inner])
    convolved = t.reshape(t.emit(t.op.matmul(weights, columns)), [batch, out, *space])
    return convolved if bias is None else t.op.add(convolved, t.reshape(bias, [out, 1, 1]))


def _taps(kernel: Sequence[int], axis: int, dilation: int, pad: int) -> np.ndarray:
    """Return the offset of each kernel tap along an axis, as (1, taps, 1, 1)."""
    import numpy as np

    offsets: np.ndarray = np.indices(kernel)[axis] * dilation - pad
    return offsets.reshape(1, -1, 1, 1)


@converts("NonMaxSuppression", since=10)
def _non_max_suppression(
    t: OnnxTranslator,
    node: OnnxNode,
    boxes: relax.Expr,
    scores: relax.Expr,
    most: relax.Expr | None = None,
    overlap: relax.Expr | None = None,
    least: relax.Expr | None = None,
) -> relax.Expr:
    most = t.scalar(0, "int64") if most is None else most
    overlap = t.scalar(0, "float32") if overlap is None else overlap
    given = [] if least is None else [least]
    centred = bool(node.attribute("center_point_box", 0))
    selected = t.op.vision.multiclass_nms(boxes, scores, most, overlap, *given, center_point_box=centred)
    return t.with_stated_shape(selected, [t.symbol("kept"), 3], "int64")
