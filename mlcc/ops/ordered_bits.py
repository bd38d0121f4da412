"""Unsigned integers that are ordered as numbers are, from their bits, in arithmetic: branches would be mispredicted."""

from __future__ import annotations

from mlcc.ir import calls, construct
from mlcc.ir.dtypes import DType
from mlcc.te.scalar import Scalar

# the bits of infinity; those of NaN are above, but for the sign
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def has_ordered_bits(dtype: DType) -> bool:
    """Return True for dtypes that the functions of this module know."""
    return str(dtype) in _INFINITY or (dtype.is_int and dtype.bits in (8, 16, 32, 64))


def word_of(dtype: DType) -> DType:
    """Return the unsigned integers as wide as a dtype."""
    return DType.of(f"uint{dtype.bits}")


def ordered_bits(raw: Scalar, dtype: DType, descending: bool = False) -> Scalar:
    """Return the integer of the number with the bits `raw`: less where the number is less, greater if `descending`.

    Different bits give different integers: -0.0 is below 0.0, and NaN below or above all numbers, as its sign says.
    """
    if dtype.is_float:
        raw = raw ^ (_sign_spread(raw) | _sign(dtype))
    elif not dtype.is_uint:
        raw = raw ^ _sign(dtype)
    key: Scalar = ~raw if descending else raw
    return key


def raw_bits(ordered: Scalar, dtype: DType, descending: bool = False) -> Scalar:
    """Return the bits of the number that `ordered_bits` gave an integer of."""
    raw = ~ordered if descending else ordered
    if dtype.is_float:
        raw = raw ^ (_sign_spread(~raw) | _sign(dtype))
    elif not dtype.is_uint:
        raw = raw ^ _sign(dtype)
    return raw


def stable_key(x: Scalar, descending: bool) -> Scalar:
    """Return an integer that is less where x sorts before, and equal where x keeps its place.

    It is the same for zeros of both signs, and for all NaN, which are greater than all numbers.
    """
    word = word_of(x.dtype)
    raw = Scalar(calls.reinterpret(word, x.expr))
    ordered = ordered_bits(raw, x.dtype)
    if x.dtype.is_float:
        ordered = ordered + _is_negative_zero(raw, x.dtype)  # as 0.0, which is the next integer
        ordered = ordered | (construct.const(0, word) - _is_nan(raw, x.dtype))
    return ~ordered if descending else ordered


def is_special(raw: Scalar, dtype: DType) -> Scalar:
    """Return 1 for the bits of -0.0 and NaN, which `ordered_bits` does not order as `stable_key` does, and else 0."""
    either: Scalar = _is_nan(raw, dtype) | _is_negative_zero(raw, dtype)
    return either


def _sign(dtype: DType) -> Scalar:
    return Scalar(construct.const(1 << (dtype.bits - 1), word_of(dtype)))


def _sign_spread(raw: Scalar) -> Scalar:
    """Return all bits if the sign bit is set, and else none."""
    bits = raw.dtype.bits
    spread = Scalar(calls.reinterpret(f"int{bits}", raw.expr)) >> (bits - 1)
    return Scalar(calls.reinterpret(raw.dtype, spread.expr))


def _is_nan(raw: Scalar, dtype: DType) -> Scalar:
    size = raw & ~_sign(dtype)
    return Scalar(
        construct.cast(raw.dtype, construct.greater(size.expr, construct.const(_INFINITY[str(dtype)], raw.dtype)))
    )


def _is_negative_zero(raw: Scalar, dtype: DType) -> Scalar:
    return Scalar(construct.cast(raw.dtype, construct.equal(raw.expr, _sign(dtype).expr)))
