"""Typed construction of TensorIR expressions: operands are brought to one dtype and constants folded.

The matching of dtypes and the folds are TVM's (`BinaryOpMatchTypes`, `TryConstFold`), because two programs that TVM
calls structurally equal must be equal here. Python numbers are accepted where an expression is; they take the other
operand's dtype. Nothing here needs to know the range of a variable: that is `mlcc.arith`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType
from mlcc.ir.tir import Expr, FloatImm, IntImm

Number = bool | int | float
Operand = Expr | Number


class TypeMismatch(ValueError):
    """Operands without a common dtype; the message names both."""


# ---------------------------------------------------------------- constants


_exact: ContextVar[bool] = ContextVar("exact", default=False)


@contextmanager
def exact_integers() -> Iterator[None]:
    """Make constant overflow an error inside the `with`, for computing sizes: `wrap` raises OverflowError."""
    token = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(token)


def wrap(value: int, dtype: DType) -> int:
    """Return `value` modulo the width of `dtype`, in its range. Raises OverflowError under `exact_integers`."""
    if dtype.is_bool:
        return int(bool(value))
    wrapped = value & (1 << dtype.bits) - 1
    if dtype.kind == "int" and wrapped >> (dtype.bits - 1):
        wrapped -= 1 << dtype.bits
    if wrapped != value and _exact.get():
        raise OverflowError(f"{value} does not fit {dtype}")
    return wrapped


def round_float(value: float, dtype: DType) -> float:
    """Return the nearest value of `dtype` (ties to even); overflow gives infinity."""
    if dtype.bits == 64 or math.isnan(value) or math.isinf(value) or value == 0:
        return value
    if dtype.kind == "float":
        try:
            code = "<f" if dtype.bits == 32 else "<e"
            return struct.unpack(code, struct.pack(code, value))[0]  # type: ignore[no-any-return]
        except OverflowError:
            return math.copysign(math.inf, value)
    if dtype.kind == "bfloat":
        return _round_bits(value, 7, -126, 127)
    if dtype.kind == "float8_e5m2":
        return _round_bits(value, 2, -14, 15)
    return _round_bits(value, 3, -6, 8)


def _round_bits(value: float, mantissa: int, least: int, most: int) -> float:
    """Round once to a binary format with `mantissa` explicit bits and exponents `least`..`most`."""
    _, exponent = math.frexp(value)
    step = math.ldexp(1.0, max(exponent - 1, least) - mantissa)
    rounded = round(value / step) * step  # round() is half-to-even, and the division by a power of two is exact
    return (
        math.copysign(math.inf, value) if abs(rounded) >= math.ldexp(1.0, most + 1) else math.copysign(rounded, value)
    )


def float_imm(value: float, dtype: DType) -> FloatImm:
    """Return a scalar float constant that remembers the double it was rounded from (as in TVM)."""
    rounded = round_float(value, dtype)
    written = value if math.isfinite(value) and math.isfinite(rounded) and rounded != value else None
    return FloatImm(dtype, rounded, written)


def const(value: Number, dtype: DType | str | None = None) -> Expr:
    """Return a constant; without `dtype` bool, int32 (int64 if it needs it) or float32. Vectors become broadcasts.

    Raises ValueError for a value that `dtype` cannot hold.
    """
    if dtype is None:
        if isinstance(value, bool):
            dtype = BOOL
        elif isinstance(value, int):
            dtype = INT32 if -(2**31) <= value < 2**31 else INT64
        else:
            dtype = FLOAT32
    else:
        dtype = DType.of(dtype)
        if dtype.kind == "int" and dtype.lanes == 1 and type(value) is int:  # nearly all that there are
            half = 1 << dtype.bits - 1
            if -half <= value < half:
                return IntImm(dtype, value)
    if dtype.lanes > 1:
        return tir.Broadcast(dtype, const(value, dtype.element), dtype.lanes)
    if dtype.is_float:
        return float_imm(float(value), dtype)
    if dtype.is_int or dtype.is_bool or dtype.is_handle:
        integer = int(value)
        if integer != value or (dtype.is_int and wrap(integer, dtype) != integer):
            raise ValueError(f"{value} does not fit {dtype}")
        return IntImm(dtype, wrap(integer, dtype) if dtype.is_bool else integer)
    raise ValueError(f"no constant of dtype {dtype}")


def as_expr(value: Operand, like: DType | None = None) -> Expr:
    """Return an expression; a Python number becomes a constant of `like` (or its default dtype)."""
    return value if isinstance(value, Expr) else const(value, like)


def min_value(dtype: DType | str) -> Expr:
    """Return the least finite value (TVM `min_value`)."""
    dtype = DType.of(dtype)
    if dtype.is_float:
        return FloatImm(dtype, -_float_max(dtype))
    return IntImm(dtype, -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0)


def max_value(dtype: DType | str) -> Expr:
    """Return the greatest finite value (TVM `max_value`)."""
    dtype = DType.of(dtype)
    if dtype.is_float:
        return FloatImm(dtype, _float_max(dtype))
    return IntImm(dtype, 1 if dtype.is_bool else (1 << (dtype.bits - (dtype.kind == "int"))) - 1)


_FLOAT_MAX = {
    "float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0,
}  # fmt: skip


def _float_max(dtype: DType) -> float:
    return _FLOAT_MAX[str(dtype)]


# ---------------------------------------------------------------- casts and matching of dtypes


def cast(dtype: DType | str, value: Operand) -> Expr:
    """Return `value` converted to `dtype`; constants are folded, scalars are broadcast to vectors."""
    dtype = DType.of(dtype)
    value = as_expr(value)
    if value.dtype is dtype:
        return value
    if dtype.lanes == 1:
        if isinstance(value, IntImm) and not dtype.is_handle:
            if dtype.is_float:
                return FloatImm(dtype, round_float(float(value.value), dtype), span=value.span)
            return IntImm(dtype, int(value.value != 0) if dtype.is_bool else wrap(value.value, dtype), span=value.span)
        if isinstance(value, FloatImm):
            if dtype.is_float:
                literal = float_imm(value.value if value.written is None else value.written, dtype)
                rounded = round_float(value.value, dtype)  # the source's dtype may round first
                return FloatImm(dtype, rounded, literal.written if literal.value == rounded else None, span=value.span)
            if math.isfinite(value.value) and (dtype.is_bool or wrap(int(value.value), dtype) == int(value.value)):
                return IntImm(dtype, int(value.value != 0) if dtype.is_bool else int(value.value), span=value.span)
    elif value.dtype.lanes == 1:
        return tir.Broadcast(dtype, cast(dtype.element, value), dtype.lanes)
    elif isinstance(value, tir.Broadcast) and value.lanes == dtype.lanes:
        return tir.Broadcast(dtype, cast(dtype.element, value.value), value.lanes)
    return tir.Cast(dtype, value)


def match_types(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    """Return both operands at one dtype, the wider one (TVM `BinaryOpMatchTypes`). Raises TypeMismatch."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype:
        return a, b
    if not isinstance(a, Expr):
        a = _literal_like(a, b) if isinstance(b, Expr) else const(a)
    if not isinstance(b, Expr):
        b = _literal_like(b, a)
    left, right = a.dtype, b.dtype
    if left is right:
        return a, b
    if left.lanes != right.lanes:
        if left.lanes == 1:
            a = tir.Broadcast(left.with_lanes(right.lanes), a, right.lanes)
        elif right.lanes == 1:
            b = tir.Broadcast(right.with_lanes(left.lanes), b, left.lanes)
        else:
            raise TypeMismatch(f"cannot match {left} with {right}: they have different lanes")
        left, right = a.dtype, b.dtype
        if left is right:
            return a, b
    if left.is_handle or right.is_handle or left.is_void or right.is_void:
        raise TypeMismatch(f"cannot match {left} with {right}")
    target = _wider(left, right)
    return cast(target, a), cast(target, b)


