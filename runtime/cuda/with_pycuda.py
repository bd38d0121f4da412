"""The CUDA driver by pycuda. A context that the program made current is used; else the device's primary one.

pycuda has a stack of contexts for each thread, and ends the process when a thread ends whose stack is not empty. So a
context that was made current here is current for a request only.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from mlcc.runtime.cuda import tensor_maps
from mlcc.runtime.cuda.driver import FUNCTION_MAX_DYNAMIC_SHARED, ArgumentBlock, DriverError, NoDriver
from mlcc.runtime.launch.device import Extents
from mlcc.runtime.launch.tensor_map import TensorMap


def open_driver() -> PycudaDriver:
    """Raises NoDriver."""
    try:
        import pycuda.driver as cuda
    except ImportError as exc:
        missing = isinstance(exc, ModuleNotFoundError) and (exc.name or "").startswith("pycuda")
        raise NoDriver("the package pycuda is not installed" if missing else f"pycuda: {exc}") from None
    try:
        cuda.init()
    except cuda.Error as exc:
        raise NoDriver(f"the NVIDIA driver finds no device it can use ({exc})") from None
    return PycudaDriver(cuda)


class PycudaDriver:
    package = "pycuda"
    has_graphs = False

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self._memory: dict[int, Any] = {}
        self._streams: dict[int, Any] = {}
        self._thread = threading.local()  # `pushed`: is what is current in this thread so by us?

    def _call(self, name: str, function: Any, *args: Any, **options: Any) -> Any:
        """Call something of pycuda. Raises DriverError."""
        try:
            return function(*args, **options)
        except self.cuda.Error as exc:
            raise DriverError(name, _code(exc), _text(exc)) from None

    def _on(self, stream: int) -> Any:
        return self._streams[stream]

    def version(self) -> int:
        return int(self.cuda.get_driver_version())

    def device_count(self) -> int:
        return int(self.cuda.Device.count())

    def device_name(self, device: int) -> str:
        return str(self.cuda.Device(device).name())

    def attribute(self, device: int, number: int) -> int:
        kind = self.cuda.device_attribute.values[number]
        return int(self._call("cuDeviceGetAttribute", self.cuda.Device(device).get_attribute, kind))

    def retain(self, device: int) -> object:
        current = self.cuda.Context.get_current()
        if current is not None and current.get_device() == self.cuda.Device(device):
            return current
        context: object = self._call("cuDevicePrimaryCtxRetain", self.cuda.Device(device).retain_primary_context)
        self.enter(context)
        return context

    def enter(self, context: object) -> None:
        current = self.cuda.Context.get_current()
        if current is None or current != context:
            self._call("cuCtxPushCurrent", context.push)  # type: ignore[attr-defined]
            self._thread.pushed = True

    def leave(self) -> bool:
        if getattr(self._thread, "pushed", False):
            self._thread.pushed = False
            self._call("cuCtxPopCurrent", self.cuda.Context.pop)
        return True

    def reset(self, device: int) -> None:
        self._memory.clear()
        self._streams.clear()
        current = self.cuda.Context.get_current()
        if current is not None:
            self._thread.pushed = False  # what is destroyed leaves the stack
            self._call("cuCtxDestroy", current.detach)

    def alloc(self, size: int) -> int:
        allocation = self._call("cuMemAlloc", self.cuda.mem_alloc, size)
        self._memory[int(allocation)] = allocation
        return int(allocation)

    def free(self, address: int) -> None:
        allocation = self._memory.pop(address, None)
        if allocation is not None:
            self._call("cuMemFree", allocation.free)

    def memory_info(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo", self.cuda.mem_get_info)
        return int(free), int(total)

    def copy_in(self, target: int, source: int, size: int) -> None:
        here = (ctypes.c_char * size).from_address(source)
        self._call("cuMemcpyHtoD", self.cuda.memcpy_htod, target, here)

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        here = (ctypes.c_char * size).from_address(target)
        self._call("cuMemcpyDtoHAsync", self.cuda.memcpy_dtoh_async, here, source, self._on(stream))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._call("cuMemcpyDtoDAsync", self.cuda.memcpy_dtod_async, target, source, size, self._on(stream))

    def memset(self, target: int, value: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", self.cuda.memset_d8_async, target, value, size, self._on(stream))

    def stream(self) -> int:
        stream = self._call("cuStreamCreate", self.cuda.Stream)
        self._streams[int(stream.handle)] = stream
        return int(stream.handle)

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", self._on(stream).synchronize)

    def event(self) -> object:
        event: object = self._call("cuEventCreate", self.cuda.Event)
        return event

    def record(self, event: object, stream: int) -> None:
        self._call("cuEventRecord", event.record, self._on(stream))  # type: ignore[attr-defined]

    def elapsed(self, start: object, stop: object) -> float:
        self._call("cuEventSynchronize", stop.synchronize)  # type: ignore[attr-defined]
        return float(self._call("cuEventElapsedTime", stop.time_since, start))  # type: ignore[attr-defined]

    def load(self, code: bytes) -> object:
        module: object = self._call("cuModuleLoadDataEx", self.cuda.module_from_buffer, code)
        return module

    def function(self, module: object, name: str) -> object:
        kernel: object = self._call("cuModuleGetFunction", module.get_function, name)  # type: ignore[attr-defined]
        return kernel

    def set_dynamic_shared(self, function: object, size: int) -> None:
        kind = self.cuda.function_attribute.values[FUNCTION_MAX_DYNAMIC_SHARED]
        self._call("cuFuncSetAttribute", function.set_attribute, kind, size)  # type: ignore[attr-defined]

    def launch(
        self, function: object, grid: Extents, block: Extents, shared: int, stream: int, arguments: ArgumentBlock
    ) -> None:
        run = function._launch_kernel  # type: ignore[attr-defined]
        self._call("cuLaunchKernel", run, grid, block, arguments.content, shared, self._on(stream))

    def encode(self, made: TensorMap) -> bytes:
        return tensor_maps.encode(made)

    def begin_capture(self, stream: int) -> None:
        raise NotImplementedError("pycuda has no graphs")

    def end_capture(self, stream: int) -> object | None:
        raise NotImplementedError("pycuda has no graphs")

    def replay(self, graph: object, stream: int) -> None:
        raise NotImplementedError("pycuda has no graphs")

    def drop(self, graph: object) -> None:
        raise NotImplementedError("pycuda has no graphs")


_NAMES = {
    "MemoryError": "OUT_OF_MEMORY", "LaunchError": "LAUNCH_FAILED",
}  # fmt: skip
_TEXTS = {
    "illegal memory access": "ILLEGAL_ADDRESS", "misaligned address": "MISALIGNED_ADDRESS",
    "illegal instruction": "ILLEGAL_INSTRUCTION", "out of memory": "OUT_OF_MEMORY",
    "unspecified launch failure": "LAUNCH_FAILED", "timed out": "LAUNCH_TIMEOUT",
}  # fmt: skip


def _text(exc: Exception) -> str:
    return str(exc).strip()


def _code(exc: Exception) -> str:
    """The driver's name for an error of pycuda, which says it in words."""
    for words, name in _TEXTS.items():
        if words in str(exc).lower():
            return name
    return _NAMES.get(type(exc).__name__, type(exc).__name__)
