"""Typed construction of intrinsic calls and vectors, with TVM's folds; operators are in `mlcc.ir.construct`.

Names are those of the text. Python numbers are accepted where an expression is. Wrong operands raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.ir import construct, tir
from mlcc.ir.construct import Operand, as_expr, const, match_types
from mlcc.ir.dtypes import BOOL, DType
from mlcc.ir.tir import Expr, FloatImm, IntImm

HANDLE = DType.of("handle")


def make(name: str, dtype: DType | str, *args: Operand | str) -> tir.Call:
    """Return a call of an intrinsic, not folded."""
    return construct.call(dtype, name, *args)


def negate(a: Operand) -> Expr:
    """Return -a; TVM makes it a * -1."""
    a = as_expr(a)
    if isinstance(a, (IntImm, FloatImm)):
        return construct.negate(a)
    return construct.mul(a, const(-1, a.dtype.element))


# ---------------------------------------------------------------- bits


def _bits(name: str, fn: Callable[[int, int], int]) -> Callable[[Operand, Operand], Expr]:
    def build(a: Operand, b: Operand) -> Expr:
        a, b = match_types(a, b)
        _need_integer(name, a)
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return IntImm(a.dtype, construct.wrap(fn(a.value, b.value), a.dtype))
        return make(name, a.dtype, a, b)

    build.__doc__ = f"{name} of integers; a count outside the width shifts everything out (0, or -1 for a sign)."
    return build


def _need_integer(name: str, value: Expr) -> None:
    if not (value.dtype.is_int or value.dtype.is_bool):
        raise ValueError(f"{name} takes integers, not {value.dtype}")


bitwise_and = _bits("bitwise_and", lambda a, b: a & b)
bitwise_or = _bits("bitwise_or", lambda a, b: a | b)
bitwise_xor = _bits("bitwise_xor", lambda a, b: a ^ b)


def bitwise_not(a: Operand) -> Expr:
    """Return the bitwise complement."""
    a = as_expr(a)
    _need_integer("bitwise_not", a)
    return make("bitwise_not", a.dtype, a)


def _shift(
    name: str, fn: Callable[[int, int], int], out: Callable[[int], int]
) -> Callable[[Operand, Operand], Expr]:  # fmt: skip
    def build(a: Operand, b: Operand) -> Expr:
        a, b = match_types(a, b)
        _need_integer(name, a)
        if isinstance(b, IntImm):
            if isinstance(a, IntImm):
                inside = 0 <= b.value < a.dtype.bits
                return IntImm(a.dtype, construct.wrap(fn(a.value, b.value) if inside else out(a.value), a.dtype))
            if b.value == 0:
                return a
        return make(name, a.dtype, a, b)

    build.__doc__ = f"{name} of integers."
    return build


shift_left = _shift("shift_left", lambda a, b: a << b, lambda a: 0)
shift_right = _shift("shift_right", lambda a, b: a >> b, lambda a: -1 if a < 0 else 0)


# ---------------------------------------------------------------- choice


def if_then_else(condition: Operand, a: Operand, b: Operand) -> Expr:
    """Return a choice that evaluates only the chosen operand."""
    condition = as_expr(condition)
    if not condition.dtype.is_bool:
        raise ValueError(f"the condition must be a bool, not {condition.dtype}")
    a, b = match_types(a, b)
    if isinstance(condition, IntImm):
        return a if condition.value else b
    return make("if_then_else", a.dtype, condition, a, b)


def select(condition: Operand, a: Operand, b: Operand) -> Expr:
    """Return a selection that may evaluate both operands."""
    condition = as_expr(condition)
    if not condition.dtype.is_bool:
        raise ValueError(f"the condition must be a bool, not {condition.dtype}")
    a, b = match_types(a, b)
    return tir.Select(a.dtype, condition, a, b)


# ---------------------------------------------------------------- vectors


def ramp(base: Operand, stride: Operand, lanes: int) -> Expr:
    """Return the vector base, base + stride, ..."""
    base = as_expr(base)
    stride = as_expr(stride, base.dtype)
    if not base.dtype.is_int or base.dtype.lanes > 1:
        raise ValueError(f"a ramp must start at a scalar integer, not {base.dtype}")
    if stride.dtype is not base.dtype:
        stride = construct.cast(base.dtype, stride)
    return tir.Ramp(base.dtype.with_lanes(lanes), base, stride, lanes)


def broadcast(value: Operand, lanes: int) -> Expr:
    """Return a vector of `lanes` copies of a scalar."""
    value = as_expr(value)
    if value.dtype.lanes > 1:
        raise ValueError(f"only a scalar can be broadcast, not {value.dtype}")
    return tir.Broadcast(value.dtype.with_lanes(lanes), value, lanes)


def shuffle(vectors: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Expr:
    """Return lanes selected from the concatenation of vectors."""
    if not vectors or not indices:
        raise ValueError("a shuffle must have at least one vector and one index")
    element = vectors[0].dtype.element
    if any(v.dtype.element is not element for v in vectors):
        raise ValueError("the vectors of a shuffle must have the same element type")
    return tir.Shuffle(element.with_lanes(len(indices)), vectors, indices)


# ---------------------------------------------------------------- mathematics


def unary(name: str, x: Operand) -> Expr:
    """Return a function of one float: exp, sqrt, ..."""
    x = as_expr(x)
    if not x.dtype.is_float:
        raise ValueError(f"{name} takes a float, not {x.dtype}")
    return make(name, x.dtype, x)


def _round_even(value: float) -> float:
    return math.copysign(float(round(value)), value)


_ROUNDERS: dict[str, Callable[[float], float]] = {
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": _round_even, "nearbyint": _round_even,
}  # fmt: skip


def rounding(name: str, x: Operand) -> Expr:
    """Return floor, ceil, trunc, round or nearbyint of x: integers are returned unchanged, constants are folded."""
    x = as_expr(x)
    if x.dtype.is_int or x.dtype.is_bool:
        return x
    if isinstance(x, FloatImm) and math.isfinite(x.value):
        return FloatImm(x.dtype, float(_ROUNDERS[name](x.value)))
    return unary(name, x)


def absolute(x: Operand) -> Expr:
    """Return the absolute value: an unsigned integer itself, a selection for signed ones, `fabs` of floats."""
    x = as_expr(x)
    if x.dtype.is_uint or x.dtype.is_bool:
        return x
    if isinstance(x, IntImm):
        return IntImm(x.dtype, construct.wrap(abs(x.value), x.dtype))
    if isinstance(x, FloatImm):
        return FloatImm(x.dtype, abs(x.value), None if x.written is None else abs(x.written))
    if x.dtype.is_int:
        zero = const(0, x.dtype)
        return select(construct.greater_equal(x, zero), x, construct.sub(zero, x))
    return unary("fabs", x)


def power(a: Operand, b: Operand) -> Expr:
    """Return a to the power b, at one dtype."""
    a, b = match_types(a, b)
    if not (a.dtype.is_float or a.dtype.is_int):
        raise ValueError(f"pow takes numbers, not {a.dtype}")
    return make("pow", a.dtype, a, b)


def isnan(x: Operand) -> Expr:
    """Return the test that x is NaN; constant false for integers."""
    x = as_expr(x)
    dtype = BOOL.with_lanes(x.dtype.lanes)
    if x.dtype.is_int or x.dtype.is_bool:
        return const(False, dtype)
    if isinstance(x, FloatImm):
        return const(math.isnan(x.value), BOOL)
    if x.dtype.bits == 16:
        x = construct.cast(DType.of("float32").with_lanes(x.dtype.lanes), x)
    return make("isnan", dtype, x)


def isinf(x: Operand) -> Expr:
    """Return the test that x is plus or minus infinity; constant false for integers."""
    x = as_expr(x)
    if x.dtype.is_int or x.dtype.is_bool:
        return const(False, BOOL.with_lanes(x.dtype.lanes))
    infinite = construct.equal(absolute(x), construct.cast(x.dtype, FloatImm(x.dtype.element, math.inf)))
    return construct.logical_and(infinite, construct.logical_not(isnan(x)))


def isfinite(x: Operand) -> Expr:
    """Return the test that x is neither infinite nor NaN."""
    return construct.logical_and(construct.logical_not(isinf(x)), construct.logical_not(isnan(x)))


def infinity(dtype: DType | str) -> Expr:
    """Return the positive infinity of a float type; the greatest value of types without infinities."""
    dtype = DType.of(dtype)
    if not dtype.is_float:
        raise ValueError(f"{dtype} has no infinity")
    return FloatImm(dtype, math.inf)


def floordiv(a: Operand, b: Operand) -> Expr:
    """Return a // b of integers, rounded down."""
    a, b = match_types(a, b)
    _need_integer("floor division", a)
    return construct.floordiv(a, b)


