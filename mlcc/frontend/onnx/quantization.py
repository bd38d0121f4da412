"""Quantization with scales and zero points: per tensor, per axis, or per block."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import constant_extent
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.quantize import FLOATS, NARROW


def is_per_tensor(t: OnnxTranslator, value: relax.Expr) -> bool:
    """Return True if a scale or zero point is a single number."""
    return all(tir.const_int(e) == 1 for e in t.shape(value))


def broadcast_parameter(
    t: OnnxTranslator, value: relax.Expr, like: relax.Expr, axis: int, block: int = 0
) -> relax.Expr:
    """Reshape a scale or zero point so that it broadcasts to the data."""
    rank = t.ndim(like)
    if is_per_tensor(t, value):
        return t.reshape(value, [])
    if not block:
        if t.ndim(value) != 1:
            raise Unsupported("scales and zero points must have one dimension, or a block size")
        return t.reshape(value, [t.shape(value)[0] if i == axis else 1 for i in range(rank)])
    if t.ndim(value) != rank:
        raise Unsupported("block-wise scales must have as many dimensions as the data")
    repeated = t.emit(t.op.repeat(value, block, axis))
    extent, covered = t.shape(like)[axis], t.shape(repeated)[axis]
    if tir.const_int(construct.sub(extent, covered)) == 0:
        return repeated
    return t.emit(t.op.strided_slice(repeated, [axis], [0], [extent], assume_inbound=True))


def quantize(
    t: OnnxTranslator,
    x: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    dtype: str,
    axis: int = 0,
    block: int = 0,
) -> relax.Expr:
    """Return round(x / scale) + zero point, saturated to the dtype."""
    if not DType.of(t.dtype(x)).is_float or t.dtype(x) == "bfloat16":
        x = t.cast(x, "float32")
    scale = t.cast(scale, t.dtype(x))
    if not block and t.dtype(x) in FLOATS and dtype in NARROW:
        return t.emit(t.op.quantize(x, _flatten_scalar(t, scale), _zero_point(t, zero, dtype), axis, dtype))
    moved = t.op.divide(x, broadcast_parameter(t, scale, x, axis, block))
    if not DType.of(dtype).is_int:
        return t.emit(t.op.astype(moved, dtype))
    return round_to_dtype(
        t, t.emit(moved), None if zero is None else broadcast_parameter(t, zero, x, axis, block), dtype
    )


def round_to_dtype(t: OnnxTranslator, x: relax.Expr, zero: relax.Expr | None, dtype: str) -> relax.Expr:
    """Return round(x) + zero point, saturated to an integer dtype."""
    whole = t.op.round(x)
    if zero is not None:
        whole = t.op.add(whole, t.cast(zero, t.dtype(x)))
    of = DType.of(dtype)
    low, high = (getattr(bound(of), "value") for bound in (construct.min_value, construct.max_value))  # noqa: B009
    return t.cast(t.emit(t.op.clip(whole, low, high)), dtype)


def dequantize(
    t: OnnxTranslator,
    x: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    axis: int = 0,
    block: int = 0,
    dtype: str | None = None,
) -> relax.Expr:
    """(x - zero point) * scale"""
    dtype = dtype or t.dtype(scale)
    given = t.dtype(x)
    known_to_relax = dtype in FLOATS and t.dtype(scale) in FLOATS and given in (*NARROW, "int32")
    if known_to_relax and (not block or _in_whole_blocks(t, x, scale, axis, block)):
        return t.emit(t.op.dequantize(x, _flatten_scalar(t, scale), _zero_point(t, zero, given), axis, dtype))
    wide = t.cast(x, "float32")
    if zero is not None:
        wide = t.emit(t.op.subtract(wide, t.cast(broadcast_parameter(t, zero, x, axis, block), "float32")))
    factor = t.cast(broadcast_parameter(t, scale, x, axis, block), "float32")
    return t.cast(t.emit(t.op.multiply(wide, factor)), dtype)


def _in_whole_blocks(t: OnnxTranslator, x: relax.Expr, scale: relax.Expr, axis: int, block: int) -> bool:
    """Return True if the blocks divide the extent and each has a scale: the groups of `R.dequantize`."""
    counts = [tir.const_int(t.shape(value)[axis]) for value in (x, scale)] if t.ndim(scale) == t.ndim(x) else [None]
    return None not in counts and counts[0] == counts[1] * block  # type: ignore[operator]


def subtract_zero_point(t: OnnxTranslator, x: relax.Expr, zero: relax.Expr | None, axis: int = 0) -> relax.Expr:
    """Return x - zero point as int32, or x unchanged if the zero point is 0."""
    if zero is None or is_zero(t, zero):
        return x
    return t.emit(t.op.subtract(t.cast(x, "int32"), t.cast(broadcast_parameter(t, zero, x, axis), "int32")))


def is_zero(t: OnnxTranslator, value: relax.Expr) -> bool:
    """Return True if all elements are constant 0."""
    array = t.constant_array(value)
    return array is not None and not array.any()


def integer_matmul(t: OnnxTranslator, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Return the exact product of integer matrices in int32."""
    if t.dtype(a) != t.dtype(b):
        a, b = t.cast(a, "int32"), t.cast(b, "int32")
    return t.emit(t.op.matmul(a, b, out_dtype="int32"))


def per_row(t: OnnxTranslator, value: relax.Expr) -> relax.Expr:
    """Reshape a per-row parameter of a matrix to a column."""
    if t.ndim(value) != 1 or is_per_tensor(t, value):
        return value
    return t.reshape(value, [constant_extent(t.shape(value)[0], "the number of rows"), 1])


def _flatten_scalar(t: OnnxTranslator, value: relax.Expr) -> relax.Expr:
    return t.reshape(value, []) if is_per_tensor(t, value) else value


def _zero_point(t: OnnxTranslator, zero: relax.Expr | None, dtype: str) -> relax.Expr:
    """Return the zero point in the form of `R.quantize`."""
    if zero is None or not DType.of(dtype).is_int:
        return t.scalar(0, dtype if DType.of(dtype).is_int and dtype != "bool" else "int8")
    return _flatten_scalar(t, zero)
