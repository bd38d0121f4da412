"""Floating types that NumPy does not have, kept as bit patterns: bfloat16 in uint16, 8-bit floats in uint8.

Rounding is to nearest, ties to even, once, from float64: the same values as `construct.round_float` gives.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import storage_dtype

if TYPE_CHECKING:
    import numpy as np


def is_narrow(dtype: DType) -> bool:
    """Return True for a type stored as bit patterns rather than values."""
    return dtype.is_float and dtype.kind != "float"


def encode(values: Any, dtype: DType) -> np.ndarray:
    """Return values as stored elements of `dtype`. Raises OverflowError or ValueError if it cannot hold one."""
    import numpy as np

    if not is_narrow(dtype):
        with np.errstate(over="ignore"):
            return np.asarray(values, storage_dtype(dtype))
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        wide = np.asarray(values, "float64")
    if dtype.kind == "bfloat":
        return _bfloat16(wide)
    return _by_table(wide, dtype)


def decode(stored: np.ndarray, dtype: DType) -> np.ndarray:
    """Return stored elements as values: float32 for bit patterns, else the array itself."""
    import numpy as np

    if dtype.kind == "bfloat":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if is_narrow(dtype):
        return np.asarray(_table(dtype.kind)[stored])
    return stored


def _bfloat16(wide: np.ndarray) -> np.ndarray:
    """Round float64 to odd in float32, then float32 to nearest even in bfloat16: one rounding in effect.

    Round-to-odd keeps the sticky information of the dropped bits in the last bit of the float32, which lies below
    the bits that decide the second rounding, so no value is rounded twice.
    """
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
    bits = near.view(np.uint32).astype(np.uint64)  # room for the carry out of a NaN
    finite = np.isfinite(wide)
    back = near.astype(np.float64)
    # toward zero first, then set the last bit where anything was lost
    beyond = finite & (np.abs(back) > np.abs(wide))
    bits = np.where(beyond, bits - np.uint64(1), bits)
    bits = np.where(finite & (back != wide), bits | np.uint64(1), bits)
    rounded = (bits + np.uint64(0x7FFF) + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    quiet = np.where(np.isnan(wide), bits >> np.uint64(16) | np.uint64(0x40), rounded)
    return quiet.astype(np.uint16)


@functools.cache
def _table(kind: str) -> np.ndarray:
    """Return the value of each of the 256 bit patterns."""
    import numpy as np

    exponent_bits, mantissa_bits, bias = (5, 2, 15) if kind == "float8_e5m2" else (4, 3, 7)
    table = np.zeros(256, np.float32)
    for pattern in range(256):
        sign = -1.0 if pattern & 0x80 else 1.0
        exponent = pattern >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = pattern & (1 << mantissa_bits) - 1
        fraction = mantissa / (1 << mantissa_bits)
        if kind == "float8_e5m2" and exponent == 31:
            value = float("nan") if mantissa else float("inf")
        elif kind != "float8_e5m2" and exponent == 15 and mantissa == 7:
            value = float("nan")
        elif exponent:
            value = (1 + fraction) * 2.0 ** (exponent - bias)
        else:
            value = fraction * 2.0 ** (1 - bias)
        table[pattern] = sign * value
    table.flags.writeable = False
    return table


def _by_table(wide: np.ndarray, dtype: DType) -> np.ndarray:
    """Round by the rule of `construct.round_float`, then look up the pattern."""
    import numpy as np

    from mlcc.ir.construct import round_float

    patterns = {float(v): p for p, v in enumerate(_table(dtype.kind)[:128])}  # NaN never matches: it is found below
    nan = 0x7F
    overflow = 0x7C if dtype.kind == "float8_e5m2" else nan  # e4m3fn has no infinity

    def one(value: float) -> int:
        sign = 0x80 if np.signbit(value) else 0
        if np.isnan(value):
            return sign | nan
        return sign | patterns.get(abs(round_float(float(value), dtype)), overflow)

    flat = np.fromiter((one(v) for v in wide.ravel()), np.uint8, wide.size)
    return flat.reshape(wide.shape)
