"""Type promotion of PyTorch: the dtype in which an operator computes, given tensors, rank-0 tensors and numbers.

Tensors take precedence over rank-0 tensors, and these over numbers, unless the weaker operand is of a higher category
(bool < integer < float): https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType

if TYPE_CHECKING:
    from mlcc.frontend.aten.translate import Translator


@dataclass(frozen=True, slots=True)
class RuntimeFloat:
    """A float known at run time only: a tensor of rank 0 that promotes like a Python number."""

    value: relax.Expr


Value: TypeAlias = relax.Expr | tir.Expr | bool | int | float  # an operand as converters get it
Operand: TypeAlias = Value | RuntimeFloat

_SIGNED = ("int8", "int16", "int32", "int64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_DEFAULT_FLOAT = "float32"


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    kind = DType.of(dtype)
    return 0 if kind.is_bool else 1 if kind.is_int else 2


def is_float(dtype: str) -> bool:
    """Return True for a floating-point dtype."""
    return category(dtype) == 2


def promote(a: str, b: str) -> str:
    """Return the smallest dtype that both convert to (`torch.promote_types`)."""
    if a == b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) < category(high):
        return high
    if category(a) == 2 and {a, b} <= set(_FLOATS):
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=_FLOATS.index)
    if {a, b} <= {"uint8", *_SIGNED}:
        return _promote_integers(a, b)
    raise Unsupported(f"{a} and {b} have no common dtype")


def _promote_integers(a: str, b: str) -> str:
    if "uint8" not in (a, b):
        return max(a, b, key=_SIGNED.index)
    other = b if a == "uint8" else a
    return "int16" if other == "int8" else other


def result_type(t: Translator, *values: Operand) -> str:
    """Return the dtype to which operands are promoted (`torch.result_type`)."""
    tensors, scalars, numbers = "", "", ""
    for value in values:
        if not isinstance(value, relax.Expr):
            numbers = _join(numbers, scalar_dtype(value))
        elif t.ndim(value):
            tensors = _join(tensors, t.dtype(value))
        else:
            scalars = _join(scalars, t.dtype(value))
    return _outrank(tensors, _outrank(scalars, numbers))


def _join(a: str, b: str) -> str:
    return promote(a, b) if a else b


def _outrank(stronger: str, weaker: str) -> str:
    """Return the stronger dtype, or the promoted one if the weaker is of a higher category."""
    if not stronger or not weaker:
        return stronger or weaker
    return promote(stronger, weaker) if category(weaker) > category(stronger) else stronger


def scalar_dtype(value: Operand) -> str:
    """Return the dtype of a number on its own."""
    if isinstance(value, tir.Expr):
        return "bool" if value.dtype.is_bool else "int64" if value.dtype.is_int else _DEFAULT_FLOAT
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, RuntimeFloat):
        return _DEFAULT_FLOAT
    if isinstance(value, (int, float)):
        return "int64" if isinstance(value, int) else _DEFAULT_FLOAT
    raise Unsupported(f"an operand of type {type(value).__name__}")


def float_dtype(dtype: str) -> str:
    """Return the dtype itself if it is a float dtype, else torch's default float dtype."""
    return dtype if is_float(dtype) else _DEFAULT_FLOAT


def sum_dtype(dtype: str) -> str:
    """Return the result dtype of a sum or product of elements."""
    return dtype if is_float(dtype) else "int64"


def as_tensor(t: Translator, value: Operand, dtype: str) -> relax.Expr:
    """Convert an operand to a tensor of that dtype."""
    if isinstance(value, (relax.Expr, RuntimeFloat)):
        return t.cast(value.value if isinstance(value, RuntimeFloat) else value, dtype)
    if not isinstance(value, tir.Expr):
        try:
            return t.scalar(value, dtype)
        except (OverflowError, ValueError):
            raise Unsupported(f"{value} does not fit into {dtype}") from None
    if not value.dtype.is_int or value.dtype.is_bool:
        raise Unsupported(f"a symbolic number of {value.dtype} as an operand")
    vector = t.emit(t.op.shape_to_tensor(t.shape_expr([value])))
    return t.cast(t.emit(t.op.reshape(vector, t.shape_expr([]))), dtype)


def promote_operands(t: Translator, *values: Value, floating: bool = False) -> list[relax.Expr]:
    """Promote operands to tensors of one dtype; with `floating`, to a float dtype."""
    dtype = result_type(t, *values)
    return [as_tensor(t, value, float_dtype(dtype) if floating else dtype) for value in values]


def emit_promoted(t: Translator, make: Callable[..., relax.Call], *values: Value, dtype: str = "") -> relax.Var:
    """Emit an operator on operands cast to `dtype`, or to the dtype that they promote to."""
    dtype = dtype or result_type(t, *values)
    return t.emit(make(*(as_tensor(t, value, dtype) for value in values)))
