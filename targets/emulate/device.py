"""A device for launch plans that emulates kernels; its memory is host memory."""

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
from mlcc.targets.emulate.compiled import Emulated, LaunchOutcome, Mode, load_kernels
from mlcc.targets.emulate.trace import BlockSample
from mlcc.targets.launch.program import static_shared


class EmulatedDevice(HostDevice):
    """Run `kernels`, which are compiled when a module is loaded; the module's own code is ignored.

    A launch raises CallError with all findings of a checked kernel, and if it exceeds the limits of the GPU that
    `facts` describes; without `facts` there are no limits.
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
        """Compile the kernels of these names. Raises LoadError, CompileError."""
        missing = [name for name in kernels if name not in self._kernels]
        if missing:
            raise LoadError(error("E0850", f"no kernel `{missing[0]}` to emulate"))
        return load_kernels([self._kernels[name] for name in kernels], self._mode)

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        self._check(kernel.kernel, grid, block, shared_bytes)
        structs = [ctypes.create_string_buffer(a, len(a)) for a in args if isinstance(a, bytes)]
        by_value = iter(structs)
        values = [ctypes.addressof(next(by_value)) if isinstance(a, bytes) else a for a in args]
        allocations = sorted(self.allocations().items())
        starts = [start for start, _ in allocations]
        struct_sizes = {ctypes.addressof(k): len(k) for k in structs}

        def memory_size(address: int) -> int:
            at = bisect.bisect_right(starts, address) - 1
            if address in struct_sizes:
                return struct_sizes[address]
            return max(allocations[at][0] + allocations[at][1] - address, 0) if at >= 0 else 0

        sample = self.sampled(kernel, grid, block, args)
        outcome = kernel.launch(grid, block, shared_bytes, values, memory_size, sample)
        self.launched(kernel, outcome, grid, block, shared_bytes)

    def _check(self, kernel: DeviceKernel, grid: Extents, block: Extents, shared: int) -> None:
        """Refuse a launch that exceeds the GPU's limits.

        Raises CallError E0864 at the extent that is too large, else at any part of the kernel that has a span.
        """
        if self._limits is None:
            return
        text = self._limits.refusal(kernel.name, self.name, grid, block, static_shared(kernel) + shared)
        if text is None:
            return
        too_large = [
            kernel.extents[tag].span
            for tags, sizes, limits in ((GRID, grid, self._limits.grid), (BLOCK, block, self._limits.block))
            for tag, extent, limit in zip(tags, sizes, limits, strict=True)
            if tag in kernel.extents and extent > limit
        ]
        places = (span for span in (*too_large, *(n.span for s in kernel.body for n in walk(s))) if span is not None)
        raise CallError(error("E0864", text, next(places, None), "this kernel"))

    def sampled(
        self, kernel: Emulated, grid: Extents, block: Extents, args: Sequence[int | float | bytes]
    ) -> BlockSample | None:
        """Return the blocks of a launch that run; None for all."""
        return None

    def launched(
        self, kernel: Emulated, outcome: LaunchOutcome, grid: Extents, block: Extents, shared_bytes: int
    ) -> None:
        """Handle the findings of a launch. Raises CallError if there are any."""
        if outcome.findings:
            raise CallError(outcome.findings)
