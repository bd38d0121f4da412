"""The report of `mlcc analyze`: launches, the cost of their memory accesses, and occupancy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

from mlcc.errors import Diagnostic
from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.runtime.launch.device import Extents
from mlcc.targets.emulate.analysis import Access, accesses, touched_bytes, without_reuse
from mlcc.targets.emulate.compiled import Emulated, LaunchOutcome, Mode, evaluate
from mlcc.targets.emulate.device import EmulatedDevice
from mlcc.targets.emulate.operations import Operations, count_operations, parameter_bytes
from mlcc.targets.emulate.representative_blocks import choose_blocks, clear_results
from mlcc.targets.emulate.roofline import Roofline, Traffic, roofline
from mlcc.targets.emulate.threads import WARP
from mlcc.targets.emulate.trace import BlockSample, Trace

_PLACE_WIDTH = 40  # characters of a statement shown as a place
# fields of a `KernelReport` that are plain data
_FIELDS = (
    "name", "grid", "block", "shared", "blocks", "exact", "launches", "registers", "spills", "blocks_per_sm",
    "occupancy", "limit",
)  # fmt: skip
ROOM = 1 << 20  # traced accesses of one launch, at most


@dataclass(slots=True)
class KernelReport:
    """A kernel at its first launch, and the number of its launches.

    `blocks` is the number of blocks that ran, of `grid` in all; `exact` says whether all of their accesses were
    counted, else `accesses` are estimates for the launch. `occupancy` is the fraction of a multiprocessor's warps that
    resident blocks fill. `operations` are those of a thread.
    """

    name: str
    grid: list[int]
    block: list[int]
    shared: int
    blocks: int
    exact: bool
    accesses: list[Access]
    operations: Operations
    traffic: Traffic
    launches: int = 1
    registers: int | None = None
    spills: int | None = None
    blocks_per_sm: int = 0
    occupancy: float = 0.0
    limit: str = ""
    roofline: Roofline | None = None

    def total(self, scope: str) -> tuple[int, int]:
        """Return the units of all accesses of a scope, and their minimum."""
        mine = [a for a in self.accesses if (a.scope == "global") == (scope == "global")]
        return sum(a.units for a in mine), sum(a.least for a in mine)

    @property
    def block_count(self) -> int:
        return prod(self.grid)


@dataclass(eq=False)
class Report:
    """The report of a run: facts by kernel, in order of the first launch, and findings."""

    facts: GpuFacts
    kernels: dict[str, KernelReport] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)

    def add(
        self, kernel: Emulated, outcome: LaunchOutcome, grid: Sequence[int], block: Sequence[int], dynamic: int,
        args: Mapping[tir.Var, Any], blocks: int,
    ) -> None:  # fmt: skip
        """Add a launch of which `blocks` blocks ran, with its findings; accesses are only counted for the first launch
        of a kernel."""
        self.findings.extend(outcome.findings)
        name = kernel.kernel.name
        if name in self.kernels or outcome.trace is None:
            if name in self.kernels:
                self.kernels[name].launches += 1
            return
        trace = outcome.trace
        shared = _static_shared(kernel) + dynamic
        accessed = accesses(trace, kernel.checks)
        operations = count_operations(kernel.kernel, args, grid, block)
        traffic = _traffic(kernel, trace, operations, prod(grid), args)
        self.kernels[name] = KernelReport(
            name, list(grid), list(block), shared, blocks, trace.is_exact, accessed, operations, traffic
        )

    def assembled(self, kernels: Mapping[str, Any]) -> None:
        """Add the resources that the assembler reports for kernels, by name, and the resulting occupancy."""
        for name, kernel in self.kernels.items():
            resources = kernels.get(name)
            if resources is not None:
                kernel.registers, kernel.spills = resources.registers, resources.spill_stores + resources.spill_loads
            self._compute_occupancy(kernel)
            threads = prod(kernel.block)
            kernel.roofline = roofline(
                self.facts, kernel.operations, kernel.traffic, kernel.block_count, threads, kernel.blocks_per_sm
            )

    def _compute_occupancy(self, kernel: KernelReport) -> None:
        facts = self.facts
        threads = prod(kernel.block)
        registers = kernel.registers or 0
        kernel.blocks_per_sm = facts.blocks_at_once(threads, registers, kernel.shared)
        warps = -(-threads // WARP)
        kernel.occupancy = kernel.blocks_per_sm * warps / facts.warps_per_sm
        blocks_without = {
            "registers": facts.blocks_at_once(threads, 0, kernel.shared),
            "shared memory": facts.blocks_at_once(threads, registers, 0),
        }
        other_limit = "threads" if (kernel.blocks_per_sm + 1) * warps > facts.warps_per_sm else "the number of blocks"
        kernel.limit = next(
            (name for name, blocks in blocks_without.items() if blocks > kernel.blocks_per_sm), other_limit
        )

    # ------------------------------------------------------------ as text and as data

    def data(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {
            "gpu": str(self.facts.arch.name),
            "kernels": [
                {
                    **{name: getattr(k, name) for name in _FIELDS},
                    "roofline": None if k.roofline is None else asdict(k.roofline),
                    "sectors": k.total("global")[0], "sectors_least": k.total("global")[1],
                    "passes": k.total("shared")[0], "passes_least": k.total("shared")[1],
                    "accesses": [{**asdict(a), "ratio": a.ratio} for a in k.accesses],
                }
                for k in self.kernels.values()
            ],
            "findings": [{"code": d.code, "message": d.message} for d in self.findings],
        }  # fmt: skip

    def text(self) -> str:
        """Format a table for each kernel."""
        return "\n\n".join("\n".join(_table(k)) for k in self.kernels.values()) + "\n" if self.kernels else ""


class MeasuringDevice(EmulatedDevice):
    """An emulated device that reports on launches; findings do not stop it.

    Launches of more than `budget` steps, in accesses and multiply-adds, run only representative blocks, and at most
    `blocks` of them if given; results are then incomplete.
    """

    def __init__(
        self, kernels: Sequence[Any], facts: GpuFacts, blocks: int | None = None, budget: float = math.inf
    ) -> None:
        super().__init__(kernels, facts=facts)
        self._mode = Mode(True, ROOM)
        self._blocks = blocks
        self._budget = budget
        self._args: Sequence[int | float | bytes] = ()
        self._sample: BlockSample | None = None
        self.report = Report(facts)

    def sampled(
        self, kernel: Emulated, grid: Extents, block: Extents, args: Sequence[int | float | bytes]
    ) -> BlockSample | None:
        values = dict(zip(kernel.kernel.params, args, strict=True))
        self._args = args
        self._sample = choose_blocks(kernel.kernel, values, grid, block, self._blocks, self._budget)
        if self._sample is not None:
            clear_results(kernel, values)
        return self._sample

    def launched(
        self, kernel: Emulated, outcome: LaunchOutcome, grid: Extents, block: Extents, shared_bytes: int
    ) -> None:
        args = dict(zip(kernel.kernel.params, self._args, strict=True))
        blocks = prod(grid) if self._sample is None else len(self._sample.numbers)
        self.report.add(kernel, outcome, grid, block, shared_bytes, args, blocks)


def _traffic(
    kernel: Emulated, trace: Trace, operations: Operations, count: int, args: Mapping[tir.Var, Any]
) -> Traffic:
    """Return the traffic of a launch of `count` blocks."""
    requests = sectors = passes = 0.0
    for access in accesses(without_reuse(trace, kernel.checks), kernel.checks):
        if access.scope == "global":
            requests, sectors = requests + access.requests / count, sectors + access.units / count
        else:
            passes += access.units / count
    sizes = parameter_bytes(kernel.kernel, args)
    touched: dict[tir.Var | None, float] = {data: size * count for data, size in operations.bulk.items()}
    for data, size in touched_bytes(trace, kernel.checks).items():
        touched[data] = size
    distinct = sum(n if data is None else min(n, sizes.get(data, n)) for data, n in touched.items())
    return Traffic(requests, sectors, passes, distinct)


def _static_shared(kernel: Emulated) -> int:
    sizes = [r.size for r in kernel.checks.roots if r.scope == "shared"]
    return sum(evaluate(size, {}) for size in sizes if isinstance(size, tir.IntImm))


def _table(kernel: KernelReport) -> list[str]:
    times = f", launched {kernel.launches} times" if kernel.launches > 1 else ""
    blocks = f"{_extents(kernel.grid)} block{'s' * (kernel.block_count != 1)}"
    lines = [f"{kernel.name}: {blocks} of {_extents(kernel.block)} threads{times}"]
    registers = f"{kernel.registers} registers" if kernel.registers is not None else "registers unknown (no ptxas)"
    spills = f", {kernel.spills} bytes spilled" if kernel.spills else ""
    lines.append(f"  {kernel.shared} bytes of shared memory, {registers}{spills}")
    full = f"{100 * kernel.occupancy:.0f} % of its warps"
    lines.append(f"  {kernel.blocks_per_sm} blocks at once on a multiprocessor: {full}, limited by {kernel.limit}")
    counted = "all blocks counted" if kernel.exact else "estimated from some of the accesses"
    if kernel.blocks < kernel.block_count:
        counted = f"estimated from {kernel.blocks} of {kernel.block_count} blocks"
    for scope, unit in (("global", "sectors of 32 bytes"), ("shared", "passes over the banks")):
        units, least = kernel.total(scope)
        if units:
            lines.append(f"  {scope} memory: {units} {unit}, {least} at the least ({counted})")
    lines += _roofline_lines(kernel.roofline)
    if kernel.accesses:
        lines += ["", *_rows(kernel.accesses)]
    return lines


def _roofline_lines(estimate: Roofline | None) -> list[str]:
    """Format the estimated time of a launch and the resources that need the most of it."""
    if estimate is None:
        return []
    longest = sorted(estimate.bounds, key=lambda name: -estimate.bounds[name])
    shown = ", ".join(f"{name} {_time(estimate.bounds[name])}" for name in longest[:4] if estimate.bounds[name] > 0)
    work = f"{estimate.flops / 1e6:.3g} MFLOP, {estimate.bytes / 1e6:.3g} MB"
    waves = f"{estimate.waves} wave{'s' * (estimate.waves != 1)}"
    return [
        f"  estimate: {_time(estimate.seconds)}, bound by {estimate.bound} ({work}, {waves})",
        f"  least times: {shown}",
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _rows(found: Sequence[Access]) -> list[str]:
    head = ("place", "access", "bytes", "requests", "units", "least", "ratio", "worst")
    rows: list[tuple[str, ...]] = [head]
    for a in found:
        place = a.place if a.is_in_source else _abbreviated(a.text)
        access = f"{a.scope} {a.what} {a.buffer}"
        numbers = (a.bytes, a.requests, a.units, a.least, f"{a.ratio:.2f}", f"{a.worst:.0f}")
        rows.append((place, access, *map(str, numbers)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = []
    for row in rows:
        cells = [text.ljust(w) for text, w in zip(row[:2], widths, strict=False)]
        cells += [text.rjust(w) for text, w in zip(row[2:], widths[2:], strict=True)]
        lines.append("  " + "  ".join(cells))
    return lines


def _abbreviated(text: str) -> str:
    """Shorten a statement to the width of a place in a file."""
    return text if len(text) <= _PLACE_WIDTH else f"{text[: _PLACE_WIDTH - 3]}..."


def _extents(extents: Sequence[int]) -> str:
    used = list(extents)
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return " x ".join(map(str, used))
