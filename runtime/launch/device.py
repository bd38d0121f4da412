"""The device interface that launch plans run on.

Hardware (`mlcc.runtime.cuda`) and emulation implement it; `HostDevice` has the functions that only move memory.
Addresses are plain integers; device addresses are not valid on the host. Operations run in order, but `launch`, `copy`,
`memset`, `record` and `replay` are asynchronous; `copy_in`, `copy_out`, `synchronize` and `elapsed` wait. Failures
raise CallError or LoadError, possibly from a later operation than the one that caused them. The device can be used
again after a failure, but its memory may be lost: `generation` counts how often that happened.
"""

from __future__ import annotations

import abc
import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from mlcc.errors import CallError, error
from mlcc.runtime.abi import ALIGNMENT, CPU
from mlcc.runtime.launch.tensor_map import TensorMap, encode_as_numbers

Extents = tuple[int, int, int]

# dtype of a scalar kernel parameter -> format of `struct`
SCALARS = {
    "bool": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "uint64": "Q", "float16": "e", "bfloat16": "H", "float32": "f", "float64": "d",
}  # fmt: skip


class KernelSpec(NamedTuple):
    """A kernel as the launch plan describes it; `name` is its symbol in the code.

    `params` are `ptr`, the dtype of a scalar (`int64`, `float16`: passed as Python numbers, rounded to the dtype; bool
    is one byte), or `bytesN`: N bytes passed by value, such as a tensor map. `block` has the constant extents, else 0.
    `shared` and `dynamic_shared` are bytes per block; the latter is the maximum over all launches, -1 if unknown.
    """

    name: str
    params: tuple[str, ...]
    block: Extents = (0, 0, 0)
    shared: int = 0
    dynamic_shared: int = 0


class MemoryInfo(NamedTuple):
    free: int
    total: int


class OperationLog(Protocol):
    """What logs operations that are none of the device's own (`device_log`)."""

    def call(self, kind: str, name: str, size: int, operation: Callable[[], Any]) -> Any: ...


class Device(abc.ABC):
    """A device with memory of its own that runs kernels. Its functions may be called from any thread."""

    kind = "cuda"  # packed functions registered for this kind are passed device arrays
    name = ""  # in messages
    dlpack: tuple[int, int] = (CPU, 0)  # DLPack's type and number of the device that can address the memory
    stream = 0  # DLPack stream that orders the work, 0 for none
    generation = 0
    exact_memory = False  # blocks are never padded or reused, so that out-of-bounds accesses show
    can_capture = False  # `begin_capture`, `end_capture` and `replay` work
    log: OperationLog | None = None  # attached by `device_log`

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held by a call for its whole duration

    def require(self, target: Mapping[str, Any]) -> None:  # noqa: B027 - most devices run all code that they load
        """Refuse code that the device cannot run; `target` is what the manifest says. Raises MachineError."""

    def attach(self) -> None:  # noqa: B027 - most devices have no such thing
        """Prepare this thread for a call: other code may have selected another device."""

    @abc.abstractmethod
    def alloc(self, size: int) -> int:
        """Allocate memory aligned to 256 bytes; return its address, 0 for no bytes. Raises CallError E0865."""

    @abc.abstractmethod
    def free(self, address: int) -> None:
        """Free memory. It must not raise, and must ignore lost memory and address 0."""

    @abc.abstractmethod
    def copy_in(self, target: int, source: int, size: int) -> None:
        """Copy from host memory at `source` to the device. The source may change as soon as this returns."""

    @abc.abstractmethod
    def copy_out(self, target: int, source: int, size: int) -> None:
        """Copy from the device to host memory at `target`, after all earlier operations."""

    @abc.abstractmethod
    def copy(self, target: int, source: int, size: int) -> None:
        """Copy within the device; the two do not overlap."""

    @abc.abstractmethod
    def memset(self, target: int, value: int, size: int) -> None:
        """Fill with one byte."""

    @abc.abstractmethod
    def load_module(self, code: bytes, kernels: Mapping[str, KernelSpec]) -> Mapping[str, Any]:
        """Load code; return for each key of `kernels` the handle that `launch` takes. Raises LoadError."""

    @abc.abstractmethod
    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        """Run a kernel with a value for each of its parameters. No extent is 0. Raises CallError."""

    def tensor_map(self, made: TensorMap) -> bytes:
        """Encode a tensor map for kernels of this device, by default as plain numbers. Raises CallError."""
        return encode_as_numbers(made)

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all operations are done. Raises CallError if one failed."""

    @abc.abstractmethod
    def record(self) -> Any:
        """Return an event that occurs when all earlier operations are done."""

    @abc.abstractmethod
    def elapsed(self, start: Any, stop: Any) -> float:
        """Wait for two events, return the seconds between them, and release them."""

    @abc.abstractmethod
    def memory_info(self) -> MemoryInfo:
        """Return the free and total bytes of the device's memory."""

    # ------------------------------------------------------------ replay, where a device has it

    def begin_capture(self) -> None:
        """Start recording launches, copies and memsets instead of running them."""
        raise NotImplementedError

    def end_capture(self) -> Any:
        """End the capture and return its graph, for `replay`; None if the operations could not be captured."""
        raise NotImplementedError

    def replay(self, graph: Any) -> None:
        """Launch all operations of a captured graph at once."""
        raise NotImplementedError

    def drop(self, graph: Any) -> None:  # noqa: B027 - only some have anything to give back
        """Release a captured graph. Must not raise."""


