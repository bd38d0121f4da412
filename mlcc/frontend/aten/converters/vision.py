"""Operators of torchvision."""

from __future__ import annotations

from mlcc.frontend.aten.converters.creation import as_constant
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.values import tensor_info
from mlcc.relax import op


@converts("torchvision.nms")
def _nms(t: Translator, dets: relax.Expr, scores: relax.Expr, iou_threshold: float) -> relax.Expr:
    """Emit the indices of the kept boxes by descending score; their number depends on the data."""
    count = t.shape(dets)[0]
    limit = t.emit(op.shape_to_tensor(t.shape_expr([count])))
    threshold = t.reshape(t.scalar(iou_threshold, "float32"), [1])
    boxes, ranks = t.reshape(dets, [1, count, 4]), t.reshape(scores, [1, 1, count])
    rows = t.emit(op.vision.multiclass_nms(boxes, ranks, limit, threshold))
    kept = t.out_shape()[0]
    known = t.match_cast(rows, tensor_info([kept, tir.IntImm(INT64, 3)], "int64"))
    return op.take(known, t.scalar(2, "int64"), 1)


@converts("torchvision.roi_align")
def _roi_align(
    t: Translator, input: relax.Expr, rois: relax.Expr, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> relax.Expr:  # fmt: skip
    size = [pooled_height, pooled_width]
    ratio = sampling_ratio if sampling_ratio > 0 else -1
    if aligned:  # `R.vision.roi_align` leaves half a pixel to the caller
        half = 0.5 / spatial_scale
        rois = t.emit(op.subtract(rois, as_constant(t, [0, half, half, half, half], t.dtype(rois))))
    return op.vision.roi_align(input, rois, size, float(spatial_scale), ratio, aligned)


@converts("torchvision.roi_pool")
def _roi_pool(
    t: Translator, input: relax.Expr, rois: relax.Expr, spatial_scale: float, pooled_height: int, pooled_width: int
) -> list[relax.Expr | None]:
    return [t.emit(op.vision.roi_pool(input, rois, [pooled_height, pooled_width], float(spatial_scale))), None]


@converts("torchvision.ps_roi_align", "torchvision.ps_roi_pool")
def _position_sensitive(t: Translator, **arguments: object) -> None:
    raise Unsupported("position-sensitive regions are not supported")
