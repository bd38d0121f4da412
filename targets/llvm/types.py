"""LLVM types of dtypes: one in registers, one in memory.

bool is i1 in registers and a byte in memory. float16, bfloat16 and the 8-bit floats are i16 and i8 in memory; in
registers they are a `float` that always holds a value of the narrow type, rounded after each operation.
"""

from __future__ import annotations

from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.ir_text import vector


def is_small_float(dtype: DType) -> bool:
    """A float narrower than 32 bits."""
    return dtype.is_float and dtype.bits < 32


def register_type(dtype: DType) -> str:
    """The type of a value while it is computed with."""
    if dtype.is_bool:
        scalar = "i1"
    elif dtype.is_float:
        scalar = "double" if dtype.bits == 64 else "float"
    elif dtype.is_handle:
        scalar = "ptr"
    elif dtype.is_void:
        return "void"
    else:
        scalar = f"i{dtype.bits}"
    return vector(scalar, dtype.lanes)


def memory_type(dtype: DType) -> str:
    """The type of a value in memory and at the borders of functions."""
    if dtype.is_bool:
        scalar = "i8"
    elif is_small_float(dtype):
        scalar = f"i{dtype.bits}"
    elif dtype.is_int and dtype.bits < 8:
        scalar = "i8"
    else:
        return register_type(dtype)
    return vector(scalar, dtype.lanes)
