"""A performance model of GPU launches, from the memory accesses of the first blocks and the GPU's throughputs.

The addresses of a few blocks are traced by emulation. A multiprocessor overlaps arithmetic, requests, bank passes,
sectors of global memory and latencies; the slowest dominates. They combine as the root of the sum of squares, so that
the others count a little. Blocks beyond the occupancy wait for the next wave. The figures serve to rank schedules of
one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.machine.gpu_rates import IN_FLIGHT, LATENCY, LAUNCH_SECONDS, SECTORS_PER_CLOCK, GpuRates
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.lowering.work import OPERATION, picoseconds
from mlcc.runtime.launch.device import Extents
from mlcc.targets.emulate.analysis import accesses
from mlcc.targets.emulate.compiled import Emulated, Mode
from mlcc.targets.emulate.device import EmulatedDevice
from mlcc.targets.launch.program import static_shared

_TRACED_BLOCKS = 2  # blocks traced per launch
_MAX_TRACED = 1 << 20  # traced accesses
_HZ = 1.5e9


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """The resources of one kernel launch. Counts are for one block, `sectors` and `passes` as in `mlcc analyze`."""

    name: str
    grid: int
    threads: int
    shared: int
    operations: float
    requests: Mapping[str, float]
    units: Mapping[str, float]

    def seconds(self, facts: GpuFacts, registers: int) -> float:
        """Return the estimated time; infinity if a multiprocessor cannot hold even one block."""
        at_once = facts.blocks_at_once(self.threads, registers, self.shared)
        if not at_once:
            return math.inf
        busy = min(at_once, math.ceil(self.grid / facts.sm_count))
        waves = self.grid / (facts.sm_count * busy)
        warps = -(-self.threads // facts.warp)
        clocks = math.hypot(
            busy * self.operations / GpuRates.of(facts).lanes["float32"],
            busy * sum(self.requests.values()),
            busy * self.units.get("shared", 0.0),
            busy * self.units.get("global", 0.0) / SECTORS_PER_CLOCK,
            sum(n / warps * LATENCY[scope] / IN_FLIGHT for scope, n in self.requests.items()),
        )
        return LAUNCH_SECONDS + max(waves, 1.0) * clocks / _HZ


class CountingDevice(EmulatedDevice):
    """An emulated device that runs only the first blocks of each launch and counts accesses. Results are invalid."""

    def __init__(self, kernels: Sequence[Any], facts: GpuFacts) -> None:
        super().__init__(kernels, facts=facts)
        self._mode = Mode(False, _MAX_TRACED)
        self.costs: list[LaunchCost] = []
        self._grid: Extents = (1, 1, 1)

    def launch(
        self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[int | float | bytes]
    ) -> None:
        self._check(kernel.kernel, grid, block, shared_bytes)
        self._grid = grid
        some = (min(grid[0], _TRACED_BLOCKS), min(grid[1], 1), min(grid[2], 1))
        super().launch(kernel, some, block, shared_bytes, args)

    def launched(self, kernel: Emulated, made: Any, grid: Extents, block: Extents, shared_bytes: int) -> None:
        if made.trace is None:
            return
        blocks = math.prod(grid)
        requests: dict[str, float] = {}
        units: dict[str, float] = {}
        for access in accesses(made.trace, kernel.checks):
            scope = "global" if access.scope == "global" else "shared"
            requests[scope] = requests.get(scope, 0.0) + access.requests / blocks
            units[scope] = units.get(scope, 0.0) + access.units / blocks
        threads = math.prod(block)
        shared = static_shared(kernel.kernel) + shared_bytes
        operations = _operations(kernel.kernel) * threads
        name = kernel.kernel.name
        self.costs.append(LaunchCost(name, math.prod(self._grid), threads, shared, operations, requests, units))


def _operations(kernel: DeviceKernel) -> float:
    """Estimate the scalar operations of one thread; 1 for symbolic sizes."""
    cost = tir.const_int(picoseconds(kernel.body))
    return 1.0 if cost is None else cost / OPERATION


def estimate_registers(kernel: DeviceKernel) -> int:
    """Estimate the registers of a thread: its local allocations, and 32 for addresses and operands."""
    own = (a.buffer for a in find(kernel.body, tir.AllocBuffer) if a.buffer.scope.startswith(("local", "wmma", "warp")))
    sizes = ([tir.const_int(n) or 1 for n in b.shape] for b in own)
    return 32 + sum(map(math.prod, sizes))
