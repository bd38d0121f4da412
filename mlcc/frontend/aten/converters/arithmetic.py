"""Elementwise operators with several operands: arithmetic, comparisons, logic, bits, selection."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.frontend.aten.converters.elementwise import clamp, sign_bit
from mlcc.frontend.aten.promotion import (
    Value,
    as_tensor,
    float_dtype,
    is_float,
    promote_operands,
    result_type,
)
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.relax import op

# ---------------------------------------------------------------- sums, products, quotients


def scaled(t: Translator, value: Value, factor: Value, dtype: str) -> relax.Expr:
    """Multiply an operand by a number (`alpha`); emit no operator if that is 1."""
    tensor = as_tensor(t, value, dtype)
    if isinstance(factor, (bool, int, float)) and factor == 1:
        return tensor
    return t.emit(op.multiply(tensor, as_tensor(t, factor, dtype)))


@converts("aten.add")
def _add(t: Translator, self: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    dtype = result_type(t, self, other)
    return op.add(as_tensor(t, self, dtype), scaled(t, other, alpha, dtype))


@converts("aten.sub", "aten.subtract")
def _sub(t: Translator, self: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    dtype = result_type(t, self, other)
    return op.subtract(as_tensor(t, self, dtype), scaled(t, other, alpha, dtype))


@converts("aten.rsub")
def _rsub(t: Translator, self: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    return _sub(t, other, self, alpha)


@converts("aten.mul", "aten.multiply")
def _mul(t: Translator, self: Value, other: Value) -> relax.Expr:
    return op.multiply(*promote_operands(t, self, other))


@converts("aten.div", "aten.divide", "aten.true_divide")
def _div(t: Translator, self: Value, other: Value, rounding_mode: str | None = None) -> relax.Expr:
    if rounding_mode is None:
        return op.divide(*promote_operands(t, self, other, floating=True))
    x, y = promote_operands(t, self, other)
    if rounding_mode == "floor":
        return op.floor_divide(x, y)
    if rounding_mode != "trunc":
        raise Unsupported(f'rounding_mode="{rounding_mode}"')
    quotient = op.divide(x, y)  # truncated for integers
    return op.trunc(t.emit(quotient)) if is_float(t.dtype(x)) else quotient


@converts("aten.floor_divide")
def _floor_divide(t: Translator, self: Value, other: Value) -> relax.Expr:
    return _div(t, self, other, "floor")


@converts("aten.remainder")
def _remainder(t: Translator, self: Value, other: Value) -> relax.Expr:
    return op.floor_mod(*promote_operands(t, self, other))


@converts("aten.fmod")
def _fmod(t: Translator, self: Value, other: Value) -> relax.Expr:
    return op.mod(*promote_operands(t, self, other))


@converts("aten.addcmul")
def _addcmul(t: Translator, self: relax.Expr, tensor1: relax.Expr, tensor2: relax.Expr, value: Value = 1) -> relax.Expr:
    x, a, b = promote_operands(t, self, tensor1, tensor2)
    return op.add(x, op.multiply(scaled(t, a, value, t.dtype(x)), b))


@converts("aten.addcdiv")
def _addcdiv(t: Translator, self: relax.Expr, tensor1: relax.Expr, tensor2: relax.Expr, value: Value = 1) -> relax.Expr:
    x, a, b = promote_operands(t, self, tensor1, tensor2)
    return op.add(x, op.divide(scaled(t, a, value, t.dtype(x)), b))


@converts("aten.lerp")
def _lerp(t: Translator, self: relax.Expr, end: relax.Expr, weight: Value) -> relax.Expr:
    dtype = t.dtype(self)
    start, stop, portion = (as_tensor(t, value, dtype) for value in (self, end, weight))
    span = t.emit(op.subtract(stop, start))
    rest = t.emit(op.subtract(t.scalar(1, dtype), portion))
    from_start = t.emit(op.add(start, op.multiply(portion, span)))
    from_end = t.emit(op.subtract(stop, op.multiply(span, rest)))
    near = t.emit(op.less(op.abs(portion), t.scalar(0.5, dtype)))
    return op.where(near, from_start, from_end)


# ---------------------------------------------------------------- powers


@converts("aten.pow", "aten.square")
def _pow(t: Translator, self: Value, exponent: Value = 2) -> relax.Expr:
    return power(t, self, exponent)


@converts("aten.float_power")
def _float_power(t: Translator, self: Value, exponent: Value) -> relax.Expr:
    return power(t, as_tensor(t, self, "float64"), exponent if _is_number(exponent) else t.cast(exponent, "float64"))  # type: ignore[arg-type]


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float))


def power(t: Translator, base: Value, exponent: Value) -> relax.Expr:
    """Emit a power; for small integers and halves as products and roots, as PyTorch computes them."""
    dtype = result_type(t, base, exponent)
    x = as_tensor(t, base, dtype)
    if isinstance(exponent, (int, float)):
        if exponent in _KNOWN_POWERS and (is_float(dtype) or exponent >= 0):
            return _KNOWN_POWERS[exponent](t, x)
        if not is_float(dtype):
            return _constant_power(t, x, int(exponent))
    elif not is_float(dtype):
        return _power_by_bits(t, x, as_tensor(t, exponent, dtype))
    return op.power(x, as_tensor(t, exponent, dtype))


def _square(t: Translator, x: relax.Expr) -> relax.Expr:
    return op.multiply(x, x)


def _inverse(t: Translator, x: relax.Expr) -> relax.Expr:
    return op.divide(t.scalar(1, t.dtype(x)), x)


_KNOWN_POWERS: dict[float, Callable[[Translator, relax.Expr], relax.Expr]] = {
    0: lambda t, x: t.full(t.shape(x), 1, t.dtype(x)),
    1: lambda t, x: x,
    2: _square,
    3: lambda t, x: op.multiply(t.emit(_square(t, x)), x),
    0.5: lambda t, x: op.sqrt(x),
    -0.5: lambda t, x: op.rsqrt(x),
    -1: _inverse,
    -2: lambda t, x: _inverse(t, t.emit(_square(t, x))),
}


def _constant_power(t: Translator, x: relax.Expr, exponent: int) -> relax.Expr:
    """Integer power with a constant exponent, by repeated squaring."""
    if exponent < 0:
        raise Unsupported("a negative power of integers is not supported")
    raised: relax.Expr | None = None
    while True:
        if exponent & 1:
            raised = x if raised is None else t.emit(op.multiply(raised, x))
        exponent >>= 1
        if not exponent:
            return t.full(t.shape(x), 1, t.dtype(x)) if raised is None else raised
        x = t.emit(op.multiply(x, x))


def _power_by_bits(t: Translator, x: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Integer power by repeated squaring over the bits of the exponents. Negative powers are 0 except for bases 1 and
    -1."""
    dtype = t.dtype(x)
    one, zero = t.scalar(1, dtype), t.scalar(0, dtype)
    raised: relax.Expr = one
    square = x
    for bit in range(DType.of(dtype).bits - (dtype != "uint8")):
        chosen = t.emit(op.not_equal(op.bitwise_and(exponent, t.scalar(1 << bit, dtype)), zero))
        raised = t.emit(op.where(chosen, op.multiply(raised, square), raised))
        square = t.emit(op.multiply(square, square))
    if dtype == "uint8":
        return raised
    unit = t.emit(op.equal(op.abs(x), one))
    inverse = t.emit(op.where(unit, raised, zero))
    return op.where(op.less(exponent, zero), inverse, raised)


