"""LLVM types of dtypes: one in registers, one in memory.

bool is i1 in registers and a byte in memory. float16, bfloat16 and the 8-bit floats are i16 and i8 in memory; in
registers they are a `float` that always holds a value of the narrow type, rounded after each operation.
"""

from __future__ import annotations

from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen.ir_text import Value, vector
from mlcc.targets.llvm.codegen.refuse import unsupported

_register: dict[DType, str] = {}
_memory: dict[DType, str] = {}


def is_small_float(dtype: DType) -> bool:
    """A float narrower than 32 bits."""
    return dtype.bits < 32 and dtype.is_float


def register_type(dtype: DType) -> str:
    """The type of a value while it is computed with."""
    found = _register.get(dtype)
    if found is None:
        found = _register[dtype] = _register_type(dtype)
    return found


def memory_type(dtype: DType) -> str:
    """The type of a value in memory and at the borders of functions."""
    found = _memory.get(dtype)
    if found is None:
        packed = dtype.is_bool or is_small_float(dtype)
        found = _memory[dtype] = vector(f"i{dtype.bits}", dtype.lanes) if packed else _register_type(dtype)
    return found


def _register_type(dtype: DType) -> str:
    if dtype.is_bool:
        scalar = "i1"
    elif dtype.is_float:
        scalar = "double" if dtype.bits == 64 else "float"
    elif dtype.is_handle:
        scalar = "ptr"
    elif dtype.is_void:
        return "void"
    elif dtype.bits < 8:
        raise unsupported(f"the llvm target has no {dtype}: integers have 8, 16, 32 or 64 bits")
    else:
        scalar = f"i{dtype.bits}"
    return vector(scalar, dtype.lanes)


def zero(dtype: DType) -> Value:
    """Zero (false, null) of a register type; for void the value that stands for none."""
    if dtype.is_void:
        return Value("void", "")
    type = register_type(dtype)
    if dtype.lanes > 1:
        return Value(type, "zeroinitializer")
    if dtype.is_float:
        return Value(type, "0.0")
    return Value(type, "null" if dtype.is_handle else "false" if dtype.is_bool else "0")