def _literal_like(value: Number, other: Expr) -> Expr:
    """Return a Python number as a constant beside `other`: of its dtype if that can hold it."""
    dtype = other.dtype.element
    if isinstance(value, float) and not dtype.is_float:
        return const(value)
    if dtype.is_bool and not isinstance(value, bool):
        return const(value)
    if dtype.is_handle or dtype.is_void:
        return const(value)
    try:
        return const(value, dtype)
    except ValueError:
        return const(value)


def _wider(left: DType, right: DType) -> DType:
    if left.is_float or right.is_float:
        if not right.is_float:
            return left
        if not left.is_float:
            return right
        return left if left.bits >= right.bits else right
    if left.is_bool:
        return right
    if right.is_bool:
        return left
    if left.bits != right.bits:
        return left if left.bits > right.bits else right
    return left if left.kind == "int" else right  # int and uint of one width: signed, as in TVM


# ---------------------------------------------------------------- operators with TVM's folds


def _fold_int(fn: Callable[[int, int], int], a: Expr, b: Expr) -> Expr | None:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        result, dtype = fn(a.value, b.value), a.dtype
        fits = dtype.kind == "int" and -(1 << dtype.bits - 1) <= result < 1 << dtype.bits - 1
        return IntImm(dtype, result if fits else wrap(result, dtype))
    return None


