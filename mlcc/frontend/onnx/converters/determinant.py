"""Determinants, by Gaussian elimination with partial pivoting."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import constant_extent, iota_along, scalar_maker, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.ops.shapes import product

MAX_ROWS = 64  # rows, each of which takes some operators


@converts("Det", since=11)
def _det(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    *outer, rows, columns = t.shape(x)
    size = constant_extent(rows, "the number of rows")
    if constant_extent(columns, "the number of columns") != size or not 0 < size <= MAX_ROWS:
        raise Unsupported(
            f"determinants of ({size}, {columns}) matrices are not supported, only square ones of 1 to {MAX_ROWS} rows"
        )
    count, s = product(outer), scalar_maker(t, x)
    left = t.reshape(x, [count, size, size])
    determinant: relax.Expr | None = None
    for n in range(size, 1, -1):
        column = t.op.squeeze(slice_axis(t, left, 2, 0, 1), [2])
        at = t.emit(t.op.argmax(t.op.abs(column), 1, keepdims=True))  # (count, 1)
        chosen = t.emit(t.op.expand_dims(t.op.equal(at, iota_along(t, 2, 1, n)), [2]))
        first = slice_axis(t, left, 1, 0, 1)
        row = t.emit(t.op.sum(t.op.where(chosen, left, s(0)), [1], keepdims=True))
        pivot = slice_axis(t, row, 2, 0, 1)  # (count, 1, 1)
        sign = t.op.where(t.op.equal(at, t.scalar(0, "int64")), s(1), s(-1))
        factor = t.emit(t.op.multiply(t.op.squeeze(pivot, [2]), sign))
        determinant = factor if determinant is None else t.emit(t.op.multiply(determinant, factor))
        rest = slice_axis(t, t.emit(t.op.where(chosen, first, left)), 1, 1, n)
        safe = t.op.where(t.op.equal(pivot, s(0)), s(1), pivot)
        share = t.emit(t.op.divide(slice_axis(t, rest, 2, 0, 1), safe))
        below = t.op.subtract(slice_axis(t, rest, 2, 1, n), t.op.multiply(share, slice_axis(t, row, 2, 1, n)))
        left = t.emit(below)
    last = t.reshape(left, [count, 1])
    return t.reshape(last if determinant is None else t.emit(t.op.multiply(determinant, last)), outer)
