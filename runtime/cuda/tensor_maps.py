"""Tensor maps as hardware wants them: by `cuTensorMapEncodeTiled` of libcuda, called by ctypes for every package.

The driver writes the map to memory aligned to 64 bytes, which objects of Python packages need not be.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from mlcc.runtime.cuda.driver import DriverError
from mlcc.runtime.launch.tensor_map import BYTES, DTYPES, TensorMap

LIBRARY = "libcuda.so.1"
_ALIGNMENT = 64
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_INTERLEAVE_NONE, _L2_128_BYTES, _FILL_ZEROS = 0, 2, 0
_CODES = {1: "INVALID_VALUE", 3: "NOT_INITIALIZED", 4: "DEINITIALIZED", 201: "INVALID_CONTEXT", 801: "NOT_SUPPORTED"}


@functools.cache
def _function() -> Any:
    """Raises DriverError where the driver has no tensor maps (before CUDA 12)."""
    try:
        encode_tiled = ctypes.CDLL(LIBRARY).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as exc:
        raise DriverError("cuTensorMapEncodeTiled", "NOT_FOUND", f"the driver has no tensor maps: {exc}") from None
    p = ctypes.c_void_p
    c = ctypes.c_uint32
    encode_tiled.argtypes = [p, ctypes.c_int, c, p, p, p, p, p, *[ctypes.c_int] * 4]
    encode_tiled.restype = ctypes.c_int
    return encode_tiled


def encode(made: TensorMap, function: Any = None) -> bytes:
    """The 128 bytes of a map that has elements. `function` stands in for the driver's. Raises DriverError."""
    spec, rank = made.spec, len(made.dims)
    room = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    at = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
    dims = (ctypes.c_uint64 * rank)(*made.dims)
    strides = (ctypes.c_uint64 * max(rank - 1, 1))(*made.strides)  # those of all dimensions but the innermost
    box, steps = ((ctypes.c_uint32 * rank)(*numbers) for numbers in (spec.box, spec.steps))
    call = _function() if function is None else function
    code = call(
        at, DTYPES[spec.dtype], rank, made.address, ctypes.addressof(dims), ctypes.addressof(strides),
        ctypes.addressof(box), ctypes.addressof(steps), _INTERLEAVE_NONE, _SWIZZLES[spec.swizzle], _L2_128_BYTES,
        _FILL_ZEROS,
    )  # fmt: skip
    if code:
        text = f"the map of `{spec.name}` {_shown(made)} is refused"
        raise DriverError("cuTensorMapEncodeTiled", _CODES.get(code, str(code)), text)
    return ctypes.string_at(at, BYTES)


def _shown(made: TensorMap) -> str:
    return f"(extents {list(made.dims)}, strides {list(made.strides)}, boxes of {list(made.spec.box)})"
