"""A device that runs kernels by emulation, for the runner of launch plans: its memory is the host's."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.errors import CallError, LoadError, error
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.runtime.device import Extents, HostDevice, KernelSpec
from mlcc.targets.emulate.compiled import Emulated, Launched, Mode, load_kernels


class EmulatedDevice(HostDevice):
    """Runs `kernels`, which it compiles when a module is loaded: what code the module holds does not matter.

    What checked kernels do wrong is a CallError of the launch, with all findings.
    """

    name = "an emulated GPU"
    exact_memory = True

    def __init__(self, kernels: Sequence[DeviceKernel], check: bool = True) -> None:
        super().__init__()
        self._kernels = {k.name: k for k in kernels}
        self._mode = Mode(check)

    def load_module(self, code: bytes, kernels: Mapping[str, KernelSpec]) -> Mapping[str, Any]:
        """The kernels of that name, whatever the code. Raises LoadError, CompileError."""
        missing = [name for name in kernels if name not in self._kernels]
        if missing:
            raise LoadError(error("E0850", f"there is no kernel `{missing[0]}` to emulate"))
        return load_kernels([self._kernels[name] for name in kernels], self._mode)

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        kept = [ctypes.create_string_buffer(a, len(a)) for a in args if isinstance(a, bytes)]
        by_value = iter(kept)
        given = [ctypes.addressof(next(by_value)) if isinstance(a, bytes) else a for a in args]
        live = sorted(self.allocations().items())
        starts = [start for start, _ in live]
        own = {ctypes.addressof(k): len(k) for k in kept}

        def room(address: int) -> int:
            at = bisect.bisect_right(starts, address) - 1
            if address in own:
                return own[address]
            return max(live[at][0] + live[at][1] - address, 0) if at >= 0 else 0

        made = kernel.launch(grid, block, shared_bytes, given, room)
        self.launched(kernel, made, grid, block, shared_bytes)

    def launched(self, kernel: Emulated, made: Launched, grid: Extents, block: Extents, shared_bytes: int) -> None:
        """What is done about the findings of a launch."""
        if made.findings:
            raise CallError(made.findings)
