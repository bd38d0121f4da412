"""The binary interface of artifacts: DLTensor, argument vectors, error codes. `docs/abi.md` describes it for C.

The code generator, the header writer and the loader all take their numbers from here.
"""

from __future__ import annotations

import ctypes
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

ABI_VERSION = 1
MANIFEST_SECTION = ".mlcc.manifest"
CONSTANTS_SECTION = ".rodata.mlcc"
FAR_CONSTANTS_SECTION = ".lrodata.mlcc"  # linkers for x86-64 put it where it moves nothing else out of reach
FAR_CONSTANTS = 1 << 30  # bytes of constants from which on code reaches them by 64-bit addresses
ALIGNMENT = 64  # of workspaces, constants and planned buffers
CPU, CUDA_HOST = 1, 3  # DLDeviceType values that a CPU function can read

# how files with a launch plan begin: a zip, or PTX with the manifest in its first line (`mlcc.runtime.launch.files`)
ZIP_START, MANIFEST_LINE = b"PK\x03\x04", b"// mlcc manifest: "

PLACEHOLDER_PREFIX = "mlcc_unnamed_prefix"  # stands for PREFIX in symbols until an artifact is given its name


class Kind(NamedTuple):
    """A class of error codes: what the low byte of a code says."""

    code: int
    name: str
    text: str


KINDS = (
    Kind(0, "OK", "no error"),
    Kind(1, "NULL", "a required pointer is null"),
    Kind(2, "NDIM", "a tensor has the wrong number of dimensions"),
    Kind(3, "DTYPE", "a tensor has the wrong element type"),
    Kind(4, "SHAPE", "a dimension of a tensor is not the one declared"),
    Kind(5, "SYMBOL", "dimensions that must agree do not"),
    Kind(6, "DEVICE", "a tensor is not in the memory of the CPU"),
    Kind(7, "STRIDES", "a tensor is not contiguous"),
    Kind(8, "ALIGN", "the memory of a tensor is not aligned to its element type"),
    Kind(9, "OVERLAP", "an output shares memory with another argument"),
    Kind(10, "WORKSPACE", "the workspace is too small or not aligned to 64 bytes"),
    Kind(11, "MEMORY", "out of memory, or a size that does not fit the address space"),
    Kind(12, "PACKED_UNSET", "a packed function is not set"),
    Kind(13, "PACKED_FAILED", "a packed function reported an error"),
    Kind(14, "ASSERT", "an assertion in the program failed"),
    Kind(15, "CAST", "a value does not have the struct info that the program says it has"),
    Kind(16, "VALUE", "a scalar argument is out of range"),
    Kind(17, "INDEX", "an index in the data lies outside"),
    Kind(18, "OUTSIDE", "an access outside of a buffer (code built to be checked)"),
    Kind(19, "UNWRITTEN", "a read of memory that nothing wrote (code built to be checked)"),
    Kind(20, "RACE", "iterations of a parallel loop that meet (code built to be checked)"),
)
KIND_BY_NAME = {k.name: k for k in KINDS}
KIND_BY_CODE = {k.code: k for k in KINDS}
DETAIL_SHIFT = 8  # the bits above the kind number the check within its function
SLOT_SHIFT = 24  # those above, where there are any, say where the call left the numbers of its text
SLOTS = 127
# control characters in the texts of checks: where the first and the second number that a check reports go
FIRST, SECOND, FIRST_UNSIGNED = "\x01", "\x02", "\x03"


ERROR_RECORD_BYTES = (
    24  # bytes in which a GPU's kernel says what failed: an int32, and from byte 8 on the two numbers as int64
)


def kind_of(code: int) -> Kind | None:
    """The class of an error code."""
    return KIND_BY_CODE.get(code & 0xFF)


def fill_numbers(text: str, first: int, second: int) -> str:
    """The text of a check with the numbers that it reports, both int64."""
    message = text.replace(FIRST, str(first)).replace(SECOND, str(second))
    return message.replace(FIRST_UNSIGNED, str(first % (1 << 64)))


