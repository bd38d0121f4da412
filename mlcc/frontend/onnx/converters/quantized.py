"""Quantization, dequantization, and quantized matrix products."""

from __future__ import annotations

from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.helpers import MICROSOFT, scalar_maker
from mlcc.frontend.onnx.quantization import (
    dequantize,
    integer_matmul,
    is_per_tensor,
    is_zero,
    per_row,
    quantize,
    round_to_dtype,
    subtract_zero_point,
)  # fmt: skip
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.ir.dtypes import DType


@converts("QuantizeLinear", since=10)
@converts("QuantizeLinear", domain=MICROSOFT)
def _quantize(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, zero: relax.Expr | None = None
) -> relax.Expr:
    stated = node.attribute("output_dtype", 0)
    dtype = t.dtype(zero) if zero is not None else dtype_of(stated) if stated else "uint8"
    if not DType.of(dtype).is_int:
        if not node.attribute("saturate", 1):
            raise Unsupported("8-bit floats without saturation are not supported")
        if zero is not None and t.constant_array(zero) is not None and not is_zero(t, zero):
            raise Unsupported("the zero point of 8-bit floats must be 0")
    precision = node.attribute("precision", 0)
    if precision:
        x = t.cast(x, dtype_of(precision))
    return quantize(t, x, scale, zero, dtype, _axis(t, node, x, scale), node.attribute("block_size", 0))


@converts("DequantizeLinear", since=10)
@converts("DequantizeLinear", domain=MICROSOFT)
def _dequantize(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, zero: relax.Expr | None = None
) -> relax.Expr:
    stated = node.attribute("output_dtype", 0)
    dtype = dtype_of(stated) if stated else None
    return dequantize(t, x, scale, zero, _axis(t, node, x, scale), node.attribute("block_size", 0), dtype)


def _axis(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr) -> int:
    """Return the axis of per-axis scales; 0, without meaning, for a per-tensor scale."""
    return 0 if is_per_tensor(t, scale) else t.axis(x, node.attribute("axis", 1))


@converts("DynamicQuantizeLinear", since=11)
def _dynamic_quantize(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> list[relax.Expr]:
    return list(quantize_dynamic(t, x))


def quantize_dynamic(t: OnnxTranslator, x: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Quantize to uint8, with the scale and zero point of the range of the elements and 0."""
    s = scalar_maker(t, x)
    high, low = t.emit(t.op.maximum(t.op.max(x), s(0))), t.emit(t.op.minimum(t.op.min(x), s(0)))
    reach = t.op.divide(t.op.subtract(high, low), s(255))
    scale = t.emit(t.op.where(t.op.equal(high, low), s(1 / 255), reach))
    point = t.emit(t.op.divide(t.op.negative(low), scale))
    zero = round_to_dtype(t, point, None, "uint8")
    return round_to_dtype(t, t.emit(t.op.divide(x, scale)), zero, "uint8"), scale, zero


@converts("MatMulInteger", since=10)
def _matmul_integer(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    b: relax.Expr,
    a_zero: relax.Expr | None = None,
    b_zero: relax.Expr | None = None,
) -> relax.Expr:
    return quantized_matmul(t, a, b, a_zero, b_zero)


def quantized_matmul(
    t: OnnxTranslator, a: relax.Expr, b: relax.Expr, a_zero: relax.Expr | None, b_zero: relax.Expr | None
) -> relax.Expr:
    """Emit (a - zero point) @ (b - zero point). Zero points may be per row of a, and per column of b."""
    left, right = (subtract_zero_point(t, v, z, max(t.ndim(v) - n, 0)) for v, z, n in ((a, a_zero, 2), (b, b_zero, 1)))
    return integer_matmul(t, left, right)


@converts("QLinearMatMul", since=10)
def _qlinear_matmul(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    a_scale: relax.Expr,
    a_zero: relax.Expr,
    b: relax.Expr,
    b_scale: relax.Expr,
    b_zero: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr,
) -> relax.Expr:
    whole = quantized_matmul(t, a, b, a_zero, b_zero)
    factor = t.op.multiply(t.cast(per_row(t, a_scale), "float32"), t.cast(b_scale, "float32"))
    return requantize(t, whole, t.emit(t.op.divide(factor, t.cast(per_row(t, scale), "float32"))), per_row(t, zero))


def requantize(t: OnnxTranslator, whole: relax.Expr, factor: relax.Expr, zero: relax.Expr) -> relax.Expr:
    """Multiply integers by a factor and add the zero point, in the zero point's dtype."""
    return round_to_dtype(t, t.emit(t.op.multiply(t.cast(whole, "float32"), factor)), zero, t.dtype(zero))


@converts("MatMulIntegerToFloat", domain=MICROSOFT)
def _matmul_integer_to_float(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    b: relax.Expr,
    a_scale: relax.Expr,
    b_scale: relax.Expr,
    a_zero: relax.Expr | None = None,
    b_zero: relax.Expr | None = None,
    bias: relax.Expr | None = None,
) -> relax.Expr:
    whole = quantized_matmul(t, a, b, a_zero, b_zero)
    scaled = t.op.multiply(t.cast(whole, t.dtype(a_scale)), t.op.multiply(per_row(t, a_scale), b_scale))
    return scaled if bias is None else t.op.add(scaled, bias)


@converts("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_quantize_matmul(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    b: relax.Expr,
    b_scale: relax.Expr,
    b_zero: relax.Expr | None = None,
    bias: relax.Expr | None = None,
) -> relax.Expr:
    left, scale, zero = quantize_dynamic(t, a)
    return _matmul_integer_to_float(t, node, left, b, scale, b_scale, zero, b_zero, bias)
