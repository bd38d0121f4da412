"""A CUDA driver for tests: host memory, kernels as Python functions, errors on demand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.runtime.cuda.driver import (
    CAPABILITY_MAJOR,
    CAPABILITY_MINOR,
    L2_SIZE,
    MAX_REGISTERS,
    MAX_SHARED_OPTIN,
    MAX_THREADS,
    MULTIPROCESSORS,
    ArgumentBlock,
    DriverError,
)
from mlcc.runtime.launch.tensor_map import TensorMap, encode_as_numbers

LIMITS = {
    MAX_THREADS: 1024, 2: 1024, 3: 1024, 4: 64, 5: (1 << 31) - 1, 6: 65535, 7: 65535, CAPABILITY_MAJOR: 8,
    CAPABILITY_MINOR: 6, MAX_SHARED_OPTIN: 99 << 10, MAX_REGISTERS: 65536, MULTIPROCESSORS: 46, L2_SIZE: 4 << 20,
}  # fmt: skip


class FakeDriver:
    """Every call is in `log`. `faults` maps a function to the errors of its next calls, one each: the name of a code.

    A sticky code stays until the context is reset; `reset_helps` says whether it does then.
    """

    package = "fake"

    def __init__(self, kernels: Mapping[str, Callable[..., None]] | None = None, graphs: bool = True) -> None:
        self.kernels = kernels or {}
        self.has_graphs = graphs
        self.log: list[tuple[Any, ...]] = []
        self.faults: dict[str, list[str]] = {}
        self.stuck = ""
        self.reset_helps = True
        self.devices = 1
        self.cuda = 12040
        self.room = 1 << 30
        self._live: dict[int, tuple[int, Any]] = {}
        self._contexts = 0
        self._noted: list[Callable[[], None]] | None = None

    def _enter(self, name: str, *args: Any) -> None:
        self.log.append((name, *args))
        waiting = self.faults.get(name)
        if waiting:
            self.stuck = waiting.pop(0)
            code, self.stuck = self.stuck, self.stuck if self.stuck == "ILLEGAL_ADDRESS" else ""
            raise DriverError(name, code, f"what went wrong is {code}")
        if self.stuck:
            raise DriverError(name, self.stuck, "an earlier error")

    def _do(self, work: Callable[[], Any]) -> None:
        if self._noted is None:
            work()
        else:
            self._noted.append(work)

    def version(self) -> int:
        return self.cuda

    def device_count(self) -> int:
        return self.devices

    def device_name(self, device: int) -> str:
        return "a fake GPU"

    def attribute(self, device: int, number: int) -> int:
        return LIMITS[number]

    def retain(self, device: int) -> object:
        self._enter("retain", device)
        self._contexts += 1
        return self._contexts

    def enter(self, context: object) -> None:
        self._enter("enter", context)

    def leave(self) -> bool:
        return False

    def reset(self, device: int) -> None:
        self.log.append(("reset", device))
        if self.reset_helps:
            self.stuck = ""
            self._live.clear()

    def alloc(self, size: int) -> int:
        self._enter("alloc", size)
        if size > self.room:
            raise DriverError("alloc", "OUT_OF_MEMORY", "out of memory")
        memory = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(memory) // 256) * 256
        self._live[address] = size, memory
        self.room -= size
        return address

    def free(self, address: int) -> None:
        self._enter("free", address)
        self.room += self._live.pop(address)[0]

    def memory_info(self) -> tuple[int, int]:
        return self.room, 1 << 30

    def copy_in(self, target: int, source: int, size: int) -> None:
        self._enter("copy_in", size)
        ctypes.memmove(target, source, size)

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        self._enter("copy_out", size)
        ctypes.memmove(target, source, size)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._enter("copy", size)
        self._do(lambda: ctypes.memmove(target, source, size))

    def memset(self, target: int, value: int, size: int, stream: int) -> None:
        self._enter("memset", size)
        self._do(lambda: ctypes.memset(target, value, size))

    def stream(self) -> int:
        self._enter("stream")
        return 77

    def synchronize(self, stream: int) -> None:
        self._enter("synchronize", stream)

    def event(self) -> object:
        self._enter("event")
        return [0]

    def record(self, event: Any, stream: int) -> None:
        self._enter("record")
        event[0] = len(self.log)

    def elapsed(self, start: Any, stop: Any) -> float:
        return float(stop[0] - start[0])

    def load(self, code: bytes) -> object:
        self._enter("load", code)
        return code

    def function(self, module: object, name: str) -> object:
        if name not in self.kernels:
            raise DriverError("function", "NOT_FOUND", "named symbol not found")
        return name

    def set_dynamic_shared(self, function: object, size: int) -> None:
        self._enter("set_dynamic_shared", function, size)

    def launch(self, function: Any, grid: Any, block: Any, shared: int, stream: int, arguments: ArgumentBlock) -> None:
        self._enter("launch", function, grid, block, shared, stream)
        content = arguments.content
        values = [form.unpack_from(content, at)[0] for at, form, _ in arguments.places]
        self._do(lambda: self.kernels[function](grid, block, shared, *values))

    def encode(self, made: TensorMap) -> bytes:
        self._enter("encode", made)
        return encode_as_numbers(made)

    def begin_capture(self, stream: int) -> None:
        self._enter("begin_capture")
        self._noted = []

    def end_capture(self, stream: int) -> object | None:
        noted, self._noted = self._noted, None
        self._enter("end_capture")
        return noted

    def replay(self, graph: Any, stream: int) -> None:
        self._enter("replay")
        for work in graph:
            work()

    def drop(self, graph: Any) -> None:
        self._enter("drop")

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == name]