def _fold_float(fn: Callable[[float, float], float], a: Expr, b: Expr) -> Expr | None:
    if isinstance(a, FloatImm) and isinstance(b, FloatImm) and a.dtype in (FLOAT32, FLOAT64):
        return FloatImm(a.dtype, round_float(fn(a.value, b.value), a.dtype))
    return None


def _pick_constant(fn: Callable[[float, float], float], a: Expr, b: Expr) -> Expr | None:
    """Return one of two constants of any float type, without rounding."""
    if isinstance(a, FloatImm) and isinstance(b, FloatImm):
        picked = fn(a.value, b.value)
        same = a if struct.pack("<d", a.value) == struct.pack("<d", picked) else b
        return FloatImm(a.dtype, picked, same.written)
    return None


_CONSTANTS = (IntImm, FloatImm)


def _is_number(value: Expr, number: int) -> bool:
    return isinstance(value, _CONSTANTS) and value.value == number


def add(a: Operand, b: Operand) -> Expr:
    """a + b; x + 0 -> x."""
    a, b = match_types(a, b)
    if not (isinstance(a, _CONSTANTS) or isinstance(b, _CONSTANTS)):
        return tir.Add(a.dtype, a, b)
    if _is_number(a, 0) and not _is_number(b, 0):
        return b
    if _is_number(b, 0):
        return a
    return _fold_int(operator.add, a, b) or _fold_float(operator.add, a, b) or tir.Add(a.dtype, a, b)


def sub(a: Operand, b: Operand) -> Expr:
    """a - b; x - 0 -> x."""
    a, b = match_types(a, b)
    if not isinstance(b, _CONSTANTS):
        return tir.Sub(a.dtype, a, b)
    folded = _fold_int(operator.sub, a, b) or _fold_float(operator.sub, a, b)
    if folded is not None:
        return folded
    return a if _is_number(b, 0) else tir.Sub(a.dtype, a, b)


def mul(a: Operand, b: Operand) -> Expr:
    """a * b; x * 1 -> x, and x * 0 -> 0 for integers: a float may be NaN or infinite."""
    a, b = match_types(a, b)
    if not (isinstance(a, _CONSTANTS) or isinstance(b, _CONSTANTS)):
        return tir.Mul(a.dtype, a, b)
    folded = _fold_int(operator.mul, a, b) or _fold_float(operator.mul, a, b)
    if folded is not None:
        return folded
    for one, other in ((a, b), (b, a)):
        if _is_number(one, 1):
            return other
        if _is_number(one, 0) and not one.dtype.is_float:
            return one
    return tir.Mul(a.dtype, a, b)


