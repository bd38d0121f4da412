"""C types of dtypes, and literals.

A value is computed with in its register type and stored in its memory type. bool is a byte in memory; float16, bfloat16
and the 8-bit floats are `uint16_t` and `uint8_t` in memory, and in registers a `float` that is rounded after each
operation.
"""

from __future__ import annotations

import math

import numpy as np

from mlcc.errors import Span
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType
from mlcc.targets.source.dialect import refuse

_MEMORY = {
    "bool": "uint8_t", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t", "float16": "uint16_t",
    "bfloat16": "uint16_t", "float8_e4m3fn": "uint8_t", "float8_e5m2": "uint8_t", "float32": "float",
    "float64": "double", "handle": "void *",
}  # fmt: skip
_SUFFIXES = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}


def is_narrow_float(dtype: DType) -> bool:
    """Return True for a float of less than 32 bits."""
    return dtype.is_float and dtype.bits < 32


def memory_type(dtype: DType, span: Span | None = None) -> str:
    """Return the C type of an element in memory. Raises CompileError (E0780) for integers of 1 and 4 bits."""
    name = _MEMORY.get(str(dtype.element))
    if name is None:
        raise refuse(f"C has no {dtype}", span, help="widen it to 8 bits before, as `T.Cast` does")
    return name


def storage(dtype: DType) -> DType:
    """Return the dtype of numbers that C has for elements of a dtype in memory."""
    narrow = dtype.is_bool or is_narrow_float(dtype)
    return DType.of(f"uint{8 * dtype.bytes}") if narrow else dtype.element


def register_type(dtype: DType, span: Span | None = None) -> str:
    """Return the C type of a value in computations. Raises CompileError (E0780)."""
    name = memory_type(dtype, span)
    return "bool" if dtype.is_bool else "float" if is_narrow_float(dtype) else name


def suffix(dtype: DType) -> str:
    """Return a dtype as the last part of a helper function's name: `i32`, `u8`, `f32`, `bf16`."""
    name = str(dtype.element)
    return _SUFFIXES.get(name) or f"{ {'int': 'i', 'uint': 'u', 'float': 'f', 'bool': 'b'}[dtype.kind] }{dtype.bits}"


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer dtype or bool."""
    if dtype.is_bool:
        return 0, 1
    bits = dtype.bits if dtype.is_uint else dtype.bits - 1
    return (0 if dtype.is_uint else -(1 << bits)), (1 << bits) - 1


def declared(type: str) -> str:
    """Return a type as it stands before a name."""
    return type if type.endswith("*") else f"{type} "


def integer_literal(value: int, dtype: DType, exact: bool = False) -> str:
    """Return an integer constant. Small ones of 64 bits are plain numbers, unless the type must be `exact`."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.bits < 32:
        return str(value)
    if not dtype.is_uint and value == -(1 << dtype.bits - 1):
        return f"INT{dtype.bits}_MIN"
    if dtype.bits == 64 and (exact or not -(2**31) < value < (2**32 if dtype.is_uint else 2**31)):
        macro = "UINT64_C" if dtype.is_uint else "INT64_C"
        return f"{macro}({value})" if value >= 0 else f"-{macro}({-value})"
    return f"{value}u" if dtype.is_uint else str(value)


def float_literal(value: float, dtype: DType) -> str:
    """Return the shortest decimal constant that reads as this value, which is rounded to its dtype."""
    value = round_float(value, dtype)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    number = np.float64(value) if dtype.bits == 64 else np.float32(value)
    plain = value == 0 or 1e-4 <= abs(value) < 1e7
    digits = np.format_float_positional(number, trim="0") if plain else np.format_float_scientific(number, trim="-")
    return digits if dtype.bits == 64 else f"{digits}f"
