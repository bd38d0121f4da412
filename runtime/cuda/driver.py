"""The subset of the CUDA driver API in use, as functions of plain integers; one implementation per Python package.

Names and results are those of the driver API. Every function raises `DriverError` for a code other than success.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Protocol

from mlcc.runtime.launch.device import SCALARS, Extents
from mlcc.runtime.launch.scalars import bfloat16_bits
from mlcc.runtime.launch.tensor_map import TensorMap

# of CUdevice_attribute
MAX_THREADS, MAX_BLOCK_X, MAX_BLOCK_Y, MAX_BLOCK_Z = 1, 2, 3, 4
MAX_GRID_X, MAX_GRID_Y, MAX_GRID_Z = 5, 6, 7
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
MAX_REGISTERS, MULTIPROCESSORS, L2_SIZE = 12, 16, 38
MAX_SHARED_OPTIN = 97
# of CUfunction_attribute
FUNCTION_SHARED, FUNCTION_MAX_DYNAMIC_SHARED = 1, 8


class NoDriver(Exception):
    """A package or the driver is missing; the message says which."""


class DriverError(Exception):
    """A function of the driver failed. `name` is that of the code without CUDA_ERROR_, `text` what the driver says."""

    def __init__(self, function: str, name: str, text: str) -> None:
        super().__init__(f"{function}: {text} ({name})")
        self.function = function
        self.name = name
        self.text = text


class Driver(Protocol):
    """The driver. Addresses, streams, modules and functions are integers or what the package has for them."""

    package: str
    has_graphs: bool

    def version(self) -> int:
        """The CUDA version that the driver supports: 12040 for 12.4."""

    def device_count(self) -> int: ...

    def device_name(self, device: int) -> str: ...

    def attribute(self, device: int, number: int) -> int: ...

    def retain(self, device: int) -> object:
        """The device's primary context, which is made current in this thread."""

    def enter(self, context: object) -> None:
        """Make a context current in this thread."""

    def leave(self) -> bool:
        """Undo `enter` in this thread where a thread must not keep a context: False where it stays current."""

    def reset(self, device: int) -> None:
        """Destroy the primary context with all that is in it."""

    def alloc(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def memory_info(self) -> tuple[int, int]: ...

    def copy_in(self, target: int, source: int, size: int) -> None:
        """Through the legacy default stream, which ours is ordered with: the source may be pinned, and is read when
        this returns."""

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None: ...

    def copy(self, target: int, source: int, size: int, stream: int) -> None: ...

    def memset(self, target: int, value: int, size: int, stream: int) -> None: ...

    def stream(self) -> int:
        """A new stream that is ordered with the legacy default stream."""

    def synchronize(self, stream: int) -> None: ...

    def event(self) -> object: ...

    def record(self, event: object, stream: int) -> None: ...

    def elapsed(self, start: object, stop: object) -> float:
        """Milliseconds, when both have happened."""

    def load(self, code: bytes) -> object:
        """A module of PTX; the text of a DriverError is the compiler's log."""

    def function(self, module: object, name: str) -> object: ...

    def set_dynamic_shared(self, function: object, size: int) -> None: ...

    def launch(
        self, function: object, grid: Extents, block: Extents, shared: int, stream: int, arguments: ArgumentBlock
    ) -> None: ...

    def encode(self, made: TensorMap) -> bytes:
        """A tensor map as hardware wants it (`tensor_maps`)."""

    def begin_capture(self, stream: int) -> None: ...

    def end_capture(self, stream: int) -> object | None:
        """End the capture and return an executable graph; None if the capture cannot become one."""

    def replay(self, graph: object, stream: int) -> None: ...

    def drop(self, graph: object) -> None: ...


class ArgumentBlock:
    """The arguments of one kernel, laid out as C does, and a pointer to each: both forms that a launch takes."""

    def __init__(self, params: Sequence[str]) -> None:
        self.params = tuple(params)
        self.places: list[tuple[int, struct.Struct, str]] = []
        at = 0
        for kind in self.params:
            by_value = kind.startswith("bytes")
            letter = f"{kind[5:]}s" if by_value else "Q" if kind == "ptr" else SCALARS[kind]
            form = struct.Struct(f"<{letter}")
            align = 64 if by_value else form.size
            at = -(-at // align) * align
            self.places.append((at, form, kind))
            at += form.size
        self.size = at
        self._room = ctypes.create_string_buffer(at + 64)
        base = ctypes.addressof(self._room)
        self._start = -base % 64
        cells = [base + self._start + place for place, _, _ in self.places]
        self._pointers = (ctypes.c_void_p * max(len(cells), 1))(*cells)

    @property
    def pointers(self) -> int:
        """The address of an array of pointers, one to each argument."""
        return ctypes.addressof(self._pointers)

    @property
    def content(self) -> bytes:
        """The arguments as one piece."""
        return self._room.raw[self._start : self._start + self.size]

    def fill(self, values: Sequence[int | float | bytes]) -> None:
        """Put values in; integers wrap around at the width of their dtype, floats are rounded."""
        buffer, start = self._room, self._start
        for value, (place, form, kind) in zip(values, self.places, strict=True):
            form.pack_into(buffer, start + place, _as_struct_value(value, kind, form.size))


def _as_struct_value(value: int | float | bytes, kind: str, size: int) -> int | float | bytes:
    """The value as `struct` takes it."""
    if isinstance(value, bytes):
        return value
    if kind == "bfloat16":
        return bfloat16_bits(float(value))
    if kind in ("float16", "float32", "float64"):
        return _saturated(float(value), kind)
    bits = 8 * size
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if kind.startswith("int") and value >> (bits - 1) else value


_MAX_FLOAT = {"float16": 65520.0, "float32": 3.4028235677973366e38}


def _saturated(value: float, kind: str) -> float:
    """Return the value, or an infinity if it overflows the dtype."""
    largest = _MAX_FLOAT.get(kind)
    if largest is None or -largest < value < largest or value != value:
        return value
    return float("inf") if value > 0 else float("-inf")
