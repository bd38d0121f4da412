"""The CUDA driver by NVIDIA's `cuda-bindings`."""

from __future__ import annotations

from typing import Any

from mlcc.runtime.cuda import tensor_maps
from mlcc.runtime.cuda.driver import FUNCTION_MAX_DYNAMIC_SHARED, ArgumentBlock, DriverError, NoDriver
from mlcc.runtime.launch.device import Extents
from mlcc.runtime.launch.tensor_map import TensorMap

_LOG = 16384  # bytes of the compiler's log


def open_driver() -> BindingsDriver:
    """Raises NoDriver."""
    try:
        from cuda.bindings import driver as cuda
    except ImportError:
        raise NoDriver("the package cuda-bindings is not installed") from None
    try:
        code = cuda.cuInit(0)[0]
    except (RuntimeError, OSError):  # the package looks for libcuda on first use
        raise NoDriver("there is no NVIDIA driver (libcuda.so.1)") from None
    if int(code) != 0:
        name = str(getattr(code, "name", code)).removeprefix("CUDA_ERROR_")
        raise NoDriver(f"the NVIDIA driver finds no device it can use ({name})")
    return BindingsDriver(cuda)


class BindingsDriver:
    package = "cuda-bindings"
    has_graphs = True

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def _call(self, name: str, *args: Any, log: bytearray | None = None) -> Any:
        """Call a function; its result, a tuple if there are several. Raises DriverError."""
        code, *results = getattr(self.cuda, name)(*args)
        if int(code) != 0:
            _, text = self.cuda.cuGetErrorString(code)
            said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(code)
            if log is not None:
                said = log.split(b"\0", 1)[0].decode("utf-8", "replace").strip() or said
            raise DriverError(name, str(getattr(code, "name", code)).removeprefix("CUDA_ERROR_"), said)
        return results[0] if len(results) == 1 else tuple(results)

    def version(self) -> int:
        return int(self._call("cuDriverGetVersion"))

    def device_count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def device_name(self, device: int) -> str:
        name: bytes = self._call("cuDeviceGetName", 256, self._call("cuDeviceGet", device))
        return name.split(b"\0", 1)[0].decode("utf-8", "replace")

    def attribute(self, device: int, number: int) -> int:
        kind = self.cuda.CUdevice_attribute(number)
        return int(self._call("cuDeviceGetAttribute", kind, self._call("cuDeviceGet", device)))

    def retain(self, device: int) -> object:
        context: object = self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", device))
        self.enter(context)
        return context

    def enter(self, context: object) -> None:
        self._call("cuCtxSetCurrent", context)

    def leave(self) -> bool:
        return False

    def reset(self, device: int) -> None:
        self._call("cuDevicePrimaryCtxReset", self._call("cuDeviceGet", device))

    def alloc(self, size: int) -> int:
        return int(self._call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def memory_info(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def copy_in(self, target: int, source: int, size: int) -> None:
        self._call("cuMemcpyHtoD", target, source, size)

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", target, source, size, stream)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._call("cuMemcpyDtoDAsync", target, source, size, stream)

    def memset(self, target: int, value: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", target, value, size, stream)

    def stream(self) -> int:
        return int(self._call("cuStreamCreate", 0))

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def event(self) -> object:
        event: object = self._call("cuEventCreate", 0)
        return event

    def record(self, event: object, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def elapsed(self, start: object, stop: object) -> float:
        self._call("cuEventSynchronize", stop)
        return float(self._call("cuEventElapsedTime", start, stop))

    def load(self, code: bytes) -> object:
        log = bytearray(_LOG)
        option = self.cuda.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        module: object = self._call("cuModuleLoadDataEx", code + b"\0", 2, options, [log, len(log)], log=log)
        return module

    def function(self, module: object, name: str) -> object:
        kernel: object = self._call("cuModuleGetFunction", module, name.encode())
        return kernel

    def set_dynamic_shared(self, function: object, size: int) -> None:
        kind = self.cuda.CUfunction_attribute(FUNCTION_MAX_DYNAMIC_SHARED)
        self._call("cuFuncSetAttribute", function, kind, size)

    def launch(
        self, function: object, grid: Extents, block: Extents, shared: int, stream: int, arguments: ArgumentBlock
    ) -> None:
        self._call("cuLaunchKernel", function, *grid, *block, shared, stream, arguments.pointers, 0)

    def encode(self, made: TensorMap) -> bytes:
        return tensor_maps.encode(made)

    def begin_capture(self, stream: int) -> None:
        mode = self.cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream, mode)

    def end_capture(self, stream: int) -> object | None:
        graph = self._call("cuStreamEndCapture", stream)
        try:
            executable: object = self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)
        return executable

    def replay(self, graph: object, stream: int) -> None:
        self._call("cuGraphLaunch", graph, stream)

    def drop(self, graph: object) -> None:
        self._call("cuGraphExecDestroy", graph)
