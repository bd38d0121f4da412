"""Non-maximum suppression per class, as ONNX defines it, and truncation of a result to its valid rows."""

from __future__ import annotations

import math
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import BOOL, INT64
from mlcc.ops.gather import require_integers
from mlcc.ops.lazy import np
from mlcc.ops.registry import DataDependentShape, Emit, Impl, bind_call
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    fail,
    int64,
    known_different,
    product,
    require_float,
    result,
    result_dims,
    same_dtype,
    shape_text,
    tensor,
)
from mlcc.ops.sort import RowSort, np_argsort
from mlcc.ops.topi import compute_ax
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements

# ---------------------------------------------------------------- inference


def _check_boxes(call: relax.Call) -> tuple[Tensor, Tensor]:
    """Check boxes (batch, boxes, 4), scores (batch, classes, boxes) and the scalar limits. Return the first two."""
    boxes, scores, most = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    for what, info in (("boxes", boxes), ("scores", scores)):
        require_float(call, info)
        if info.ndim not in (-1, 3):
            fail(call, "E0445", f"the {what} must have 3 dimensions, they have {info.ndim}")
    same_dtype(call, (boxes, scores))
    require_integers(call, most, "`max_output_boxes_per_class`")
    for at, name in enumerate(("max_output_boxes_per_class", "iou_threshold", "score_threshold")[: len(call.args) - 2]):
        limit = tensor(call, 2 + at)
        if at:
            require_float(call, limit)
        if limit.ndim > 1 or (limit.ndim == 1 and limit.dims is not None and known_different(limit.dims[0], int64(1))):
            fail(call, "E0445", f"`{name}` must be one number, its shape is {shape_text(limit.dims)}")
    if boxes.dims is not None and scores.dims is not None:
        pairs = ((boxes.dims[0], scores.dims[0]), (boxes.dims[1], scores.dims[2]), (boxes.dims[2], int64(4)))
        if any(known_different(a, b) for a, b in pairs):
            text = f"boxes of shape {shape_text(boxes.dims)} and scores of shape {shape_text(scores.dims)}"
            fail(call, "E0445", f"{text} are not (batch, boxes, 4) and (batch, classes, boxes)")
    return boxes, scores


def infer_nms(call: relax.Call) -> Tensor:
    """A row of batch, class and box (int64) for each box that is selected."""
    boxes, _ = _check_boxes(call)
    return result(None, INT64, 2, boxes.vdevice)


def infer_nms_padded(call: relax.Call) -> relax.StructInfo:
    """Infer the maximum number of selected rows, and a vector with the actual number."""
    boxes, scores = _check_boxes(call)
    rows = None if scores.dims is None else (_max_rows(call, scores.dims), int64(3))
    count = result((int64(1),), INT64, vdevice=boxes.vdevice)
    return relax.TupleStructInfo((result(rows, INT64, 2, boxes.vdevice), count))


def _max_rows(call: relax.Call, scores: Dims) -> tir.Expr:
    """batch * classes * boxes, with fewer boxes if the limit per class is a constant."""
    most, limit = scores[2], call.args[2]
    if isinstance(limit, relax.Constant) and limit.data.array is not None:
        most = construct.minimum(most, int64(max(int(limit.data.array.reshape(-1)[0]), 0)))
    return product((scores[0], scores[1], most))


def infer_valid_rows(call: relax.Call) -> Tensor:
    """Like the data, of unknown length."""
    data, count = tensor(call, 0), tensor(call, 1)
    require_integers(call, count, "`count`")
    if data.ndim == 0:
        fail(call, "E0445", "a scalar has no rows")
    return result(None, data.dtype, data.ndim, data.vdevice)


# ---------------------------------------------------------------- lowering


def _expand_nms(call: relax.Call, emit: Emit) -> relax.Call:
    """Compute the padded rows, then truncate them to the valid ones."""
    limits = [*call.args, *[None] * (5 - len(call.args))]
    padded = emit("vision.multiclass_nms_padded", *limits, call.attrs["center_point_box"])
    rows, count = (relax.TupleGetItem(padded, i, f) for i, f in enumerate(padded.struct_info.fields))  # type: ignore[union-attr]
    return bind_call("vision.valid_rows", (rows, count), span=call.span)


def _scalar_element(x: te.Tensor, cells: BufferElements) -> Scalar:
    """The element of a tensor with a single element."""
    return cells[tuple(Scalar(int64(0)) for _ in range(x.ndim))]


