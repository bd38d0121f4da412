"""Arithmetic of every dtype on NumPy values: what one operation computes, as docs/semantics.md states it.

Values are NumPy scalars or arrays of a dtype's carrier type: the dtype itself where NumPy has it, float32 for bfloat16
and 8-bit floats (rounded after each operation), int8 and uint8 for narrower integers (wrapped after each operation).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode, is_narrow

Value = Any  # a NumPy scalar or array of the carrier type
Binary = Callable[[Value, Value], Value]


@functools.cache
def carrier(dtype: DType) -> np.dtype:
    """The NumPy type in which values of `dtype` are computed."""
    if dtype.is_bool:
        return np.dtype(np.bool_)
    if is_narrow(dtype):
        return np.dtype(np.float32)
    return stored(dtype)


@functools.cache
def stored(dtype: DType) -> np.dtype:
    """The NumPy type of an element of `dtype` in memory."""
    if dtype.is_bool:
        return np.dtype(np.bool_)
    if dtype.kind == "bfloat":
        return np.dtype(np.uint16)
    if is_narrow(dtype):
        return np.dtype(np.uint8)
    if dtype.is_int and dtype.bits < 8:
        return np.dtype(f"{dtype.kind}8")
    if dtype.is_handle:
        return np.dtype(np.uint64)
    return np.dtype(str(dtype.element))


def from_memory(values: Value, dtype: DType) -> Value:
    """Stored elements as values."""
    return decode(np.asarray(values), dtype) if is_narrow(dtype) else values


def to_memory(values: Value, dtype: DType) -> Value:
    """Values as stored elements."""
    return encode(values, dtype) if is_narrow(dtype) else values


def constant(value: float, dtype: DType) -> Value:
    """A Python number as a value."""
    return carrier(dtype).type(value)


# ---------------------------------------------------------------- rounding and wrapping


def rounding_function(dtype: DType) -> Callable[[Value], Value] | None:
    """Return a function that rounds or wraps a result in the carrier type to `dtype`; None if none is needed."""
    if dtype.kind == "bfloat":
        return round_bfloat16
    if is_narrow(dtype):
        return lambda v: decode(encode(v, dtype), dtype)
    if dtype.is_int and dtype.bits < 8:
        return functools.partial(_wrap_narrow, dtype=dtype)
    return None


def round_bfloat16(values: Value) -> Value:
    """float32 to the nearest bfloat16, ties to even, as float32."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) & np.uint32(0xFFFF0000)
    rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)[()]


def _wrap_narrow(values: Value, dtype: DType) -> Value:
    mask = (1 << dtype.bits) - 1
    low = np.asarray(values) & mask
    if dtype.kind == "int":
        low = np.where(low >> (dtype.bits - 1) & 1, low - (mask + 1), low)
    return low.astype(carrier(dtype))[()]


# ---------------------------------------------------------------- operators


def binary(kind: type[tir.BinaryOp], dtype: DType) -> Binary:
    """The operation of a node whose operands have `dtype`."""
    element = dtype.element
    if issubclass(kind, tir.CompareOp):
        return _COMPARE[kind]
    if kind in (tir.And, tir.Or):
        return np.logical_and if kind is tir.And else np.logical_or
    if element.is_bool:
        return _on_bools(kind)
    if element.is_float:
        return _on_floats(kind, element)
    rule = _INTEGER[kind]
    back = rounding_function(element)
    return rule if back is None else lambda a, b: back(rule(a, b))


def _truncdiv(a: Value, b: Value) -> Value:
    """Toward zero; by zero: 0 (NumPy's integer division by zero is 0)."""
    return np.floor_divide(a - np.fmod(a, b), b)


def _min(a: Value, b: Value) -> Value:
    return np.asarray(np.where((a <= b) | (a != a), a, b))[()]


def _max(a: Value, b: Value) -> Value:
    return np.asarray(np.where((a >= b) | (a != a), a, b))[()]