# ---------------------------------------------------------------- element types

# DLPack's type codes; bool, bfloat16 and the 8-bit floats have codes of their own.
_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}
_NAMES = {code: name for name, code in _CODES.items()}


_SPELLING = re.compile(
    r"(float8_e4m3fn|float8_e5m2|bool|handle|(?:(bfloat)(16)|(u?int)(1|4|8|16|32|64)|(float)(16|32|64)))(?:x(\d{1,4}))?"
)


def dtype_code(name: str) -> tuple[int, int, int]:
    """DLDataType (code, bits, lanes) of a dtype's name, such as `float32x4`. Raises ValueError."""
    match = _SPELLING.fullmatch(name)
    if match is None:
        raise ValueError(f"`{name}` has no DLPack type")
    base, *parts, lanes = match.groups()
    kind_and_bits = [p for p in parts if p is not None]
    if not kind_and_bits:
        return _CODES[base], 64 if base == "handle" else 8, int(lanes or 1)
    return _CODES[kind_and_bits[0]], int(kind_and_bits[1]), int(lanes or 1)


def dtype_name(code: int, bits: int, lanes: int) -> str:
    """The inverse of `dtype_code`; unknown types are spelled out."""
    kind = _NAMES.get(code)
    if kind is None:
        return f"DLPack type {code} of {bits} bits"
    base = kind if kind == "bool" or kind == "handle" or kind.startswith("float8") else f"{kind}{bits}"
    return base if lanes == 1 else f"{base}x{lanes}"


STORAGE = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # dtypes that NumPy lacks
_STATED = "tensor"


def tagged_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of the bits of elements, that says which dtype that NumPy lacks they are of."""
    import numpy as np

    return np.dtype(dtype.str, metadata={_STATED: name})


def dtype_tag(dtype: np.dtype[Any]) -> str | None:
    """The dtype that `stated` says; None for a NumPy dtype that stands for itself."""
    return dtype.metadata.get(_STATED) if dtype.metadata is not None else None


def element_bytes(code: tuple[int, int, int]) -> int:
    """Bytes of one element, all lanes."""
    return (code[1] + 7) // 8 * code[2]


# ---------------------------------------------------------------- structures


class DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


DLTENSOR = struct.Struct("<QiiiBBHQQQ")
assert DLTENSOR.size == ctypes.sizeof(DLTensor) == 48

# Offsets of DLTensor's fields, for generated code.
OFFSET = {
    "data": 0, "device_type": 8, "device_id": 12, "ndim": 16, "dtype": 20, "shape": 24, "strides": 32,
    "byte_offset": 40,
}  # fmt: skip


def dtype_word(code: tuple[int, int, int]) -> int:
    """DLDataType as the little-endian 32-bit word that generated code compares with."""
    return code[0] | code[1] << 8 | code[2] << 16


# int32_t packed(void *ctx, DLTensor **args, int32_t n)
PackedFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
# int32_t PREFIX_f_query(const mlcc_arg *args, int64_t *out, int32_t results_too); out: workspace bytes, then symbols
QueryFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
# int32_t PREFIX_f_run(const mlcc_arg *args, const int64_t *symbols, void *workspace)
RunFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
# const char *PREFIX_f_error(int32_t code)
ErrorFn = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int32)
# int32_t PREFIX_set_packed_slot(int32_t slot, packed fn, void *ctx)
SetSlotFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
# int64_t *PREFIX_profile(void), int64_t *PREFIX_profile_log(void)
ProfileFn = ctypes.CFUNCTYPE(ctypes.c_void_p)
# int32_t PREFIX_time_run(run, args, symbols, workspace, int64_t number, clock_gettime, int64_t *nanoseconds)
TimeFn = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
    ctypes.c_void_p,
)  # fmt: skip
