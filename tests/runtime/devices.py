"""A device for tests: host memory, and kernels that are Python functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlcc.errors import CallError, LoadError, error
from mlcc.runtime.launch.device import Extents, HostDevice, KernelSpec

Kernel = Callable[..., None]  # (grid, block, shared bytes, *arguments)


class PythonDevice(HostDevice):
    """Runs `kernels` by name, and writes down what it was asked to do in `log`.

    `faults` maps the name of a function to the error that its next call raises.
    """

    name = "a device of the tests"

    def __init__(self, kernels: Mapping[str, Kernel], can_capture: bool = False) -> None:
        super().__init__()
        self.kernels = kernels
        self.can_capture = can_capture
        self.log: list[tuple[Any, ...]] = []
        self.faults: dict[str, CallError] = {}
        self._noted: list[Callable[[], None]] | None = None

    def _fault(self, name: str) -> None:
        if name in self.faults:
            raise self.faults.pop(name)

    def _do(self, work: Callable[[], None]) -> None:
        if self._noted is None:
            work()
        else:
            self._noted.append(work)

    def alloc(self, size: int) -> int:
        self._fault("alloc")
        self.log.append(("alloc", size))
        return super().alloc(size)

    def copy_in(self, target: int, source: int, size: int) -> None:
        self.log.append(("copy_in", size))
        super().copy_in(target, source, size)

    def copy_out(self, target: int, source: int, size: int) -> None:
        self._fault("copy_out")
        self.log.append(("copy_out", size))
        super().copy_out(target, source, size)

    def copy(self, target: int, source: int, size: int) -> None:
        self.log.append(("copy", size))
        self._do(lambda: ctypes.memmove(target, source, size) and None)

    def memset(self, target: int, value: int, size: int) -> None:
        self._do(lambda: ctypes.memset(target, value, size) and None)

    def synchronize(self) -> None:
        self._fault("synchronize")

    def load_module(self, code: bytes, kernels: Mapping[str, KernelSpec]) -> Mapping[str, Any]:
        missing = [s.name for s in kernels.values() if s.name not in self.kernels]
        if missing:
            raise LoadError(error("E0850", f"no kernel {missing[0]}"))
        return {name: (name, self.kernels[spec.name], spec) for name, spec in kernels.items()}

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        name, run, spec = kernel
        assert len(args) == len(spec.params) and 0 not in (*grid, *block)
        self._fault("launch")
        self.log.append(("launch", name, grid, block, shared_bytes))
        self._do(lambda: run(grid, block, shared_bytes, *args))

    def begin_capture(self) -> None:
        self._noted = []

    def end_capture(self) -> Any:
        noted, self._noted = self._noted, None
        return noted

    def replay(self, graph: Any) -> None:
        self.log.append(("replay",))
        for work in graph:
            work()

    def launched(self) -> list[str]:
        return [entry[1] for entry in self.log if entry[0] == "launch"]


def array(address: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """An array over a device's memory, for kernels."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    raw = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(raw, dtype).reshape(shape)
