"""Tensor maps: their form in a launch plan, and the 128 bytes that a launch passes by value.

Hardware takes the encoding of the driver (`cuTensorMapEncodeTiled`); an emulated device takes plain numbers (`plain`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mlcc.errors import CallError, error

BYTES = 128
MAX_DIMS, MAX_BOX, MAX_STEP = 5, 256, 8
STRIDE_UNIT = 16  # alignment in bytes of the address, strides and the rows of boxes
MAX_STRIDE = 1 << 40
MAX_EXTENT = 1 << 32
SWIZZLES = (0, 32, 64, 128)
# dtype -> CUtensorMapDataType; unsupported dtypes are moved as unsigned integers of the same size
DTYPES = {
    "bool": 0, "int8": 0, "uint8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "int16": 1, "uint16": 1, "uint32": 2,
    "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_FORM = struct.Struct("<Q5q4q")  # of the plain form: address, extents, strides


class MapSpec(NamedTuple):
    """The compile-time part of a tensor map; lists have the innermost dimension first."""

    name: str  # of the tensor, for messages
    dtype: str
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0


class TensorMap(NamedTuple):
    """A map for one launch: `strides`, in bytes, are those of all dimensions but the innermost."""

    spec: MapSpec
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """True if the tensor has no elements, so that zeros are copied."""
        return not all(self.dims)


def tensor_map(spec: MapSpec, address: int, dims: Sequence[int], strides: Sequence[int]) -> TensorMap:
    """Return a validated map; negative extents become 0. Raises CallError E0879."""
    descriptor = TensorMap(spec, address, tuple(max(d, 0) for d in dims), tuple(strides))
    if descriptor.is_empty:
        return descriptor
    if address % STRIDE_UNIT:
        raise _refused(spec, f"its address {address:#x} is not a multiple of {STRIDE_UNIT}")
    for extent in dims:
        if extent > MAX_EXTENT:
            raise _refused(spec, f"an extent of {extent} exceeds {MAX_EXTENT}")
    for stride in strides:
        if stride % STRIDE_UNIT:
            help = "pad the rows of the tensor, or compile the kernel without bulk copies"
            raise _refused(spec, f"its row stride of {stride} bytes is not a multiple of {STRIDE_UNIT}", help)
        if not 0 <= stride < MAX_STRIDE:
            raise _refused(spec, f"its row stride of {stride} bytes must be less than {MAX_STRIDE}")
    return descriptor


def encode_as_numbers(descriptor: TensorMap) -> bytes:
    """Encode a map as int64 numbers: the address, five extents, four strides, then zeros."""
    dims = (*descriptor.dims, *[1] * (MAX_DIMS - len(descriptor.dims)))
    strides = (*descriptor.strides, *[0] * (MAX_DIMS - 1 - len(descriptor.strides)))
    return _FORM.pack(descriptor.address, *dims, *strides).ljust(BYTES, b"\0")


def _refused(spec: MapSpec, why: str, help: str | None = None) -> CallError:
    return CallError(error("E0879", f"`{spec.name}` cannot be copied by a tensor map: {why}", help=help))