_COMPARE: dict[type, Binary] = {
    tir.EQ: np.equal, tir.NE: np.not_equal, tir.LT: np.less, tir.LE: np.less_equal, tir.GT: np.greater,
    tir.GE: np.greater_equal,
}  # fmt: skip
_INTEGER: dict[type, Binary] = {
    tir.Add: lambda a, b: a + b, tir.Sub: lambda a, b: a - b, tir.Mul: lambda a, b: a * b, tir.Div: _truncdiv,
    tir.Mod: np.fmod, tir.FloorDiv: np.floor_divide, tir.FloorMod: np.remainder, tir.Min: _min, tir.Max: _max,
}  # fmt: skip


def _on_bools(kind: type) -> Binary:
    rule = _INTEGER[kind]

    def apply(a: Value, b: Value) -> Value:
        return rule(np.asarray(a).astype(np.int32), np.asarray(b).astype(np.int32)) != 0

    return apply


_FLOAT: dict[type, Binary] = {
    tir.Add: lambda a, b: a + b, tir.Sub: lambda a, b: a - b, tir.Mul: lambda a, b: a * b,
    tir.Div: lambda a, b: a / b, tir.Mod: np.fmod, tir.FloorDiv: lambda a, b: np.floor(a / b),
    tir.FloorMod: np.remainder, tir.Min: _min, tir.Max: _max,
}  # fmt: skip
_ONE_STEP = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Min, tir.Max)  # rounded once by NumPy's float16 already


def _on_floats(kind: type, dtype: DType) -> Binary:
    rule = _FLOAT[kind]
    if dtype.bits >= 32 or (dtype.kind == "float" and kind in _ONE_STEP):
        return rule
    return lambda a, b: narrowed(rule(widened(a), widened(b)), dtype)


def widened(value: Value) -> Value:
    """float16 as float32, in which its operations are computed."""
    return np.asarray(value).astype(np.float32)[()] if np.asarray(value).dtype == np.float16 else value


def narrowed(value: Value, dtype: DType) -> Value:
    """A result computed in float32 or wider, rounded to the carrier of `dtype`."""
    if dtype.kind == "float":
        return np.asarray(value).astype(carrier(dtype))[()]
    back = rounding_function(dtype)
    return back(value) if back is not None else value


# ---------------------------------------------------------------- casts


def cast(to: DType, source: DType) -> Callable[[Value], Value]:
    """Convert values; NaN becomes integer 0, and values out of an integer's range the nearest one in range."""
    to, source = to.element, source.element
    if to is source:
        return lambda v: v
    if to.is_bool:
        return lambda v: np.asarray(v) != 0
    if to.is_float:
        return functools.partial(_to_float, to=to, source=source)
    if source.is_float:
        return functools.partial(_float_to_int, to=to)
    kind = carrier(to)
    back = rounding_function(to)
    if back is None:
        return lambda v: np.asarray(v).astype(kind)[()]
    return lambda v: back(np.asarray(v).astype(kind)[()])


def _to_float(value: Value, to: DType, source: DType) -> Value:
    value = np.asarray(value)
    if to.bits >= 32:
        return value.astype(carrier(to))[()]
    if not source.is_float:
        value = value.astype(np.float32)
    if is_narrow(to):
        if value.dtype == np.float32 and to.kind == "bfloat":
            return round_bfloat16(value)
        return decode(encode(value, to), to)[()]
    return value.astype(np.float16)[()]


def _float_to_int(value: Value, to: DType) -> Value:
    low = -(1 << (to.bits - 1)) if to.kind == "int" else 0
    high = (1 << (to.bits - (to.kind == "int"))) - 1
    wide = np.trunc(np.asarray(value, np.float64))
    over, under = wide >= float(high), wide <= float(low)
    safe = np.where(over | under | np.isnan(wide), 0.0, wide)
    kind = np.uint64 if to.is_uint else np.int64
    rounded = safe.astype(kind)
    rounded = np.where(over, kind(high), np.where(under, kind(low), rounded))
    return rounded.astype(carrier(to))[()]
