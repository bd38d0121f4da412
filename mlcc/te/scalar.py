"""Scalars of tensor expressions: TensorIR expressions with Python's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from mlcc.ir import construct, tir
from mlcc.ir.dtypes import DType

Operand = Union["Value", tir.Expr, bool, int, float]


class Value:
    """An expression under construction: a `Scalar` or an axis.

    Operators match dtypes and fold constants as `mlcc.ir.construct` does. `a == b` is an expression too; its truth
    value says whether both sides are known to be equal.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: tir.Expr) -> None:
        self.expr = expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def value(self) -> int | float:
        """The number, of a constant. Raises AttributeError for any other expression."""
        if isinstance(self.expr, (tir.IntImm, tir.FloatImm)):
            return self.expr.value
        raise AttributeError(f"`{self.expr}` is not a constant")

    def astype(self, dtype: DType | str) -> Scalar:
        return Scalar(construct.cast(dtype, self.expr))

    def __repr__(self) -> str:
        return str(self.expr)

    def __hash__(self) -> int:
        return id(self.expr)

    def __index__(self) -> int:
        value = tir.const_int(self.expr)
        if value is None:
            raise TypeError(f"`{self.expr}` is not a constant integer")
        return value

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        if isinstance(self.expr, (tir.IntImm, tir.FloatImm)):
            return float(self.expr.value)
        raise TypeError(f"`{self.expr}` is not a constant")

    def __bool__(self) -> bool:
        match self.expr:
            case tir.IntImm(value=value):
                return bool(value)
            case tir.EQ(lhs=a, rhs=b):
                return _same(a, b)
            case tir.NE(lhs=a, rhs=b):
                return not _same(a, b)
        raise TypeError(f"the truth value of `{self.expr}` is not known here; use te.all, te.any or te.if_then_else")

    def __neg__(self) -> Scalar:
        return Scalar(construct.mul(self.expr, -1))

    def __invert__(self) -> Scalar:
        if self.dtype.is_float:
            raise TypeError("~ needs integers")
        return Scalar(construct.call(self.dtype, "bitwise_not", self.expr))

    __add__: Any
    __radd__: Any
    __sub__: Any
    __rsub__: Any
    __mul__: Any
    __rmul__: Any
    __truediv__: Any
    __rtruediv__: Any
    __floordiv__: Any
    __rfloordiv__: Any
    __mod__: Any
    __rmod__: Any
    __lshift__: Any
    __rshift__: Any
    __and__: Any
    __or__: Any
    __xor__: Any
    __lt__: Any
    __le__: Any
    __gt__: Any
    __ge__: Any


class Scalar(Value):
    """Any expression."""

    __slots__ = ()


def _same(a: tir.Expr, b: tir.Expr) -> bool:
    """True if both sides are known to be equal: they simplify to the same form."""
    if a is b:
        return True
    from mlcc.arith.analyzer import Analyzer

    rest = Analyzer().simplify(construct.sub(a, b))
    return tir.const_int(rest) == 0


def to_expr(value: Operand, like: DType | None = None) -> tir.Expr:
    """The TensorIR expression behind a scalar, an axis, or a Python number."""
    value = getattr(value, "expr", value)
    return construct.as_expr(value, like)  # type: ignore[arg-type]


def operand(value: Operand) -> Any:
    """Return an expression, or a Python number unchanged: it takes the dtype of the other operand."""
    return getattr(value, "expr", value)


def true_divide(a: Any, b: Any) -> tir.Expr:
    """a / b of floats. Raises TypeError for integers, whose division must state its rounding."""
    left, right = construct.match_types(a, b)
    if not left.dtype.is_float:
        raise TypeError("`/` needs floats: use `//` or te.truncdiv for integers")
    return construct.div(left, right)


def bitwise(name: str) -> Callable[[Any, Any], tir.Expr]:
    """A bit operation as an intrinsic call; constants are folded."""
    folds: dict[str, Callable[[int, int], int]] = {
        "bitwise_and": lambda a, b: a & b,
        "bitwise_or": lambda a, b: a | b,
        "bitwise_xor": lambda a, b: a ^ b,
        "shift_left": lambda a, b: a << b,
        "shift_right": lambda a, b: a >> b,
    }

    def operation(a: Any, b: Any) -> tir.Expr:
        left, right = construct.match_types(a, b)
        if left.dtype.is_float:
            raise TypeError(f"{name} needs integers, not {left.dtype}")
        x, y = tir.const_int(left), tir.const_int(right)
        if x is not None and y is not None and 0 <= y < left.dtype.bits:
            return tir.IntImm(left.dtype, construct.wrap(folds[name](x, y), left.dtype))
        if y == 0 and name.startswith("shift"):
            return left
        return construct.call(left.dtype, name, left, right)

    return operation


def _install() -> None:
    """Give Value its operators, each with its reflected form."""
    table: dict[str, Callable[[Any, Any], tir.Expr]] = {
        "add": construct.add, "sub": construct.sub, "mul": construct.mul, "truediv": true_divide,
        "floordiv": construct.floordiv, "mod": construct.floormod, "lshift": bitwise("shift_left"),
        "rshift": bitwise("shift_right"), "and": bitwise("bitwise_and"), "or": bitwise("bitwise_or"),
        "xor": bitwise("bitwise_xor"),
    }  # fmt: skip
    compare = {
        "lt": construct.less, "le": construct.less_equal, "gt": construct.greater, "ge": construct.greater_equal,
        "eq": construct.equal, "ne": construct.not_equal,
    }  # fmt: skip
    for name, fn in table.items():
        setattr(Value, f"__{name}__", _method(fn))
        setattr(Value, f"__r{name}__", _method(_swapped(fn)))
    for name, fn in compare.items():
        setattr(Value, f"__{name}__", _method(fn))


def _swapped(fn: Callable[[Any, Any], tir.Expr]) -> Callable[[Any, Any], tir.Expr]:
    return lambda a, b: fn(b, a)


def _method(fn: Callable[[Any, Any], tir.Expr]) -> Callable[[Value, Any], Any]:
    def method(self: Value, other: Any) -> Any:
        value = operand(other)
        if not isinstance(value, (tir.Expr, bool, int, float)):
            return NotImplemented
        return Scalar(fn(self.expr, value))

    return method


_install()
