"""Conversion of bit fields of words, such as weights of 4 bits, to floats without shifts.

Bytes at a stride of 4 are loaded as words of 4 bytes. A field of a word that lies within a float's mantissa becomes a
float in two steps: the field's bits below the exponent of a power of two are the float 2**n + field, from which
2**n + zero point is subtracted. Both are exact. Compare Kim et al., "Who Says Elephants Can't Run" (2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen import memory
from mlcc.targets.llvm.codegen.ir_text import Value, floating, integer, vector

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

MANTISSA, BIAS = 23, 127  # of a float: its explicit bits, and the exponent of 1
MAX_ZERO_BITS = 16  # a zero point of as many bits is subtracted exactly
FLOAT, INT = DType.of("float32"), DType.of("int32")


@dataclass(frozen=True, slots=True)
class _Field:
    """The bits `start` to `start + width` of the words at which `load` finds its bytes."""

    load: tir.BufferLoad
    start: int
    width: int
    signed: bool


def to_float(e: Emitter, node: tir.Cast) -> Value | None:
    """Emit `float32(field)` or `float32(field - zero point)` of words; None for any other cast."""
    if node.dtype.lanes < 4 or node.dtype.element is not FLOAT or node.value.dtype.element is not INT:
        return None
    value, zero = (node.value.lhs, node.value.rhs) if isinstance(node.value, tir.Sub) else (node.value, None)
    if zero is not None and not _is_small(zero):
        return None
    field = _field(value)
    words = None if field is None or e.ctx.is_gpu else memory.load_words(e, field.load)
    if field is None or words is None:
        return None
    fn, lanes = e.fn, node.dtype.lanes
    word, start = words[0], words[1] + field.start

    def ints(number: int) -> Value:
        return fn.splat(integer("i32", number), lanes)

    if start + field.width > MANTISSA:
        moved = min(start, 16)  # one shift serves all such fields
        word, start = fn.binary("lshr", word, ints(moved)), start - moved
    sign = 1 << field.width - 1 if field.signed else 0
    power = MANTISSA - start
    bits = fn.binary("and", word, ints((1 << field.width) - 1 << start))
    bits = fn.binary("xor", bits, ints((BIAS + power << MANTISSA) + (sign << start)))
    offset = fn.splat(floating("float", float((1 << power) + sign)), lanes)
    if zero is not None:
        real = fn.convert("sitofp", e.expr(zero), vector("float", lanes))
        offset = fn.binary("fadd", offset, real)
    return fn.binary("fsub", fn.convert("bitcast", bits, vector("float", lanes)), offset)


def _is_small(zero: tir.Expr) -> bool:
    """Return True for a number, or integers that are converted from fewer bits."""
    value = tir.const_int(zero.value if isinstance(zero, tir.Broadcast) else zero)
    if value is not None:
        return abs(value) < 1 << MAX_ZERO_BITS
    while isinstance(zero, (tir.Cast, tir.Broadcast)):
        if zero.dtype.is_int and zero.dtype.bits < MAX_ZERO_BITS:
            return True
        zero = zero.value
    return zero.dtype.is_int and zero.dtype.bits < MAX_ZERO_BITS


def _field(value: tir.Expr) -> _Field | None:
    """Match the part of a byte that shifts and masks select, in integers that hold it."""
    casts = []
    while isinstance(value, tir.Cast) and value.dtype.is_int:
        casts.append(value.dtype)
        value = value.value
    if not isinstance(value, tir.Call) or not isinstance(value.op, tir.Op) or value.dtype.element is not INT:
        return None
    name, (source, amount) = value.op.name.removeprefix("tir."), value.args
    number = _constant(amount)
    if number is None:
        return None
    if name == "bitwise_and" and number > 0 and number & (number + 1) == 0:
        width, signed, start = number.bit_length(), False, 0
        if isinstance(source, tir.Call) and source.op == tir.Op("tir.shift_right"):
            source, shift = source.args
            start = _constant(shift)  # type: ignore[assignment]
    elif name == "shift_right" and isinstance(source, tir.Call) and source.op == tir.Op("tir.shift_left"):
        width, signed = 32 - number, True
        source, shift = source.args
        left = _constant(shift)
        start = None if left is None else number - left  # type: ignore[assignment]
    else:
        return None
    load = _byte(source)
    if load is None or start is None or start < 0 or width < 1 or start + width > 8:
        return None
    return _Field(load, start, width, signed) if all(_holds(d, width, signed) for d in casts) else None


def _holds(dtype: DType, width: int, signed: bool) -> bool:
    """Return True if a dtype has all values of a field."""
    if dtype.kind == "int":
        return dtype.bits >= width + (not signed)
    return not signed and dtype.bits >= width


def _constant(amount: tir.Expr) -> int | None:
    """Return the value of all lanes, or None if it is not known."""
    if isinstance(amount, tir.Broadcast):
        amount = amount.value
    if amount.dtype.lanes > 1:
        return None
    return tir.const_int(Analyzer().simplify(amount))


def _byte(value: tir.Expr) -> tir.BufferLoad | None:
    """Return the load of bytes that become int32; its higher bits do not matter."""
    while isinstance(value, tir.Cast) and value.dtype.is_int:
        value = value.value
    return value if isinstance(value, tir.BufferLoad) and value.dtype.is_int and value.dtype.bits == 8 else None
