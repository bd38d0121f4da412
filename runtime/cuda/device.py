"""An NVIDIA GPU as a `Device`: one stream in the primary context, shared with torch and cupy.

The stream is ordered with the legacy default stream, which these use by default. A kernel fault (an illegal address,
say) destroys the context: a new one is created, so that later calls work; if the driver does not allow that, every
later call fails with a request to restart the process.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from mlcc.errors import CallError, LoadError, MachineError, error
from mlcc.runtime.cuda import driver as cuda
from mlcc.runtime.cuda.driver import ArgumentBlock, Driver, DriverError
from mlcc.runtime.launch.device import Device, Extents, KernelSpec, Limits, MemoryInfo, out_of_memory
from mlcc.runtime.launch.tensor_map import STRIDE_UNIT, TensorMap

_CUDA = 2  # DLPack's number for the memory of NVIDIA GPUs
_ZEROS = 256  # bytes
_MAX_TENSOR_MAPS = 1024  # cached encodings
_DEFAULT_SHARED = 48 << 10  # bytes of dynamic shared memory that are allowed without an attribute
STICKY = frozenset({
    "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC",
    "HARDWARE_STACK_ERROR", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ASSERT", "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED",
    "UNKNOWN",
})  # fmt: skip


class _Kernel:
    """A loaded kernel with its argument block."""

    __slots__ = ("arguments", "dynamic", "function", "name", "shared")

    def __init__(self, spec: KernelSpec, function: object) -> None:
        self.name = spec.name
        self.function = function
        self.arguments = ArgumentBlock(spec.params)
        self.shared = spec.shared
        self.dynamic = _DEFAULT_SHARED  # dynamic shared memory that is allowed so far


class _DriverContext:
    """A context manager for uses of a device's driver, which translates its errors."""

    __slots__ = ("device",)

    def __init__(self, device: CudaDevice) -> None:
        self.device = device

    def __enter__(self) -> Driver:
        try:
            self.device.enter()
        except DriverError as exc:
            self.device.failed(exc)
        return self.device.driver

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        try:
            if isinstance(exc, DriverError):
                self.device.failed(exc)
        finally:
            self.device.leave()