def _compare(name: Any, a: Scalar, b: Scalar) -> Scalar:
    """Compare in the wider dtype of both operands."""
    return Scalar(name(*construct.match_types(to_expr(a), to_expr(b))))


class _SelectedBoxes:
    """Scratch memory for the corners and areas of the selected boxes and of the current box."""

    def __init__(self, count: Scalar, dtype: Any, centered: bool) -> None:
        self.centered = centered
        self.chosen = code.scratch("chosen", (5, count), dtype)
        self.box = code.scratch("box", (5,), dtype)

    def load(self, data: BufferElements, n: Scalar, at: Scalar) -> Any:
        """Load a box of the data as the current box."""
        first, second, third, fourth = (data[n, at, k] for k in range(4))
        if self.centered:
            half = te.const(0.5, data.dtype)
            w, h = third * half, fourth * half
            corners = (second - h, first - w, second + h, first + w)
        else:
            low, high = (te.min(first, third), te.min(second, fourth)), (te.max(first, third), te.max(second, fourth))
            corners = (*low, *high)
        put = [self.box.set(v, k) for k, v in enumerate(corners)]
        return put, self.box.set((self.box[2] - self.box[0]) * (self.box[3] - self.box[1]), 4)

    def select(self, at: Scalar) -> Any:
        return [self.chosen.set(self.box[k], k, at) for k in range(5)]

    def overlaps(self, k: Scalar, threshold: Scalar) -> Scalar:
        """Return the condition that the intersection over union with chosen box `k` exceeds the threshold."""
        zero = te.const(0, self.box.dtype)
        low = [te.max(self.chosen[a, k], self.box[a]) for a in (0, 1)]
        high = [te.min(self.chosen[a, k], self.box[a]) for a in (2, 3)]
        shared = te.max(high[0] - low[0], zero) * te.max(high[1] - low[1], zero)
        union = self.chosen[4, k] + self.box[4] - shared
        return te.all(shared > zero, union > zero, _compare(construct.greater, shared / union, threshold))


def _lower_nms(call: relax.Call, x: te.Tensor, scores: te.Tensor, *limits: te.Tensor) -> Any:
    """Visit the boxes of each class by descending score; select those that do not overlap a selected box."""
    infos = call.struct_info.fields  # type: ignore[union-attr]
    batch, classes, count = scores.shape
    row, boxes = (
        RowSort(count, scores.dtype, True, True),
        _SelectedBoxes(count, x.dtype, call.attrs["center_point_box"]),
    )
    at, kept, total = (code.scratch(n, (1,)) for n in ("at", "kept", "total"))
    suppressed = code.scratch("hit", (1,), BOOL)
    rows = infos[0].dims[0]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, score_cells, *limit_cells = (BufferElements(b) for b in ins)
        max_boxes, iou_threshold, *score_threshold = (
            _scalar_element(t, cells) for t, cells in zip(limits, limit_cells, strict=True)
        )
        places, number = (BufferElements(b) for b in outs)

        def consider(n: Scalar, c: Scalar) -> Any:
            place = row.sorted_place(at[0])
            look = code.loop(
                kept[0], lambda k: suppressed.set(te.any(suppressed[0], boxes.overlaps(k, iou_threshold)), 0), "k"
            )
            put = [places.set(v, total[0], k) for k, v in enumerate((n, c, place))]
            keep = (*boxes.select(kept[0]), *put, kept.set(kept[0] + 1, 0), total.set(total[0] + 1, 0))
            seek = (suppressed.set(te.const(False, "bool"), 0), look)
            return boxes.load(data, n, place), seek, code.if_then(te.logical_not(suppressed[0]), keep)

        def filtered(n: Scalar, c: Scalar) -> Any:
            """Consider boxes above the score threshold; stop at the first score that is not."""
            if not score_threshold:
                return consider(n, c)
            key = row.sorted_key(at[0])
            ends = code.if_then(_compare(construct.less_equal, key, score_threshold[0]), at.set(count, 0))
            return code.if_then(_compare(construct.greater, key, score_threshold[0]), consider(n, c), ends)

        def one(n: Scalar, c: Scalar) -> Any:
            has_more = te.all(at[0] < count, kept[0] < max_boxes.astype("int64"))
            step = [filtered(n, c), at.set(at[0] + 1, 0)]
            begin = (row.load(lambda k: score_cells[n, c, k]), row.sort(), at.set(0, 0), kept.set(0, 0))
            return *begin, code.while_loop(has_more, step)

        clear = code.grid((rows, 3), lambda i, k: places.set(-1, i, k))
        return clear, total.set(0, 0), code.grid((batch, classes), one, "i"), number.set(total[0], 0)

    scratch = (*row.buffers, *(c.buffer for c in (boxes.chosen, boxes.box, at, kept, total, suppressed)))
    shapes = [i.dims for i in infos]
    return te.extern(shapes, [x, scores, *limits], body, "T_multiclass_nms", [INT64] * 2, scratch=scratch)


