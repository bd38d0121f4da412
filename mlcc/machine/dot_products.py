"""Dot-product instructions: four products of bytes, or two of 16 bits, summed in each 32-bit lane.

Products of integers are summed in int32, those of bfloat16 in float32. `T.dp4a` and `T.dp2a` are what they are called
in TensorIR.
"""

from __future__ import annotations

from mlcc.ir.dtypes import FLOAT32, INT32, DType

Pair = tuple[str, str]  # the dtypes of the two operands

_X86_BYTES: frozenset[Pair] = frozenset({("uint8", "int8"), ("int8", "uint8")})
_SAME_BYTES: frozenset[Pair] = frozenset({("int8", "int8"), ("uint8", "uint8")})
_WORDS: frozenset[Pair] = frozenset({("int16", "int16")})
_BFLOATS: frozenset[Pair] = frozenset({("bfloat16", "bfloat16")})


def dot_pairs(arch: str, enabled: frozenset[str]) -> frozenset[Pair]:
    """The dtypes of operands for which a CPU with the given features has an instruction of its whole vectors' width."""
    if arch == "aarch64":
        mixed = _X86_BYTES if "i8mm" in enabled else frozenset()
        return _SAME_BYTES | mixed if {"dotprod", "i8mm"} & enabled else frozenset()
    if arch != "x86_64":
        return frozenset()
    if "avx512f" in enabled:
        words = _WORDS if "avx512bw" in enabled else frozenset()
        by_bytes = _X86_BYTES if "avx512vnni" in enabled else frozenset()
        return words | by_bytes | (_BFLOATS if "avx512bf16" in enabled else frozenset())
    if "avx" in enabled and "avx2" not in enabled:
        return frozenset()  # vectors of floats are twice as wide as those of integers
    if "avx2" in enabled and {"avxvnni", "avxvnniint8"} & enabled:
        return _WORDS | _X86_BYTES | (_SAME_BYTES if "avxvnniint8" in enabled else frozenset())
    return _WORDS


def group_of(dtype: DType) -> int:
    """Return the number of products of a dtype that one 32-bit lane adds up."""
    return 32 // dtype.bits


def sum_of(dtype: DType) -> DType:
    """Return the dtype in which products of a dtype are summed."""
    return FLOAT32 if dtype.is_float else INT32
