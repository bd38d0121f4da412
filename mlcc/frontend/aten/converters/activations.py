"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.frontend.aten.converters.elementwise import clamp
from mlcc.frontend.aten.converters.reductions import reduce
from mlcc.frontend.aten.promotion import Value, as_tensor, float_dtype
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.relax import op


@converts("aten.relu")
def _relu(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.nn.relu(self)


@converts("aten.relu6")
def _relu6(t: Translator, self: relax.Expr) -> relax.Expr:
    return _hardtanh(t, self, 0, 6)


@converts("aten.hardtanh")
def _hardtanh(t: Translator, self: relax.Expr, min_val: float = -1, max_val: float = 1) -> relax.Expr:
    dtype = t.dtype(self)
    return clamp(t, self, t.scalar(min_val, dtype), t.scalar(max_val, dtype))


@converts("aten.gelu")
def _gelu(t: Translator, self: relax.Expr, approximate: str = "none") -> relax.Expr:
    if approximate not in ("none", "tanh"):
        raise Unsupported(f'approximate="{approximate}"')
    return op.nn.gelu(self) if approximate == "none" else op.nn.gelu_tanh(self)


@converts("aten.silu")
def _silu(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.nn.silu(self)


@converts("aten.selu")
def _selu(t: Translator, self: relax.Expr) -> relax.Expr:
    return _elu(t, self, 1.6732632423543772, 1.0507009873554805)


@converts("aten.celu")
def _celu(t: Translator, self: relax.Expr, alpha: float = 1.0) -> relax.Expr:
    return _elu(t, self, alpha, 1, 1 / alpha)


@converts("aten.elu")
def _elu(t: Translator, self: relax.Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> relax.Expr:
    dtype = t.dtype(self)
    below = op.multiply(op.expm1(op.multiply(self, t.scalar(input_scale, dtype))), t.scalar(alpha * scale, dtype))
    above = op.multiply(self, t.scalar(scale, dtype))
    return op.where(op.greater(self, t.scalar(0, dtype)), above, below)


@converts("aten.leaky_relu")
def _leaky_relu(t: Translator, self: relax.Expr, negative_slope: float = 0.01) -> relax.Expr:
    return op.nn.leakyrelu(self, float(negative_slope))


@converts("aten.prelu", "aten._prelu_kernel")
def _prelu(t: Translator, self: relax.Expr, weight: relax.Expr) -> relax.Expr:
    slopes: relax.Expr = weight
    if t.ndim(weight) < t.ndim(self):  # one for each channel, or one for all
        channels = t.shape(weight)[0] if t.ndim(weight) else 1
        rest = [1] * (t.ndim(self) - 2)
        shape = [1] * t.ndim(self) if tir.const_int(t.shape(weight)[0]) == 1 else [1, channels, *rest]
        slopes = t.reshape(weight, shape)
    return op.where(op.greater(self, t.scalar(0, t.dtype(self))), self, op.multiply(slopes, self))


@converts("aten.rrelu", "aten.rrelu_with_noise")
def _rrelu(
    t: Translator, self: relax.Expr, noise: relax.Expr | None = None, lower: float = 0.125, upper: float = 1 / 3,
    training: bool = False, generator: None = None,
) -> relax.Expr:  # fmt: skip
    if training:
        raise Unsupported("random slopes are used only in training: export the model in eval mode")
    return op.nn.leakyrelu(self, (lower + upper) / 2)


@converts("aten.hardsigmoid")
def _hardsigmoid(t: Translator, self: relax.Expr) -> relax.Expr:
    return hard_sigmoid(t, self)


def hard_sigmoid(t: Translator, value: relax.Expr) -> relax.Expr:
    """clamp(x + 3, 0, 6) / 6."""
    dtype = t.dtype(value)
    moved = t.emit(op.add(value, t.scalar(3, dtype)))
    bounded = clamp(t, moved, t.scalar(0, dtype), t.scalar(6, dtype))
    return t.emit(op.divide(bounded, t.scalar(6, dtype)))


@converts("aten.hardswish")
def _hardswish(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.multiply(self, hard_sigmoid(t, self))


@converts("aten.mish")
def _mish(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.multiply(self, op.tanh(_softplus(t, self)))


@converts("aten.softplus")
def _softplus(t: Translator, self: relax.Expr, beta: float = 1, threshold: float = 20) -> relax.Expr:
    dtype = t.dtype(self)
    scaled = t.emit(op.multiply(self, t.scalar(beta, dtype)))
    soft = op.divide(op.log1p(op.exp(scaled)), t.scalar(beta, dtype))
    return op.where(op.greater(scaled, t.scalar(threshold, dtype)), self, soft)


@converts("aten.softsign")
def _softsign(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.divide(self, op.add(op.abs(self), t.scalar(1, t.dtype(self))))


@converts("aten.tanhshrink")
def _tanhshrink(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.subtract(self, op.tanh(self))


@converts("aten.softshrink")
def _softshrink(t: Translator, self: relax.Expr, lambd: float = 0.5) -> relax.Expr:
    dtype = t.dtype(self)
    limit = t.scalar(lambd, dtype)
    outside = op.where(op.greater(self, limit), op.subtract(self, limit), op.add(self, limit))
    return op.where(op.less_equal(op.abs(self), limit), t.scalar(0, dtype), outside)


@converts("aten.hardshrink")
def _hardshrink(t: Translator, self: relax.Expr, lambd: Value = 0.5) -> relax.Expr:
    dtype = t.dtype(self)
    limit = as_tensor(t, lambd, dtype)
    inside = op.logical_and(op.greater_equal(self, op.negative(limit)), op.less_equal(self, limit))
    return op.where(inside, t.scalar(0, dtype), self)


@converts("aten.log_sigmoid")
def _log_sigmoid(t: Translator, self: relax.Expr) -> relax.Expr:
    return log_sigmoid(t, self)


@converts("aten.log_sigmoid_forward")
def _log_sigmoid_forward(t: Translator, self: relax.Expr) -> list[relax.Expr | None]:
    return [log_sigmoid(t, self), None]


def log_sigmoid(t: Translator, value: relax.Expr) -> relax.Expr:
    """min(0, x) - log1p(exp(-|x|))."""
    low = op.minimum(t.scalar(0, t.dtype(value)), value)
    return t.emit(op.subtract(low, op.log1p(op.exp(op.negative(op.abs(value))))))


@converts("aten.glu")
def _glu(t: Translator, self: relax.Expr, dim: int = -1) -> relax.Expr:
    halves = t.emit(op.split(self, 2, t.axis(self, dim)))
    return op.multiply(t.emit(halves[0]), op.sigmoid(t.emit(halves[1])))


@converts("aten.softmax", "aten._softmax", "aten.special_softmax")
def _softmax(
    t: Translator, self: relax.Expr, dim: int, dtype: str | None = None, half_to_float: bool = False
) -> relax.Expr:
    return _softmax_along(t, op.nn.softmax, self, dim, dtype, half_to_float)


@converts("aten._safe_softmax")
def _safe_softmax(t: Translator, self: relax.Expr, dim: int, dtype: str | None = None) -> relax.Expr:
    """Emit a softmax that is 0 if all elements are -inf."""
    softmax = _softmax_along(t, op.nn.softmax, self, dim, dtype, False)
    lowest = t.emit(op.equal(self, t.scalar(-math.inf, t.dtype(self))))
    hidden = reduce(t, op.min, lowest, dim, True)
    return op.where(hidden, t.scalar(0, t.dtype(softmax)), softmax)


@converts("aten.log_softmax", "aten._log_softmax", "aten.special_log_softmax")
def _log_softmax(
    t: Translator, self: relax.Expr, dim: int, dtype: str | None = None, half_to_float: bool = False
) -> relax.Expr:
    return _softmax_along(t, op.nn.log_softmax, self, dim, dtype, half_to_float)


@converts("aten.softmin")
def _softmin(t: Translator, self: relax.Expr, dim: int, dtype: str | None = None) -> relax.Expr:
    return _softmax_along(t, op.nn.softmax, t.emit(op.negative(self)), dim, dtype, False)


def _softmax_along(
    t: Translator, make: Callable[..., relax.Call], value: relax.Expr, dim: int, dtype: str | None, widens: bool
) -> relax.Expr:
    """Emit a softmax in its dtype, on at least one dimension. PyTorch accepts integers only for empty tensors."""
    shape, own = t.shape(value), t.dtype(value)
    value = t.cast(value, "float32" if widens else dtype or float_dtype(t.dtype(value)))
    activated = t.emit(make(value if shape else t.reshape(value, [1]), t.axis(value, dim)))
    return t.cast(t.reshape(activated, shape), dtype or ("float32" if widens else own))