class Limits(NamedTuple):
    """The limits of one launch: threads of a block in all and along each axis, blocks along each axis, and bytes of
    shared memory of a block."""

    threads: int
    block: Extents
    grid: Extents
    shared: int

    def refusal(self, kernel: str, device: str, grid: Extents, block: Extents, shared: int) -> str | None:
        """Return the reason why a device of that name cannot launch a kernel in this configuration; None if it can."""
        if (
            block[0] * block[1] * block[2] <= self.threads
            and all(map(int.__le__, block, self.block))
            and all(map(int.__le__, grid, self.grid))
            and shared <= self.shared
        ):
            return None
        text = f"`{kernel}` cannot be launched: "
        if shared > self.shared:
            return text + f"{show_bytes(shared)} of shared memory, {device} has {show_bytes(self.shared)}"
        if any(g > m for g, m in zip(grid, self.grid, strict=True)):
            return text + f"a grid of {_times(grid)}, {device} takes up to {_times(self.grid)}"
        return text + f"blocks of {_times(block)} threads, {device} takes {self.threads} in all, {_times(self.block)}"


def _times(extents: Extents) -> str:
    return " x ".join(map(str, extents))


class HostDevice(Device):
    """A device with host memory. It implements memory operations; loading and launching are left to subclasses.

    New memory is filled with a NaN pattern, so that reads of uninitialised memory show.
    """

    name = "host memory"
    _FRESH = 0xFF

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._live: dict[int, tuple[int, np.ndarray]] = {}  # address -> size, memory

    def alloc(self, size: int) -> int:
        if not size:
            return 0
        align = 256
        try:
            memory = np.full(size + align, self._FRESH, np.uint8)
        except (MemoryError, ValueError):
            raise out_of_memory(size, None) from None
        start: int = memory.__array_interface__["data"][0]
        address = -(-start // align) * align
        with self._lock:
            self._live[address] = size, memory
        return address

    def free(self, address: int) -> None:
        with self._lock:
            self._live.pop(address, None)

    def copy_in(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def copy_out(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def memset(self, target: int, value: int, size: int) -> None:
        ctypes.memset(target, value, size)

    def synchronize(self) -> None:
        pass

    def record(self) -> float:
        return time.perf_counter()

    def elapsed(self, start: float, stop: float) -> float:
        return stop - start

    def memory_info(self) -> MemoryInfo:
        with self._lock:
            used = sum(size for size, _ in self._live.values())
        total = 1 << 40
        return MemoryInfo(total - used, total)

    def allocations(self) -> dict[int, int]:
        """Return the size of every allocation by address."""
        with self._lock:
            return {address: size for address, (size, _) in self._live.items()}


def out_of_memory(size: int, info: MemoryInfo | None) -> CallError:
    """Return the error for a failed allocation."""
    have = f"; {show_bytes(info.free)} of {show_bytes(info.total)} are free" if info is not None else ""
    return CallError(error("E0865", f"the device is out of memory: {show_bytes(size)} requested{have}"))


def show_bytes(size: int) -> str:
    """Format a size in a suitable unit."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def align_up(size: int) -> int:
    """Round a size up to the alignment of planned memory."""
    return -(-size // ALIGNMENT) * ALIGNMENT