# ---------------------------------------------------------------- comparisons, logic, bits

_COMPARISONS: dict[str, Callable[..., relax.Call]] = {
    "eq": op.equal, "ne": op.not_equal, "lt": op.less, "le": op.less_equal, "gt": op.greater, "ge": op.greater_equal,
    "not_equal": op.not_equal, "less": op.less, "less_equal": op.less_equal, "greater": op.greater,
    "greater_equal": op.greater_equal,
}  # fmt: skip
_LOGIC: dict[str, Callable[..., relax.Call]] = {
    "logical_and": op.logical_and, "logical_or": op.logical_or, "logical_xor": op.logical_xor,
}  # fmt: skip
_BITS: dict[str, tuple[Callable[..., relax.Call], Callable[..., relax.Call]]] = {
    "and": (op.bitwise_and, op.logical_and), "or": (op.bitwise_or, op.logical_or),
    "xor": (op.bitwise_xor, op.logical_xor),
}  # fmt: skip
_SHIFTS: dict[str, Callable[..., relax.Call]] = {"left_shift": op.left_shift, "right_shift": op.right_shift}
_FLOAT_BINARY: dict[str, Callable[..., relax.Call]] = {"atan2": op.atan2, "arctan2": op.atan2}


def _comparison(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self, other: make(*promote_operands(t, self, other))


def _logical(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self, other: make(as_tensor(t, self, "bool"), as_tensor(t, other, "bool"))


def _bitwise(ints: Callable[..., relax.Call], bools: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    def convert(t: Translator, self: Value, other: Value) -> relax.Expr:
        x, y = promote_operands(t, self, other)
        return (bools if t.dtype(x) == "bool" else ints)(x, y)

    return convert


def _float_binary(make: Callable[..., relax.Call]) -> Callable[..., relax.Expr]:
    return lambda t, self, other: make(*promote_operands(t, self, other, floating=True))


for _name, _make in _COMPARISONS.items():
    converts(f"aten.{_name}")(_comparison(_make))
for _name, _make in _LOGIC.items():
    converts(f"aten.{_name}")(_logical(_make))
for _name, (_ints, _bools) in _BITS.items():
    converts(f"aten.bitwise_{_name}", f"aten.__{_name}__")(_bitwise(_ints, _bools))
for _name, _make in _SHIFTS.items():
    converts(f"aten.bitwise_{_name}", f"aten.__{_name[0]}shift__")(_comparison(_make))
for _name, _make in _FLOAT_BINARY.items():
    converts(f"aten.{_name}")(_float_binary(_make))


# ---------------------------------------------------------------- extremes


def maximum(t: Translator, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """Return the elementwise maximum; NaN if an element is NaN."""
    return t.emit(op.maximum(x, y))


def minimum(t: Translator, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """Return the elementwise minimum; NaN if an element is NaN."""
    return t.emit(op.minimum(x, y))


@converts("aten.maximum", "aten.max.other")
def _maximum(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    return maximum(t, *promote_operands(t, self, other))


@converts("aten.minimum", "aten.min.other")
def _minimum(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    return minimum(t, *promote_operands(t, self, other))


@converts("aten.fmax")
def _fmax(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    return _ignoring_nan(t, op.maximum, *promote_operands(t, self, other))


@converts("aten.fmin")
def _fmin(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    return _ignoring_nan(t, op.minimum, *promote_operands(t, self, other))


def _ignoring_nan(t: Translator, make: Callable[..., relax.Call], x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """Combine two operands, with NaN only where both are NaN."""
    if not is_float(t.dtype(x)):
        return make(x, y)
    return op.where(op.isnan(y), x, t.emit(op.where(op.isnan(x), y, make(x, y))))


@converts("aten.clamp", "aten.clip")
def _clamp(t: Translator, self: relax.Expr, min: Value | None = None, max: Value | None = None) -> relax.Expr:
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype = result_type(t, self, *bounds)
    x = as_tensor(t, self, dtype)
    if min is not None:
        x = _clamp_to(t, x, min, dtype, maximum)
    return x if max is None else _clamp_to(t, x, max, dtype, minimum)


def _clamp_to(t: Translator, x: relax.Expr, bound: Value, dtype: str, choose: Callable[..., relax.Expr]) -> relax.Expr:
    limit = as_tensor(t, bound, dtype)
    if isinstance(bound, (int, float)) and not math.isnan(bound):
        return clamp(t, x, *((limit, None) if choose is maximum else (None, limit)))
    return choose(t, x, limit)


@converts("aten.clamp_min")
def _clamp_min(t: Translator, self: relax.Expr, min: Value) -> relax.Expr:
    return _clamp(t, self, min)


@converts("aten.clamp_max")
def _clamp_max(t: Translator, self: relax.Expr, max: Value) -> relax.Expr:
    return _clamp(t, self, None, max)


# ---------------------------------------------------------------- selection


@converts("aten.where.self", "aten.where.Scalar", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def _where(t: Translator, condition: relax.Expr, self: Value, other: Value) -> relax.Expr:
    return op.where(t.cast(condition, "bool"), *promote_operands(t, self, other))


@converts("aten.masked_fill")
def _masked_fill(t: Translator, self: relax.Expr, mask: relax.Expr, value: Value) -> relax.Expr:
    return op.where(mask, as_tensor(t, value, t.dtype(self)), self)


@converts("aten.threshold")
def _threshold(t: Translator, self: relax.Expr, threshold: Value, value: Value) -> relax.Expr:
    dtype = t.dtype(self)
    below = t.emit(op.less_equal(self, as_tensor(t, threshold, dtype)))
    return op.where(below, as_tensor(t, value, dtype), self)


# ---------------------------------------------------------------- compositions


@converts("aten.logaddexp")
def _logaddexp(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    x, y = promote_operands(t, self, other, floating=True)
    return logaddexp(t, x, y, 1.0)


@converts("aten.logaddexp2")
def _logaddexp2(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    x, y = promote_operands(t, self, other, floating=True)
    return logaddexp(t, x, y, math.log(2))


def logaddexp(t: Translator, x: relax.Expr, y: relax.Expr, unit: float = 1.0) -> relax.Expr:
    """max + log1p(exp(-|x - y|)), with logarithms in `unit`; equal infinities are themselves."""
    dtype = t.dtype(x)
    difference = t.emit(op.negative(op.abs(op.subtract(x, y))))
    if unit != 1:
        difference = t.emit(op.multiply(difference, t.scalar(unit, dtype)))
    rest: relax.Expr = t.emit(op.log1p(op.exp(difference)))
    if unit != 1:
        rest = t.emit(op.multiply(rest, t.scalar(1 / unit, dtype)))
    total = t.emit(op.add(maximum(t, x, y), rest))
    same = t.emit(op.logical_and(op.isinf(x), op.equal(x, y)))
    return op.where(same, x, total)


@converts("aten.hypot")
def _hypot(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    x, y = (t.emit(op.abs(v)) for v in promote_operands(t, self, other))
    dtype = t.dtype(x)
    high, low = maximum(t, x, y), minimum(t, x, y)
    ratio = t.emit(op.divide(low, high))
    root = t.emit(op.sqrt(op.add(op.multiply(ratio, ratio), t.scalar(1, dtype))))
    length = op.where(op.equal(high, t.scalar(0, dtype)), high, op.multiply(high, root))
    return op.where(op.logical_or(op.isinf(x), op.isinf(y)), t.scalar(math.inf, dtype), length)


@converts("aten.copysign")
def _copysign(t: Translator, self: Value, other: Value) -> relax.Expr:
    x, y = promote_operands(t, self, other, floating=True)
    size = t.emit(op.abs(x))
    return op.where(sign_bit(t, y), op.negative(size), size)


@converts("aten.ldexp")
def _ldexp(t: Translator, self: Value, other: Value) -> relax.Expr:
    x, exponent = promote_operands(t, self, other, floating=True)
    return op.multiply(x, op.power(t.scalar(2, t.dtype(x)), exponent))


@converts("aten.xlogy", "aten.special_xlogy")
def _xlogy(t: Translator, self: Value, other: Value) -> relax.Expr:
    x, y = promote_operands(t, self, other, floating=True)
    return xlogy(t, x, y, op.log)


@converts("aten.special_xlog1py")
def _xlog1py(t: Translator, self: Value, other: Value) -> relax.Expr:
    x, y = promote_operands(t, self, other, floating=True)
    return xlogy(t, x, y, op.log1p)


def xlogy(t: Translator, x: relax.Expr, y: relax.Expr, log: Callable[..., relax.Call]) -> relax.Expr:
    zero = t.scalar(0, t.dtype(x))
    product = t.emit(op.multiply(x, t.emit(log(y))))
    at_zero = t.emit(op.where(op.equal(x, zero), zero, product))
    return op.where(op.isnan(y), y, at_zero)


@converts("aten.isclose")
def _isclose(
    t: Translator,
    self: relax.Expr,
    other: relax.Expr,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> relax.Expr:
    return close_mask(t, self, other, rtol, atol, equal_nan)


def close_mask(
    t: Translator, self: relax.Expr, other: relax.Expr, rtol: float, atol: float, equal_nan: bool
) -> relax.Expr:
    """Return a mask of the elements that are equal, or finite and within the tolerances."""
    x, y = promote_operands(t, self, other)
    equal: relax.Expr = t.emit(op.equal(x, y))
    if equal_nan and is_float(t.dtype(x)):
        both = t.emit(op.logical_and(op.isnan(x), op.isnan(y)))
        equal = t.emit(op.logical_or(equal, both))
    if rtol == 0 and atol == 0:
        return equal
    dtype = float_dtype(t.dtype(x))
    x, y = t.cast(x, dtype), t.cast(y, dtype)
    span = t.emit(op.multiply(op.abs(y), t.scalar(rtol, dtype)))
    allowed = t.emit(op.add(span, t.scalar(atol, dtype)))
    distance = t.emit(op.abs(op.subtract(x, y)))
    near = t.emit(op.logical_and(op.isfinite(distance), op.less_equal(distance, allowed)))
    return op.logical_or(equal, near)