def truncdiv(a: int, b: int) -> int:
    """Integer division toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def div(a: Operand, b: Operand) -> Expr:
    """a / b of floats; of integers the truncating division; x / 1 -> x, and 0 / x -> 0 for integers.

    Raises ValueError for a constant divisor of 0.
    """
    a, b = match_types(a, b)
    _divisor(b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, wrap(truncdiv(a.value, b.value), a.dtype))
    if isinstance(b, FloatImm) and b.value != 0:
        folded = _fold_float(operator.truediv, a, b)
        if folded is not None:
            return folded
    if _is_number(b, 1) or (_is_number(a, 0) and not a.dtype.is_float):
        return a
    return tir.Div(a.dtype, a, b)


def truncmod(a: Operand, b: Operand) -> Expr:
    """The remainder of the truncating division."""
    a, b = match_types(a, b)
    _divisor(b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, a.value - truncdiv(a.value, b.value) * b.value)
    if _is_number(a, 0):
        return a
    if isinstance(b, IntImm) and b.value == 1:
        return IntImm(a.dtype, 0)
    return tir.Mod(a.dtype, a, b)


def floordiv(a: Operand, b: Operand) -> Expr:
    """a // b, rounding down."""
    a, b = match_types(a, b)
    _divisor(b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, wrap(a.value // b.value, a.dtype))
    if _is_number(a, 0) or _is_number(b, 1):
        return a
    return tir.FloorDiv(a.dtype, a, b)


def floormod(a: Operand, b: Operand) -> Expr:
    """a % b, with the sign of b."""
    a, b = match_types(a, b)
    _divisor(b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, a.value % b.value)
    if _is_number(a, 0):
        return a
    if isinstance(b, IntImm) and b.value == 1:
        return IntImm(a.dtype, 0)
    return tir.FloorMod(a.dtype, a, b)


def _divisor(b: Expr) -> None:
    if isinstance(b, IntImm) and b.value == 0:
        raise ValueError("division by zero")


def minimum(a: Operand, b: Operand) -> Expr:
    """min(a, b)."""
    a, b = match_types(a, b)
    if a is b:
        return a
    return _fold_int(min, a, b) or _pick_constant(min, a, b) or tir.Min(a.dtype, a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """max(a, b)."""
    a, b = match_types(a, b)
    if a is b:
        return a
    return _fold_int(max, a, b) or _pick_constant(max, a, b) or tir.Max(a.dtype, a, b)


def _compare(node: type[tir.CompareOp], fn: Callable[[float, float], bool]) -> Callable[[Operand, Operand], Expr]:
    def compare(a: Operand, b: Operand) -> Expr:
        a, b = match_types(a, b)
        if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
            return IntImm(BOOL, int(fn(a.value, b.value)))
        return node(BOOL.with_lanes(a.dtype.lanes), a, b)

    compare.__doc__ = f"The comparison {node.symbol}; constants are compared at once."
    return compare


equal = _compare(tir.EQ, operator.eq)
not_equal = _compare(tir.NE, operator.ne)
less = _compare(tir.LT, operator.lt)
less_equal = _compare(tir.LE, operator.le)
greater = _compare(tir.GT, operator.gt)
greater_equal = _compare(tir.GE, operator.ge)


def as_bool(value: Operand) -> Expr:
    """Return a condition; integers are compared with 0."""
    value = as_expr(value)
    return value if value.dtype.is_bool else not_equal(value, 0)


def logical_and(a: Operand, b: Operand) -> Expr:
    """a and b; a constant side decides."""
    a, b = as_bool(a), as_bool(b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, IntImm):
            return other if one.value else one
    return tir.And(a.dtype, a, b)


def logical_or(a: Operand, b: Operand) -> Expr:
    """a or b; a constant side decides."""
    a, b = as_bool(a), as_bool(b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, IntImm):
            return one if one.value else other
    return tir.Or(a.dtype, a, b)


def logical_not(a: Operand) -> Expr:
    """not a."""
    a = as_bool(a)
    if isinstance(a, IntImm):
        return IntImm(BOOL, 1 - a.value)
    return tir.Not(a.dtype, a)


def negate(a: Operand) -> Expr:
    """-a, which is 0 - a except for constants (TVM)."""
    a = as_expr(a)
    if isinstance(a, IntImm):
        return IntImm(a.dtype, wrap(-a.value, a.dtype))
    if isinstance(a, FloatImm):
        return FloatImm(a.dtype, -a.value, None if a.written is None else -a.written)
    return sub(const(0, a.dtype.element), a)


def call(dtype: DType | str, name: str, *args: Operand | str) -> tir.Call:
    """Return an intrinsic call; `name` has no `tir.` prefix."""
    operands = tuple(tir.StringImm(a) if isinstance(a, str) else as_expr(a) for a in args)
    return tir.Call(DType.of(dtype), tir.Op(f"tir.{name}"), operands)


def load(buffer: tir.Buffer, *indices: Operand) -> tir.BufferLoad:
    """Return the load `buffer[indices]`; a vector index gives a vector."""
    exprs = tuple(as_expr(i) for i in indices)
    lanes = exprs[-1].dtype.lanes if exprs else 1
    return tir.BufferLoad(buffer.dtype.with_lanes(buffer.dtype.lanes * lanes), buffer, exprs)


def store(buffer: tir.Buffer, value: Operand, *indices: Operand) -> tir.BufferStore:
    """Return the store `buffer[indices] = value`, with the value cast to the buffer's dtype."""
    exprs = tuple(as_expr(i) for i in indices)
    lanes = exprs[-1].dtype.lanes if exprs else 1
    return tir.BufferStore(buffer, cast(buffer.dtype.with_lanes(buffer.dtype.lanes * lanes), value), exprs)


def index_dtype(shape: tuple[Expr, ...]) -> DType:
    """Return the dtype of a buffer's offset: that of its first dimension, int64 without dimensions (as in TVM)."""
    return shape[0].dtype if shape else INT64


def make_buffer(
    name: str, shape: tuple[Operand, ...], dtype: DType | str = "float32", scope: str = "global",
    data: tir.Var | None = None, strides: tuple[Operand, ...] = (), elem_offset: Operand | None = None,
    alignment: int = 64, offset_factor: int = 1, axis_separators: tuple[int, ...] = (),
) -> tir.Buffer:  # fmt: skip
    """Return a new buffer, with a new data pointer unless one is given. `elem_offset` defaults to 0."""
    dtype = DType.of(dtype)
    # bool lives in memory as one byte, and pointers say so
    pointer = tir.PointerType(dtype.element, scope)
    dims = tuple(as_expr(n) for n in shape)
    offset = const(0, index_dtype(dims)) if elem_offset is None else as_expr(elem_offset)
    return tir.Buffer(
        name, data or tir.Var(name, DType.of("handle"), pointer), dtype, dims, tuple(as_expr(s) for s in strides),
        offset, alignment, offset_factor, axis_separators,
    )  # fmt: skip
