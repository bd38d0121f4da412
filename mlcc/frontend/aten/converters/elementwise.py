"""Elementwise operators with one operand: rounding, signs, tests, elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.frontend.aten.promotion import category, emit_promoted, float_dtype, is_float, promote
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op

# ---------------------------------------------------------------- tables

_FLOAT_FUNCTIONS: dict[str, Callable[..., relax.Call]] = {
    "acos": op.acos, "acosh": op.acosh, "asin": op.asin, "asinh": op.asinh, "atan": op.atan, "atanh": op.atanh,
    "arccos": op.acos, "arccosh": op.acosh, "arcsin": op.asin, "arcsinh": op.asinh, "arctan": op.atan,
    "arctanh": op.atanh, "cos": op.cos, "cosh": op.cosh, "erf": op.erf, "special_erf": op.erf, "exp": op.exp,
    "expm1": op.expm1, "special_expm1": op.expm1, "log": op.log, "log1p": op.log1p, "special_log1p": op.log1p,
    "rsqrt": op.rsqrt, "sigmoid": op.sigmoid, "special_expit": op.sigmoid, "sin": op.sin, "sinh": op.sinh,
    "sqrt": op.sqrt, "tan": op.tan, "tanh": op.tanh,
}  # fmt: skip
_SAME_TYPE: dict[str, Callable[..., relax.Call]] = {
    "abs": op.abs, "absolute": op.abs, "neg": op.negative, "negative": op.negative,
}  # fmt: skip
_ROUNDING: dict[str, Callable[..., relax.Call]] = {
    "ceil": op.ceil, "floor": op.floor, "trunc": op.trunc, "fix": op.trunc,
}  # fmt: skip


def _float_function(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self: make(t.cast(self, float_dtype(t.dtype(self))))


def _same_type(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self: make(self)


def _rounding(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self: make(self) if is_float(t.dtype(self)) else self


for _names, _kind in ((_FLOAT_FUNCTIONS, _float_function), (_SAME_TYPE, _same_type), (_ROUNDING, _rounding)):
    for _name, _make in _names.items():
        converts(f"aten.{_name}")(_kind(_make))

# ---------------------------------------------------------------- rounding and signs


@converts("aten.positive", "aten.conj", "aten.conj_physical", "aten.real", "aten.resolve_conj", "aten.resolve_neg")
def _positive(t: Translator, self: relax.Expr) -> relax.Expr:
    return self


@converts("aten.round")
def _round(t: Translator, self: relax.Expr, decimals: int = 0) -> relax.Expr:
    dtype = t.dtype(self)
    if not is_float(dtype):
        if decimals:
            raise Unsupported("rounding of integers to decimals is not supported")
        return self
    if not decimals:
        return op.round(self)
    factor = t.scalar(10.0 ** abs(decimals), dtype)
    there, back = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return back(t.emit(op.round(t.emit(there(self, factor)))), factor)


@converts("aten.frac")
def _frac(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.subtract(self, op.trunc(self))


@converts("aten.sign", "aten.sgn")
def _sign(t: Translator, self: relax.Expr) -> relax.Expr:
    dtype = t.dtype(self)
    if category(dtype) == 0:
        return self
    if not is_float(dtype):
        return op.sign(self)
    zero = t.scalar(0, dtype)  # NaN has the sign 0
    above, below = (t.cast(t.emit(test(self, zero)), dtype) for test in (op.greater, op.less))
    return op.subtract(above, below)


@converts("aten.signbit")
def _signbit(t: Translator, self: relax.Expr) -> relax.Expr:
    return sign_bit(t, self)


def sign_bit(t: Translator, value: relax.Expr) -> relax.Var:
    """Return a mask of the elements with a negative sign, including -0."""
    dtype = t.dtype(value)
    if is_float(dtype):
        dtype = promote(dtype, "float32")
        value = t.emit(op.atan2(t.cast(value, dtype), t.scalar(-1, dtype)))  # -pi below -0, pi above
    elif category(dtype) == 0:
        return t.full(t.shape(value), False, "bool")
    return t.emit(op.less(value, t.scalar(0, dtype)))


# ---------------------------------------------------------------- tests


@converts("aten.isnan")
def _isnan(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.isnan(self) if is_float(t.dtype(self)) else t.full(t.shape(self), False, "bool")


@converts("aten.isinf")
def _isinf(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.isinf(self) if is_float(t.dtype(self)) else t.full(t.shape(self), False, "bool")


@converts("aten.isfinite")
def _isfinite(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.isfinite(self) if is_float(t.dtype(self)) else t.full(t.shape(self), True, "bool")


@converts("aten.isposinf")
def _isposinf(t: Translator, self: relax.Expr) -> relax.Expr:
    return _equals_constant(t, self, math.inf)


@converts("aten.isneginf")
def _isneginf(t: Translator, self: relax.Expr) -> relax.Expr:
    return _equals_constant(t, self, -math.inf)


def _equals_constant(t: Translator, value: relax.Expr, wanted: float) -> relax.Expr:
    dtype = t.dtype(value)
    return op.equal(value, t.scalar(wanted, dtype)) if is_float(dtype) else t.full(t.shape(value), False, "bool")


@converts("aten.isreal")
def _isreal(t: Translator, self: relax.Expr) -> relax.Expr:
    return t.full(t.shape(self), True, "bool")


@converts("aten.logical_not")
def _logical_not(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.logical_not(t.cast(self, "bool"))


@converts("aten.bitwise_not", "aten.__invert__")
def _bitwise_not(t: Translator, self: relax.Expr) -> relax.Expr:
    return op.logical_not(self) if t.dtype(self) == "bool" else op.bitwise_not(self)


# ---------------------------------------------------------------- compositions


def _as_float(t: Translator, value: relax.Expr) -> tuple[relax.Expr, Callable[[float], relax.Constant]]:
    """Return the value as floats, and a function that creates constants of that dtype."""
    dtype = float_dtype(t.dtype(value))
    return t.cast(value, dtype), lambda number: t.scalar(number, dtype)


@converts("aten.reciprocal")
def _reciprocal(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    return op.divide(number(1), x)


@converts("aten.exp2", "aten.special_exp2")
def _exp2(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    return op.power(number(2), x)


@converts("aten.log2")
def _log2(t: Translator, self: relax.Expr) -> relax.Expr:
    return _logarithm(t, self, 2)


@converts("aten.log10")
def _log10(t: Translator, self: relax.Expr) -> relax.Expr:
    return _logarithm(t, self, 10)


def _logarithm(t: Translator, value: relax.Expr, base: int) -> relax.Expr:
    """Emit a logarithm to another base."""
    x, number = _as_float(t, value)
    return op.multiply(op.log(x), number(1 / math.log(base)))


@converts("aten.erfc", "aten.special_erfc")
def _erfc(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    return op.subtract(number(1), op.erf(x))


@converts("aten.deg2rad")
def _deg2rad(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    return op.multiply(x, number(math.pi / 180))


@converts("aten.rad2deg")
def _rad2deg(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    return op.multiply(x, number(180 / math.pi))


@converts("aten.logit", "aten.special_logit")
def _logit(t: Translator, self: relax.Expr, eps: float | None = None) -> relax.Expr:
    x, number = _as_float(t, self)
    if eps is not None:
        x = clamp(t, x, number(eps), number(1 - eps))
    return op.log(op.divide(x, op.subtract(number(1), x)))


@converts("aten.sinc", "aten.special_sinc")
def _sinc(t: Translator, self: relax.Expr) -> relax.Expr:
    x, number = _as_float(t, self)
    angle = t.emit(op.multiply(x, number(math.pi)))
    quotient = t.emit(op.divide(op.sin(angle), angle))
    return op.where(op.equal(x, number(0)), number(1), quotient)


@converts("aten.nan_to_num")
def _nan_to_num(
    t: Translator, self: relax.Expr, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> relax.Expr:
    dtype = t.dtype(self)
    if not is_float(dtype):
        return self
    greatest = _MAX_FINITE[dtype]
    replaced = t.emit(op.where(op.isnan(self), t.scalar(nan or 0.0, dtype), self))
    for infinite, given, usual in ((math.inf, posinf, greatest), (-math.inf, neginf, -greatest)):
        there = t.emit(op.equal(self, t.scalar(infinite, dtype)))
        replaced = t.emit(op.where(there, t.scalar(usual if given is None else given, dtype), replaced))
    return replaced


_MAX_FINITE = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
             "float64": 1.7976931348623157e308}  # fmt: skip


def clamp(t: Translator, value: relax.Expr, low: relax.Expr | None, high: relax.Expr | None) -> relax.Expr:
    """Clamp the value to at least `low`, then to at most `high`. NaN stays NaN."""
    if low is not None:
        value = t.emit(op.maximum(value, low))
    return value if high is None else t.emit(op.minimum(value, high))


@converts("aten.heaviside")
def _heaviside(t: Translator, self: relax.Expr, values: relax.Expr) -> relax.Expr:
    dtype = t.dtype(self)
    zero = t.scalar(0, dtype)
    positive = t.cast(emit_promoted(t, op.greater, self, zero), dtype)
    return op.where(op.equal(self, zero), values, positive)