def _measure_rows(call: relax.Call, x: te.Tensor, count: te.Tensor) -> Any:
    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        wanted = te.max(_scalar_element(count, BufferElements(ins[1])).astype("int64"), te.const(0, "int64"))
        return BufferElements(outs[0]).set(te.min(wanted, x.shape[0]), 0)

    return te.extern((1,), [x, count], body, "T_valid_rows_extents", INT64)


def _sized_rows(call: relax.Call, extents: tuple[tir.Expr, ...]) -> relax.StructInfo:
    data = tensor(call, 0)
    assert data.dims is not None
    return result((construct.minimum(extents[0], data.dims[0]), *data.dims[1:]), data.dtype, vdevice=data.vdevice)


def _lower_rows(call: relax.Call, x: te.Tensor, count: te.Tensor) -> Any:
    return compute_ax(result_dims(call), lambda *i: x(*i), "T_valid_rows")


# ---------------------------------------------------------------- NumPy


def _np_corners(boxes: Any, centered: bool) -> Any:
    """Low and high corners, shape (..., 2) each."""
    if centered:
        half = boxes[..., 2:] * boxes.dtype.type(0.5)
        return boxes[..., :2] - half, boxes[..., :2] + half
    return np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])


def _np_select(low: Any, high: Any, scores: Any, max_boxes: int, iou_threshold: Any, score_threshold: Any) -> list[int]:
    """Select boxes of one class by descending score, without those that overlap a selected one."""
    area = np.prod(high - low, axis=-1)
    kept: list[int] = []
    for box in map(int, np_argsort(scores, 0, True)):
        if len(kept) >= max_boxes or (score_threshold is not None and not scores[box] > score_threshold):
            continue
        sides = np.minimum(high[kept], high[box]) - np.maximum(low[kept], low[box])
        shared = np.prod(np.maximum(sides, 0), axis=-1)
        union = area[kept] + area[box] - shared
        if not np.any((shared > 0) & (union > 0) & (shared / union > iou_threshold)):
            kept.append(box)
    return kept


def _np_nms(call: relax.Call, boxes: Any, scores: Any, *limits: Any) -> Any:
    most, overlap, *least = (np.reshape(v, -1)[0] for v in limits)
    low, high = _np_corners(boxes, call.attrs["center_point_box"])
    rows = [
        (n, c, place)
        for n, c in np.ndindex(*scores.shape[:2])
        for place in _np_select(low[n], high[n], scores[n, c], int(most), overlap, least[0] if least else None)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def _np_nms_padded(call: relax.Call, boxes: Any, scores: Any, *limits: Any) -> Any:
    rows = _np_nms(call, boxes, scores, *limits)
    limit = call.args[2]
    most = scores.shape[2]
    if isinstance(limit, relax.Constant) and limit.data.array is not None:
        most = min(most, max(int(limit.data.array.reshape(-1)[0]), 0))
    padded = np.full((math.prod(scores.shape[:2]) * most, 3), -1, np.int64)
    padded[: len(rows)] = rows
    return padded, np.array([len(rows)])


def _np_rows(call: relax.Call, x: Any, count: Any) -> Any:
    return x[: max(int(np.reshape(count, -1)[0]), 0)]


_PARAMETERS = (
    "boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold = None, center_point_box: bool = False"
)

OPS: dict[str, Impl] = {
    "vision.multiclass_nms": Impl(_PARAMETERS, infer_nms, _np_nms, expand=_expand_nms),
    "vision.multiclass_nms_padded": Impl(_PARAMETERS, infer_nms_padded, _np_nms_padded, _lower_nms),
    "vision.valid_rows": Impl(
        "data, count", infer_valid_rows, _np_rows, _lower_rows, found=DataDependentShape(_measure_rows, _sized_rows)
    ),
}
