"""Elementwise operators: arithmetic, comparisons, logic, bits, conversions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.extents import broadcast_shapes
from mlcc.frontend.onnx.helpers import is_float, one_of, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax
from mlcc.ir.dtypes import DType

# Operators with a relax counterpart: ONNX name -> relax name
_DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "logical_and", "Asin": "asin",
    "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh", "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Div": "divide", "Equal": "equal", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less", "LessOrEqual": "less_equal", "Log": "log",
    "Mul": "multiply", "Neg": "negative", "Not": "logical_not", "Or": "logical_or", "Round": "round",
    "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Sub": "subtract", "Tan": "tan",
    "Tanh": "tanh", "Where": "where", "Xor": "logical_xor",
}  # fmt: skip


def _direct(name: str) -> Callable[..., relax.Expr]:
    def convert(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
        return _with_broadcast_shape(t, getattr(t.op, name)(*operands), operands)

    return convert


def _with_broadcast_shape(t: OnnxTranslator, result: relax.Expr, operands: Sequence[relax.Expr]) -> relax.Expr:
    """Give a result the broadcast shape; of different symbols, which must be equal or 1, the maximum."""
    info = result.struct_info
    if len(operands) < 2 or not isinstance(info, relax.TensorStructInfo) or info.shape is not None:
        return result
    return t.with_shape(result, functools.reduce(broadcast_shapes, (t.shape(value) for value in operands)))


for _operator, _name in _DIRECT.items():
    converts(_operator)(_direct(_name))


@converts("Relu")
def _relu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.relu(x)


@converts("Reciprocal")
def _reciprocal(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.divide(scalar_maker(t, x)(1), x)


@converts("Pow")
def _pow(t: OnnxTranslator, node: OnnxNode, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    dtype = t.dtype(base)
    if is_float(t, exponent) and not is_float(t, base):
        return t.cast(t.emit(t.op.power(t.cast(base, t.dtype(exponent)), exponent)), dtype)
    if is_float(t, base):
        return t.op.power(base, t.cast(exponent, dtype))
    return _integer_power(t, base, t.cast(exponent, dtype))


def _integer_power(t: OnnxTranslator, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Integer power by squaring. Above 63, where only 0, 1 and -1 do not overflow, only the parity of the exponent
    matters; also below 0, where powers of other bases are 0."""
    s = scalar_maker(t, base)
    positive = DType.of(t.dtype(base)).is_uint
    size = exponent if positive else t.emit(t.op.abs(exponent))
    odd = t.op.bitwise_and(size, s(1))
    size = t.emit(t.op.where(t.op.greater(size, s(63)), t.op.add(odd, s(62)), size))
    power: relax.Expr = s(1)
    factor = base
    for bit in range(6):
        chosen = t.op.not_equal(t.op.bitwise_and(size, s(1 << bit)), s(0))
        power = t.emit(t.op.multiply(power, t.op.where(chosen, factor, s(1))))
        factor = t.emit(t.op.multiply(factor, factor))
    if positive:
        return power
    unit = t.op.equal(t.op.abs(base), s(1))
    return t.op.where(t.op.logical_or(t.op.greater_equal(exponent, s(0)), unit), power, s(0))


@converts("Mod")
def _mod(t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    if node.attribute("fmod", 0):
        return t.op.mod(a, b)
    return t.op.floor_mod(a, b)


# ---------------------------------------------------------------- several operands


@converts("Sum")
def _sum(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
    return functools.reduce(lambda a, b: t.emit(_with_broadcast_shape(t, t.op.add(a, b), (a, b))), operands)


@converts("Mean")
def _mean(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
    return t.op.divide(_sum(t, node, *operands), scalar_maker(t, operands[0])(len(operands)))


@converts("Max")
def _max(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
    return functools.reduce(lambda a, b: t.emit(t.op.maximum(a, b)), operands)


@converts("Min")
def _min(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
    return functools.reduce(lambda a, b: t.emit(t.op.minimum(a, b)), operands)


@converts("Sign")
def _sign(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Emit the sign; NaN for NaN."""
    sign = t.emit(t.op.sign(x))
    return t.op.where(t.op.isnan(x), x, sign) if is_float(t, x) else sign


# ---------------------------------------------------------------- ranges, tests


@converts("Clip")
def _clip_attributes(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    low, high = node.attribute("min"), node.attribute("max")
    scalar = scalar_maker(t, x)
    return _clip(t, node, x, None if low is None else scalar(low), None if high is None else scalar(high))


@converts("Clip", since=11)
def _clip(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, low: relax.Expr | None = None, high: relax.Expr | None = None
) -> relax.Expr:
    least, most = t.constant_array(low), t.constant_array(high)
    if least is not None and most is not None and is_float(t, x) and least.item() <= most.item():
        return t.op.clip(x, least.item(), most.item())
    if low is not None:
        x = t.emit(t.op.maximum(x, low))
    return x if high is None else t.emit(t.op.minimum(x, high))


@converts("IsInf")
def _is_inf(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    zero, infinite = scalar_maker(t, x)(0), t.emit(t.op.isinf(x))
    if not node.attribute("detect_positive", 1):
        infinite = t.emit(t.op.logical_and(infinite, t.op.less(x, zero)))
    if not node.attribute("detect_negative", 1):
        infinite = t.emit(t.op.logical_and(infinite, t.op.greater(x, zero)))
    return infinite


@converts("BitShift")
def _bit_shift(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, count: relax.Expr) -> relax.Expr:
    left = one_of(node.attribute("direction"), ("LEFT", "RIGHT"), "direction") == "LEFT"
    return t.op.left_shift(x, count) if left else t.op.right_shift(x, count)


# ---------------------------------------------------------------- conversions


@converts("Cast")
def _cast(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return _cast_to(t, node, x, dtype_of(node.attribute("to")))


@converts("CastLike")
def _cast_like(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, like: relax.Expr) -> relax.Expr:
    return _cast_to(t, node, x, t.dtype(like))


def _cast_to(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, dtype: str) -> relax.Expr:
    """Cast to another dtype. Casts to 8-bit floats saturate if asked to."""
    if dtype.startswith("float8") and node.attribute("saturate", 1) and t.dtype(x) != dtype:
        wide = t.cast(x, "float64" if t.dtype(x) == "float64" else "float32")
        most = float(construct.max_value(DType.of(dtype)).value)  # type: ignore[attr-defined]
        low, high = (t.scalar(v, t.dtype(wide)) for v in (-most, most))
        x = t.emit(t.op.minimum(t.op.maximum(wide, low), high))
    return t.cast(x, dtype)


@converts("BitCast", since=26)
def _bit_cast(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    from mlcc import te

    dtype = dtype_of(node.attribute("to"))
    if (t.dtype(x), dtype) == ("bool", "uint8"):
        return t.cast(x, dtype)
    if DType.of(dtype).bits != DType.of(t.dtype(x)).bits or "bool" in (dtype, t.dtype(x)):
        raise Unsupported(f"a bit cast from {t.dtype(x)} to {dtype} is not supported")

    def bits_as(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: _reinterpreted(dtype, data(*i)), name="bits_as")

    return t.bb.emit_te(bits_as, x)


def _reinterpreted(dtype: str, element: Any) -> Any:
    from mlcc.te.scalar import Scalar, to_expr

    return Scalar(construct.call(dtype, "reinterpret", to_expr(element)))
