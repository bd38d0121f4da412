"""Activation functions."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import MICROSOFT, iota_along, is_float, one_of, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.ir import relax
from mlcc.ops.shapes import product

SELU = 1.67326319217681884765625, 1.05070102214813232421875


@converts("Gelu", since=20)
def _gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    known = ("none", "tanh")
    tanh = one_of(node.attribute("approximate", "none"), known, "approximate") == "tanh"
    return t.op.nn.gelu_tanh(x) if tanh else t.op.nn.gelu(x)


@converts("Gelu", domain=MICROSOFT)
def _exact_gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.gelu(x)


@converts("BiasGelu", domain=MICROSOFT)
def _bias_gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, bias: relax.Expr) -> relax.Expr:
    return t.op.nn.gelu(t.op.add(x, bias))


@converts("FastGelu", domain=MICROSOFT)
def _fast_gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, bias: relax.Expr | None = None) -> relax.Expr:
    return t.op.nn.gelu_tanh(x if bias is None else t.op.add(x, bias))


@converts("Swish", since=24)
def _swish(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return swish(t, x, node.attribute("alpha", 1.0))


@converts("QuickGelu", domain=MICROSOFT)
def _quick_gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return swish(t, x, node.attribute("alpha", 1.702))


@converts("SwiGLU", since=28)
def _swiglu(t: OnnxTranslator, node: OnnxNode, gate: relax.Expr, value: relax.Expr) -> relax.Expr:
    return t.op.multiply(swish(t, gate, node.attribute("alpha", 1.0)), value)


def swish(t: OnnxTranslator, x: relax.Expr, alpha: float) -> relax.Expr:
    """x * sigmoid(alpha * x)"""
    if alpha == 1:
        return t.op.nn.silu(x)
    return t.op.multiply(x, t.op.sigmoid(t.op.multiply(x, scalar_maker(t, x)(alpha))))


@converts("Mish", since=18)
def _mish(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.multiply(x, t.op.tanh(softplus(t, x)))


@converts("Softplus")
def _softplus(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return softplus(t, x)


def softplus(t: OnnxTranslator, x: relax.Expr) -> relax.Expr:
    """log(1 + exp(x)), computed without overflow or cancellation."""
    small = t.op.log1p(t.op.exp(t.op.negative(t.op.abs(x))))
    return t.op.add(t.op.nn.relu(x), small)


@converts("Softsign")
def _softsign(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.divide(x, t.op.add(t.op.abs(x), scalar_maker(t, x)(1)))


@converts("HardSwish", since=14)
def _hardswish(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.multiply(x, hard_sigmoid(t, x, 1 / 6, 0.5))


@converts("HardSigmoid")
def _hard_sigmoid(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return hard_sigmoid(t, x, node.attribute("alpha", 0.2), node.attribute("beta", 0.5))


def hard_sigmoid(t: OnnxTranslator, x: relax.Expr, alpha: float, beta: float) -> relax.Expr:
    """alpha * x + beta between 0 and 1."""
    s = scalar_maker(t, x)
    return t.op.clip(t.op.add(t.op.multiply(x, s(alpha)), s(beta)), 0, 1)


@converts("Elu")
def _elu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return elu(t, x, node.attribute("alpha", 1.0))


def elu(t: OnnxTranslator, x: relax.Expr, alpha: float, gamma: float = 1.0, scale: float = 1.0) -> relax.Expr:
    """gamma * x where x is above 0, gamma * alpha * (exp(x / scale) - 1) elsewhere."""
    s = scalar_maker(t, x)
    below = t.op.nn.relu(t.op.negative(x))  # the exponential of a positive element could overflow
    below = t.op.negative(below if scale == 1 else t.op.divide(below, s(scale)))
    slope = alpha * gamma
    curve = t.op.expm1(below) if slope == 1 else t.op.multiply(t.op.expm1(below), s(slope))
    return t.op.where(t.op.greater(x, s(0)), x if gamma == 1 else t.op.multiply(x, s(gamma)), curve)


@converts("Celu", since=12)
def _celu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    alpha = node.attribute("alpha", 1.0)
    return elu(t, x, alpha, scale=alpha)


@converts("Selu")
def _selu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    alpha, gamma = node.attribute("alpha", SELU[0]), node.attribute("gamma", SELU[1])
    standard = abs(alpha - SELU[0]) < 1e-6 and abs(gamma - SELU[1]) < 1e-6
    return t.op.nn.selu(x) if standard else elu(t, x, alpha, gamma)


@converts("LeakyRelu")
def _leaky_relu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.leakyrelu(x, node.attribute("alpha", 0.01))


@converts("PRelu")
def _prelu_of_channels(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    if t.ndim(slope) == 1 and t.ndim(x) > 1:
        slope = t.reshape(slope, [*t.shape(slope), *[1] * (t.ndim(x) - 2)])
    return _prelu(t, node, x, slope)


@converts("PRelu", since=7)
def _prelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    return t.op.where(t.op.less(x, scalar_maker(t, x)(0)), t.op.multiply(x, slope), x)


@converts("ThresholdedRelu")
def _thresholded_relu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    s = scalar_maker(t, x)
    return t.op.where(t.op.greater(x, s(node.attribute("alpha", 1.0))), x, s(0))


@converts("Shrink", since=9)
def _shrink(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    wide = x if is_float(t, x) else t.cast(x, "float64")
    s = scalar_maker(t, wide)
    edge, bias = node.attribute("lambd", 0.5), node.attribute("bias", 0.0)
    above = t.op.where(t.op.greater(wide, s(edge)), t.op.subtract(wide, s(bias)), s(0))
    shrunk = t.op.where(t.op.less(wide, s(-edge)), t.op.add(wide, s(bias)), above)
    return t.cast(t.emit(shrunk), t.dtype(x))


@converts("Hardmax", since=13)
def _hardmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return hardmax(t, x, t.axis(x, node.attribute("axis", -1)))


@converts("Hardmax")
def _flat_hardmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    axis = t.axis(x, node.attribute("axis", 1))
    rows = t.emit(t.op.reshape(x, flat_rows(t, x, axis)))
    return t.reshape(t.emit(hardmax(t, rows, 1)), t.shape(x))


def flat_rows(t: OnnxTranslator, x: relax.Expr, axis: int) -> relax.ShapeExpr:
    """Return the shape of a matrix whose rows are the dimensions before the axis, and whose columns are the others."""
    shape = t.shape(x)
    return t.shape_expr([product(shape[:axis]), product(shape[axis:])])


def hardmax(t: OnnxTranslator, x: relax.Expr, axis: int) -> relax.Expr:
    """Return 1 at the first maximum along an axis, 0 elsewhere."""
    greatest = t.op.argmax(x, axis, keepdims=True)
    places = iota_along(t, t.ndim(x), axis, t.shape(x)[axis])
    return t.op.astype(t.op.equal(greatest, places), t.dtype(x))
