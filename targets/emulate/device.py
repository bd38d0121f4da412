"""A device that runs kernels by emulation, for the runner of launch plans: its memory is the host's."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.errors import CallError, LoadError, error
from mlcc.ir.node import walk
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel
from mlcc.runtime.launch.device import Extents, HostDevice, KernelSpec, Limits
from mlcc.targets.emulate.compiled import Emulated, Launched, Mode, load_kernels
from mlcc.targets.launch.program import static_shared


class EmulatedDevice(HostDevice):
    """Runs `kernels`, which it compiles when a module is loaded: what code the module holds does not matter.

    What checked kernels do wrong is a CallError of the launch, with all findings, and so is a launch that the GPU of
    `facts` has no room for; without them no launch is too large.
    """

    name = "an emulated GPU"
    exact_memory = True

    def __init__(self, kernels: Sequence[DeviceKernel], check: bool = True, facts: GpuFacts | None = None) -> None:
        super().__init__()
        self._kernels = {k.name: k for k in kernels}
        self._mode = Mode(check)
        self._limits: Limits | None = None
        if facts is not None:
            self.name = f"an emulated {facts.arch.name}"
            self._limits = Limits(
                facts.max_threads, (1024, 1024, 64), (2**31 - 1, 65535, 65535), facts.shared_per_block
            )

    def load_module(self, code: bytes, kernels: Mapping[str, KernelSpec]) -> Mapping[str, Any]:
        """The kernels of that name, whatever the code. Raises LoadError, CompileError."""
        missing = [name for name in kernels if name not in self._kernels]
        if missing:
            raise LoadError(error("E0850", f"there is no kernel `{missing[0]}` to emulate"))
        return load_kernels([self._kernels[name] for name in kernels], self._mode)

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        self._check(kernel.kernel, grid, block, shared_bytes)
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

        outcome = kernel.launch(grid, block, shared_bytes, given, room)
        self.launched(kernel, outcome, grid, block, shared_bytes)

    def _check(self, kernel: DeviceKernel, grid: Extents, block: Extents, shared: int) -> None:
        """Refuse a launch as the GPU would. Raises CallError E0864, at the extent that is too large or what else of the
        kernel has a place."""
        if self._limits is None:
            return
        text = self._limits.refusal(kernel.name, self.name, grid, block, static_shared(kernel) + shared)
        if text is None:
            return
        wide = [
            kernel.extents[tag].span
            for tags, sizes, most in ((GRID, grid, self._limits.grid), (BLOCK, block, self._limits.block))
            for tag, extent, limit in zip(tags, sizes, most, strict=True)
            if tag in kernel.extents and extent > limit
        ]
        places = (span for span in (*wide, *(n.span for s in kernel.body for n in walk(s))) if span is not None)
        raise CallError(error("E0864", text, next(places, None), "this kernel"))

    def launched(self, kernel: Emulated, made: Launched, grid: Extents, block: Extents, shared_bytes: int) -> None:
        """Handle the findings of a launch. Raises CallError if there are any."""
        if made.findings:
            raise CallError(made.findings)