class CudaDevice(Device):
    """Device number `number` of the driver. Raises MachineError if it cannot be used."""

    def __init__(self, driver: Driver, number: int = 0) -> None:
        super().__init__()
        self.driver = driver
        self.number = number
        self.dlpack = (_CUDA, number)
        self._maps: dict[TensorMap, bytes] = {}
        self._zero: tuple[int, int] | None = None  # generation and address of zeroed memory
        self._unusable = ""  # reason why the device is no longer usable
        self._last_kernel = ""  # last launched kernel
        self._local = threading.local()
        self._guard = _DriverContext(self)
        try:
            count = driver.device_count()
            if number >= count:
                available = "there is none" if count == 0 else f"there are {count}"
                raise MachineError(error("E0860", f"no CUDA device {number}: {available}"))
            self.name = driver.device_name(number)
            self.version = divmod(driver.version() // 10, 100)
            major, minor = (driver.attribute(number, k) for k in (cuda.CAPABILITY_MAJOR, cuda.CAPABILITY_MINOR))
            self.capability = (major, minor)
            block, grid = (
                (driver.attribute(number, x), driver.attribute(number, x + 1), driver.attribute(number, x + 2))
                for x in (cuda.MAX_BLOCK_X, cuda.MAX_GRID_X)
            )
            shared = driver.attribute(number, cuda.MAX_SHARED_OPTIN)
            self.limits = Limits(driver.attribute(number, cuda.MAX_THREADS), block, grid, shared)
            self._open()
            self.leave()
        except DriverError as exc:
            raise MachineError(error("E0860", f"CUDA device {number} cannot be used: {exc}")) from None
        self.can_capture = driver.has_graphs

    def _open(self) -> None:
        self._context = self.driver.retain(self.number)
        self._local.generation = self.generation
        self.stream = self.driver.stream()
        self._events: list[Any] = []

    def attach(self) -> None:
        self._local.generation = -1

    def sizes(self) -> dict[str, int]:
        """Return the sizes that schedules depend on, named as a target's options; `l2` and `shared_bytes` in bytes."""
        return {
            "sm_count": self.driver.attribute(self.number, cuda.MULTIPROCESSORS),
            "max_threads": self.limits.threads,
            "shared_bytes": self.limits.shared,
            "registers": self.driver.attribute(self.number, cuda.MAX_REGISTERS),
            "l2": self.driver.attribute(self.number, cuda.L2_SIZE),
        }

    # ------------------------------------------------------------ what code needs

    def require(self, target: Mapping[str, Any]) -> None:
        """Refuse code for another device or a newer driver. Raises MachineError."""
        need = tuple(int(n) for n in target.get("compute_capability", ()))
        have, variant = self.capability, target.get("variant", "")
        if need and not _fits(have, need, str(variant)):
            shown = ".".join(map(str, have))
            message = f"the code is for {target.get('runs_on', target.get('arch'))}; {self.name} has {shown}"
            arch = f"sm_{have[0]}{have[1]}"
            raise MachineError(error("E0861", message, help=f"compile it for this one: -t 'cuda{{arch={arch}}}'"))
        words = str(target.get("cuda", "0.0")).split(".")
        if all(w.isdigit() for w in words) and self.version < tuple(map(int, words)):
            message = (
                f"the code needs an NVIDIA driver for CUDA {target['cuda']} ({target.get('driver', '?')} or later); "
                f"this one is for {self.version[0]}.{self.version[1]}"
            )
            raise MachineError(error("E0862", message, help="install a newer driver, or compile for an older arch"))

    # ------------------------------------------------------------ errors

    def _use_driver(self) -> _DriverContext:
        """Return a context manager that makes the context current and yields the driver."""
        if self._unusable:
            raise CallError(error("E0866", self._unusable, help="restart the process"))
        return self._guard

    def enter(self) -> None:
        """Make the context current in this thread, if another may be."""
        if getattr(self._local, "generation", -1) != self.generation:
            self.driver.enter(self._context)
            self._local.generation = self.generation

    def leave(self) -> None:
        """Undo `enter`, if the Python package of the driver requires it."""
        with contextlib.suppress(DriverError):  # after a failure there may be nothing left to undo
            if not self.driver.leave():
                return
        self._local.generation = -1

    def failed(self, exc: DriverError) -> NoReturn:
        after = f"; the last kernel launched was `{self._last_kernel}`" if self._last_kernel else ""
        if exc.name not in STICKY:
            raise CallError(error("E0864", f"a request to the CUDA driver failed: {exc}{after}")) from None
        message = f"a kernel failed on {self.name}: {exc.text} ({exc.name}){after}"
        self._recover(message)
        raise CallError(error("E0866", message, help=_HELP_FIND_FAULT)) from None

    def _recover(self, message: str) -> None:
        """Replace the failed context; the contents of its memory are lost."""
        self.generation += 1
        try:
            self.driver.reset(self.number)
            self._open()
            self.driver.synchronize(self.stream)
        except DriverError:
            self._unusable = f"{message}; the driver cannot create a new context in this process"

    # ------------------------------------------------------------ memory

    def alloc(self, size: int) -> int:
        if not size:
            return 0
        with self._use_driver() as driver:
            try:
                return driver.alloc(size)
            except DriverError as exc:
                if exc.name != "OUT_OF_MEMORY":
                    raise
                raise out_of_memory(size, self.memory_info()) from None

    def free(self, address: int) -> None:
        if address and not self._unusable:
            with contextlib.suppress(DriverError, CallError), self._use_driver() as driver:
                driver.free(address)

    def copy_in(self, target: int, source: int, size: int) -> None:
        if size:
            with self._use_driver() as driver:
                driver.copy_in(target, source, size)

    def copy_out(self, target: int, source: int, size: int) -> None:
        with self._use_driver() as driver:
            if size:
                driver.copy_out(target, source, size, self.stream)
            driver.synchronize(self.stream)

    def copy(self, target: int, source: int, size: int) -> None:
        if size:
            with self._use_driver() as driver:
                driver.copy(target, source, size, self.stream)

    def memset(self, target: int, value: int, size: int) -> None:
        if size:
            with self._use_driver() as driver:
                driver.memset(target, value, size, self.stream)

    def memory_info(self) -> MemoryInfo:
        with self._use_driver() as driver:
            return MemoryInfo(*driver.memory_info())

    # ------------------------------------------------------------ kernels

    def load_module(self, code: bytes, kernels: Mapping[str, KernelSpec]) -> Mapping[str, Any]:
        if not kernels:
            return {}
        with self._use_driver() as driver:
            try:
                module = driver.load(code)
                return {name: _Kernel(spec, driver.function(module, spec.name)) for name, spec in kernels.items()}
            except DriverError as exc:
                if exc.name in STICKY or exc.name == "OUT_OF_MEMORY":
                    raise
                message = f"the driver of {self.name} rejects the code: {exc.text} ({exc.name})"
                raise LoadError(error("E0863", message)) from None

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        self._check(kernel, grid, block, shared_bytes)
        with self._use_driver() as driver:
            if shared_bytes > kernel.dynamic:
                driver.set_dynamic_shared(kernel.function, shared_bytes)
                kernel.dynamic = shared_bytes
            self._last_kernel = kernel.name
            kernel.arguments.fill(args)
            driver.launch(kernel.function, grid, block, shared_bytes, self.stream, kernel.arguments)

    def tensor_map(self, descriptor: TensorMap) -> bytes:
        """Encode a tensor map with the driver, cached by address and shape.

        The driver rejects extents of 0: a tensor without elements is replaced by one zero.
        """
        if descriptor.is_empty:
            rank = len(descriptor.dims)
            descriptor = descriptor._replace(
                address=self._zeros(), dims=(1,) * rank, strides=(STRIDE_UNIT,) * (rank - 1)
            )
        encoded = self._maps.get(descriptor)
        if encoded is None:
            with self._use_driver() as driver:
                encoded = driver.encode(descriptor)
            if len(self._maps) >= _MAX_TENSOR_MAPS:
                self._maps.clear()
            self._maps[descriptor] = encoded
        return encoded

    def _zeros(self) -> int:
        """Return the address of zeroed memory in the current context."""
        if self._zero is None or self._zero[0] != self.generation:
            self._zero = self.generation, self.alloc(_ZEROS)
            self.memset(self._zero[1], 0, _ZEROS)
        return self._zero[1]

    def _check(self, kernel: Any, grid: Extents, block: Extents, shared: int) -> None:
        """Raise CallError E0864 for a launch beyond the device's limits, with more details than the driver."""
        text = self.limits.refusal(kernel.name, self.name, grid, block, kernel.shared + shared)
        if text is not None:
            raise CallError(error("E0864", text))

    def synchronize(self) -> None:
        with self._use_driver() as driver:
            driver.synchronize(self.stream)

    # ------------------------------------------------------------ time and replay

    def record(self) -> Any:
        with self._use_driver() as driver:
            event = self._events.pop() if self._events else driver.event()
            driver.record(event, self.stream)
            return event

    def elapsed(self, start: Any, stop: Any) -> float:
        with self._use_driver() as driver:
            seconds = driver.elapsed(start, stop) * 1e-3
            self._events += [start, stop]
            return seconds

    def begin_capture(self) -> None:
        with self._use_driver() as driver:
            driver.begin_capture(self.stream)

    def end_capture(self) -> Any:
        with self._use_driver() as driver:
            try:
                return driver.end_capture(self.stream)
            except DriverError as exc:
                if exc.name in STICKY:
                    raise
                return None

    def replay(self, graph: Any) -> None:
        with self._use_driver() as driver:
            driver.replay(graph, self.stream)

    def drop(self, graph: Any) -> None:
        with contextlib.suppress(DriverError, CallError), self._use_driver() as driver:
            driver.drop(graph)


_HELP_FIND_FAULT = (
    "`mlcc run -t cuda --emulate` or compute-sanitizer finds the access; device arrays made before are lost"
)


def _fits(have: tuple[int, ...], need: tuple[int, ...], variant: str) -> bool:
    """Return True if a device of compute capability `have` runs code for `need` and its variant (`a`, `f` or none)."""
    if variant == "a":
        return have == need
    return have >= need and (variant != "f" or have[0] == need[0])
