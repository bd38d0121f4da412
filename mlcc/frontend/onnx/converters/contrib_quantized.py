"""Converters of onnxruntime's quantized operators: compute on dequantized or offset operands, then requantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mlcc.frontend.onnx.converters.quantized import quantized_matmul, requantize
from mlcc.frontend.onnx.helpers import MICROSOFT, convert_standard, scalar_maker, swap_axes
from mlcc.frontend.onnx.quantization import dequantize, is_per_tensor, quantize, subtract_zero_point
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax

Real: TypeAlias = Callable[[OnnxTranslator, OnnxNode, relax.Expr], relax.Expr]


@converts("QLinearConv", since=10)
@converts("QLinearConv", domain=MICROSOFT)
def _qlinear_conv(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    x_scale: relax.Expr,
    x_zero: relax.Expr | None,
    w: relax.Expr,
    w_scale: relax.Expr,
    w_zero: relax.Expr | None,
    scale: relax.Expr,
    zero: relax.Expr | None = None,
    bias: relax.Expr | None = None,
) -> relax.Expr:
    if node.attribute("channels_last", 0):
        raise Unsupported("`channels_last=1` is not supported")
    whole = _conv_of_integers(t, node, x, w, x_zero, w_zero, bias)
    if not is_per_tensor(t, w_scale):
        w_scale = t.reshape(w_scale, [*t.shape(w_scale), *[1] * (t.ndim(x) - 2)])
    else:
        w_scale = t.reshape(w_scale, [])
    factor = t.op.divide(t.op.multiply(t.reshape(x_scale, []), w_scale), t.reshape(scale, []))
    return requantize(t, whole, t.emit(factor), _zero_point(t, zero, t.dtype(x)))


@converts("ConvInteger", since=10)
def _conv_integer(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    x_zero: relax.Expr | None = None,
    w_zero: relax.Expr | None = None,
) -> relax.Expr:
    return _conv_of_integers(t, node, x, w, x_zero, w_zero, None)


def _conv_of_integers(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    x_zero: relax.Expr | None,
    w_zero: relax.Expr | None,
    bias: relax.Expr | None,
) -> relax.Expr:
    """Emit a convolution in int32 of operands minus their zero points; padding has the value of the zero point."""
    left, right = (t.cast(subtract_zero_point(t, v, z, 0), "int32") for v, z in ((x, x_zero), (w, w_zero)))
    return convert_standard(t, node, "Conv", 11, left, right, bias)


def _zero_point(t: OnnxTranslator, zero: relax.Expr | None, dtype: str) -> relax.Expr:
    return t.scalar(0, dtype) if zero is None else t.reshape(zero, [])


def _pairwise(name: str, combine: Callable[[OnnxTranslator, relax.Expr, relax.Expr], relax.Expr]) -> None:
    """Register a converter for an operator of two quantized tensors."""

    @converts(name, domain=MICROSOFT)
    def convert(
        t: OnnxTranslator,
        node: OnnxNode,
        a: relax.Expr,
        a_scale: relax.Expr,
        a_zero: relax.Expr | None,
        b: relax.Expr,
        b_scale: relax.Expr,
        b_zero: relax.Expr | None,
        scale: relax.Expr,
        zero: relax.Expr | None = None,
    ) -> relax.Expr:
        left, right = dequantize(t, a, a_scale, a_zero), dequantize(t, b, b_scale, b_zero)
        return quantize(t, t.emit(combine(t, left, right)), scale, zero, t.dtype(a))


_pairwise("QLinearAdd", lambda t, a, b: t.op.add(a, b))
_pairwise("QLinearMul", lambda t, a, b: t.op.multiply(a, b))


def _single(name: str, compute: Real) -> None:
    """Register a converter for an operator of one quantized tensor."""

    @converts(name, domain=MICROSOFT)
    def convert(
        t: OnnxTranslator,
        node: OnnxNode,
        x: relax.Expr,
        x_scale: relax.Expr,
        x_zero: relax.Expr | None,
        scale: relax.Expr,
        zero: relax.Expr | None = None,
    ) -> relax.Expr:
        result = compute(t, node, dequantize(t, x, x_scale, x_zero))
        return quantize(t, t.emit(result), scale, zero, t.dtype(x))


def _pooled(operator: str) -> Real:
    def pool(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
        if not node.attribute("channels_last", 0):
            return convert_standard(t, node, operator, 11, x)
        rank = t.ndim(x)
        front = t.emit(t.op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
        return t.op.permute_dims(convert_standard(t, node, operator, 11, front), [0, *range(2, rank), 1])

    return pool


_single("QLinearSigmoid", lambda t, node, x: t.op.sigmoid(x))
_single("QLinearLeakyRelu", lambda t, node, x: t.op.nn.leakyrelu(x, node.attribute("alpha", 0.01)))
_single("QLinearAveragePool", _pooled("AveragePool"))
_single("QLinearGlobalAveragePool", _pooled("GlobalAveragePool"))
_single("QLinearSoftmax", lambda t, node, x: convert_standard(t, node, "Softmax", node.attribute("opset", 13), x))


@converts("QLinearConcat", domain=MICROSOFT)
def _qlinear_concat(
    t: OnnxTranslator, node: OnnxNode, scale: relax.Expr, zero: relax.Expr, *parts: relax.Expr
) -> relax.Expr:
    if len(parts) % 3:
        raise Unsupported("each tensor needs a scale and a zero point")
    real = [dequantize(t, *triple) for triple in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]
    joined = t.emit(t.op.concat(real, t.axis(parts[0], node.attribute("axis"))))
    return quantize(t, joined, scale, zero, t.dtype(zero))


@converts("QLinearWhere", domain=MICROSOFT)
def _qlinear_where(
    t: OnnxTranslator,
    node: OnnxNode,
    condition: relax.Expr,
    x: relax.Expr,
    x_scale: relax.Expr,
    x_zero: relax.Expr,
    y: relax.Expr,
    y_scale: relax.Expr,
    y_zero: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr,
) -> relax.Expr:
    one, other = dequantize(t, x, x_scale, x_zero), dequantize(t, y, y_scale, y_zero)
    return quantize(t, t.emit(t.op.where(condition, one, other)), scale, zero, t.dtype(zero))


@converts("QGemm", domain=MICROSOFT)
def _qgemm(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    a_scale: relax.Expr,
    a_zero: relax.Expr | None,
    b: relax.Expr,
    b_scale: relax.Expr,
    b_zero: relax.Expr | None,
    bias: relax.Expr | None = None,
    scale: relax.Expr | None = None,
    zero: relax.Expr | None = None,
) -> relax.Expr:
    left, right = (
        swap_axes(t, v, 0, 1) if node.attribute(name, 0) else v for v, name in ((a, "transA"), (b, "transB"))
    )
    whole = quantized_matmul(t, left, right, a_zero, b_zero)
    if bias is not None:
        whole = t.emit(t.op.add(whole, bias))
    factor = t.op.multiply(t.reshape(a_scale, []), b_scale if not is_per_tensor(t, b_scale) else t.reshape(b_scale, []))
    factor = t.emit(t.op.multiply(factor, scalar_maker(t, a_scale)(node.attribute("alpha", 1.0))))
    if scale is None:
        return t.op.multiply(t.cast(whole, t.dtype(a_scale)), factor)
    multiplier = t.emit(t.op.divide(factor, t.reshape(scale, [])))
    return requantize(t, whole, multiplier, _zero_point(t, zero, t.dtype(a)))