def floormod(a: Operand, b: Operand) -> Expr:
    """Return a % b of integers, with the sign of b."""
    a, b = match_types(a, b)
    _need_integer("the remainder", a)
    return construct.floormod(a, b)


def ceildiv(a: Operand, b: Operand) -> Expr:
    """Return a / b, rounded up."""
    a, b = match_types(a, b)
    return floordiv(construct.sub(construct.add(a, b), 1), b)


def reinterpret(dtype: DType | str, value: Operand) -> Expr:
    """Return the bits of `value` as another type of the same width."""
    dtype, value = DType.of(dtype), as_expr(value)
    if value.dtype is dtype:
        return value
    if not dtype.is_handle and not value.dtype.is_handle:
        bits = value.dtype.bits * value.dtype.lanes, dtype.bits * dtype.lanes
        if bits[0] != bits[1]:
            raise ValueError(f"{value.dtype} has {bits[0]} bits and {dtype} has {bits[1]}")
    return make("reinterpret", dtype, value)


# ---------------------------------------------------------------- memory


def address_of(load: tir.BufferLoad) -> tir.Call:
    """Return a pointer to an element."""
    return make("address_of", HANDLE, load)


def access_ptr(
    buffer: tir.Buffer, mask: int, lanes: int = 1, offset: Operand = 0, extent: Operand | None = None
) -> tir.Call:
    """Return a pointer to `buffer` for reading (1), writing (2) or both (3), from `offset` on."""
    start = buffer.elem_offset if buffer.elem_offset is not None else const(0)
    size: Expr = const(1)
    if buffer.strides:
        size = construct.mul(buffer.strides[0], buffer.shape[0])
    else:
        for n in buffer.shape:
            size = construct.mul(size, n)
    size = construct.sub(size, offset)
    place = construct.add(start, offset)
    if lanes > 1:
        size, place = construct.div(size, lanes), construct.div(start, lanes)
    if extent is not None:
        size = as_expr(extent)
    kind = make("type_annotation", buffer.dtype.with_lanes(lanes))
    return make("tvm_access_ptr", HANDLE, kind, buffer.data, place, size, const(mask))


def pack_buffer(buffer: tir.Buffer) -> tir.Call:
    """Return a buffer as the array (DLTensor) that a packed function receives."""
    shape = make("tvm_stack_make_shape", HANDLE, *buffer.shape)
    strides: Operand = make("tvm_stack_make_shape", HANDLE, *buffer.strides) if buffer.strides else 0
    offset = buffer.elem_offset if buffer.elem_offset is not None else const(0)
    like = const(0, buffer.dtype.element)
    return make("tvm_stack_make_array", HANDLE, buffer.data, shape, strides, len(buffer.shape), like, offset)
