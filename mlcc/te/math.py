"""Functions of scalars in tensor expressions; names and results are those of TVM's `te`."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import BOOL, FLOAT32, DType
from mlcc.te.scalar import Operand, Scalar, operand, to_expr


def var(name: str = "tindex", dtype: DType | str = "int32") -> Scalar:
    """A variable, for symbolic shapes and scalar parameters."""
    return Scalar(tir.Var(name, DType.of(dtype)))


def const(value: bool | int | float, dtype: DType | str = "int32") -> Scalar:
    return Scalar(construct.const(value, dtype))


def _intrinsic(name: str) -> Callable[[Operand], Scalar]:
    def function(x: Operand) -> Scalar:
        value = to_expr(x)
        return Scalar(construct.call(value.dtype, name, value))

    function.__name__ = name
    function.__doc__ = f"`T.{name}(x)`."
    return function


exp = _intrinsic("exp")
exp2 = _intrinsic("exp2")
exp10 = _intrinsic("exp10")
erf = _intrinsic("erf")
tanh = _intrinsic("tanh")
sigmoid = _intrinsic("sigmoid")
log = _intrinsic("log")
log2 = _intrinsic("log2")
log10 = _intrinsic("log10")
log1p = _intrinsic("log1p")
tan = _intrinsic("tan")
cos = _intrinsic("cos")
sin = _intrinsic("sin")
cosh = _intrinsic("cosh")
sinh = _intrinsic("sinh")
acos = _intrinsic("acos")
asin = _intrinsic("asin")
atan = _intrinsic("atan")
acosh = _intrinsic("acosh")
asinh = _intrinsic("asinh")
atanh = _intrinsic("atanh")
sqrt = _intrinsic("sqrt")
rsqrt = _intrinsic("rsqrt")
popcount = _intrinsic("popcount")


def _rounding(name: str, fold: Callable[[float], float]) -> Callable[[Operand], Scalar]:
    def function(x: Operand) -> Scalar:
        value = to_expr(x)
        if not value.dtype.is_float:
            return Scalar(value)
        if isinstance(value, tir.FloatImm) and math.isfinite(value.value):
            return Scalar(construct.const(float(fold(value.value)), value.dtype))
        return Scalar(construct.call(value.dtype, name, value))

    function.__name__ = name
    function.__doc__ = f"`T.{name}(x)`; integers stay as they are."
    return function


floor = _rounding("floor", math.floor)
ceil = _rounding("ceil", math.ceil)
trunc = _rounding("trunc", math.trunc)
round = _rounding("round", builtins.round)
nearbyint = _rounding("nearbyint", builtins.round)


def abs(x: Operand) -> Scalar:
    """The absolute value: `T.fabs` of floats, a `T.Select` for signed integers."""
    value = to_expr(x)
    if value.dtype.is_float:
        if isinstance(value, tir.FloatImm):
            return Scalar(calls.absolute(value))
        return Scalar(construct.call(value.dtype, "fabs", value))
    if value.dtype.kind != "int":
        return Scalar(value)
    if isinstance(value, tir.IntImm):
        return Scalar(construct.const(value.value if value.value >= 0 else -value.value, value.dtype))
    return select(construct.greater_equal(value, 0), value, construct.negate(value))


def power(x: Operand, y: Operand) -> Scalar:
    """x ** y of floats."""
    a, b = construct.match_types(operand(x), operand(y))
    if not a.dtype.is_float:
        raise TypeError(f"power needs floats, not {a.dtype}")
    return Scalar(construct.call(a.dtype, "pow", a, b))


pow = power


def fmod(x: Operand, y: Operand) -> Scalar:
    """The remainder of the truncating division of floats."""
    a, b = construct.match_types(operand(x), operand(y))
    return Scalar(construct.call(a.dtype, "fmod", a, b))


def atan2(x: Operand, y: Operand) -> Scalar:
    a, b = construct.match_types(operand(x), operand(y))
    return Scalar(construct.call(a.dtype, "atan2", a, b))


def logaddexp(x: Operand, y: Operand) -> Scalar:
    """log(exp(x) + exp(y))."""
    return log(exp(x) + exp(y))


def div(a: Operand, b: Operand) -> Scalar:
    """a / b of floats, the truncating division of integers."""
    return Scalar(construct.div(operand(a), operand(b)))


def truncdiv(a: Operand, b: Operand) -> Scalar:
    return Scalar(construct.div(operand(a), operand(b)))


def truncmod(a: Operand, b: Operand) -> Scalar:
    return Scalar(construct.truncmod(operand(a), operand(b)))


def floordiv(a: Operand, b: Operand) -> Scalar:
    return Scalar(construct.floordiv(operand(a), operand(b)))


def floormod(a: Operand, b: Operand) -> Scalar:
    return Scalar(construct.floormod(operand(a), operand(b)))


indexdiv = floordiv
indexmod = floormod


def isnan(x: Operand) -> Scalar:
    value = to_expr(x)
    if not value.dtype.is_float:
        return Scalar(construct.const(False))
    if value.dtype.bits == 16:
        value = construct.cast(FLOAT32, value)
    return Scalar(construct.call(BOOL, "isnan", value))


def isinf(x: Operand) -> Scalar:
    value = to_expr(x)
    if not value.dtype.is_float:
        return Scalar(construct.const(False))
    infinite = construct.equal(operand(abs(x)), construct.const(math.inf, value.dtype))
    return Scalar(construct.logical_and(infinite, construct.logical_not(isnan(x).expr)))


def isfinite(x: Operand) -> Scalar:
    value = to_expr(x)
    if not value.dtype.is_float:
        return Scalar(construct.const(True))
    return Scalar(construct.logical_and(construct.logical_not(isinf(x).expr), construct.logical_not(isnan(x).expr)))


def min_value(dtype: DType | str) -> Scalar:
    """The least finite value of a dtype."""
    return Scalar(construct.min_value(dtype))


def max_value(dtype: DType | str) -> Scalar:
    """The greatest finite value of a dtype."""
    return Scalar(construct.max_value(dtype))


# ---------------------------------------------------------------- conditions


def all(*args: Operand) -> Scalar:
    """The conjunction."""
    return Scalar(reduce(construct.logical_and, (to_expr(a) for a in args)))


def any(*args: Operand) -> Scalar:
    """The disjunction."""
    return Scalar(reduce(construct.logical_or, (to_expr(a) for a in args)))


def logical_not(a: Operand) -> Scalar:
    return Scalar(construct.logical_not(to_expr(a)))


def select(condition: Any, true_value: Any, false_value: Any) -> Scalar:
    """`T.Select`: both sides may be evaluated. A constant condition chooses at once."""
    cond = construct.as_bool(operand(condition))
    a, b = construct.match_types(operand(true_value), operand(false_value))
    if isinstance(cond, tir.IntImm):
        return Scalar(a if cond.value else b)
    return Scalar(tir.Select(a.dtype, cond, a, b))


def Select(condition: Any, true_value: Any, false_value: Any) -> Scalar:  # noqa: N802  (TVM's name)
    """`T.Select` as a node, whatever the condition."""
    cond = construct.as_bool(operand(condition))
    a, b = construct.match_types(operand(true_value), operand(false_value))
    return Scalar(tir.Select(a.dtype, cond, a, b))


def if_then_else(condition: Any, true_value: Any, false_value: Any) -> Scalar:
    """`T.if_then_else`: only the side that is chosen is evaluated."""
    cond = construct.as_bool(operand(condition))
    a, b = construct.match_types(operand(true_value), operand(false_value))
    if isinstance(cond, tir.IntImm):
        return Scalar(a if cond.value else b)
    return Scalar(construct.call(a.dtype, "if_then_else", cond, a, b))
