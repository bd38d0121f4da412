"""The report of `mlcc analyze`: launches, the cost of their memory accesses, and occupancy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mlcc.errors import Diagnostic
from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.runtime.launch.device import Extents
from mlcc.targets.emulate.analysis import Access, accesses, whole_blocks
from mlcc.targets.emulate.compiled import Emulated, LaunchOutcome, Mode, evaluate
from mlcc.targets.emulate.device import EmulatedDevice
from mlcc.targets.emulate.threads import WARP

_PLACE_WIDTH = 40  # characters of a statement shown as a place
ROOM = 1 << 20  # traced accesses of one launch, at most


@dataclass(slots=True)
class KernelReport:
    """A kernel at its first launch, and the number of its launches.

    `blocks` is the number of blocks whose accesses were counted, of `grid` in all; `occupancy` is the fraction of a
    multiprocessor's warps that resident blocks fill.
    """

    name: str
    grid: list[int]
    block: list[int]
    shared: int
    blocks: int
    accesses: list[Access]
    launches: int = 1
    registers: int | None = None
    spills: int | None = None
    blocks_per_sm: int = 0
    occupancy: float = 0.0
    limit: str = ""

    def total(self, scope: str) -> tuple[int, int]:
        """Return the units of all accesses of a scope, and their minimum."""
        mine = [a for a in self.accesses if (a.scope == "global") == (scope == "global")]
        return sum(a.units for a in mine), sum(a.least for a in mine)

    @property
    def block_count(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(eq=False)
class Report:
    """The report of a run: facts by kernel, in order of the first launch, and findings."""

    facts: GpuFacts
    kernels: dict[str, KernelReport] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)

    def add(
        self, kernel: Emulated, outcome: LaunchOutcome, grid: Sequence[int], block: Sequence[int], dynamic: int
    ) -> None:
        """Add a launch with its findings; accesses are only counted for the first launch of a kernel."""
        self.findings.extend(outcome.findings)
        name = kernel.kernel.name
        if name in self.kernels or outcome.trace is None:
            if name in self.kernels:
                self.kernels[name].launches += 1
            return
        trace = whole_blocks(outcome.trace, ROOM)
        blocks = len(set(trace[:, 5].tolist())) if len(trace) else 0
        shared = _static_shared(kernel) + dynamic
        accessed = accesses(trace, kernel.checks)
        self.kernels[name] = KernelReport(name, list(grid), list(block), shared, blocks, accessed)

    def assembled(self, kernels: Mapping[str, Any]) -> None:
        """Add the resources that the assembler reports for kernels, by name, and the resulting occupancy."""
        for name, kernel in self.kernels.items():
            resources = kernels.get(name)
            if resources is not None:
                kernel.registers, kernel.spills = resources.registers, resources.spill_stores + resources.spill_loads
            self._compute_occupancy(kernel)

    def _compute_occupancy(self, kernel: KernelReport) -> None:
        facts = self.facts
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
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
                    **asdict(k), "sectors": k.total("global")[0], "sectors_least": k.total("global")[1],
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
    """An emulated device that reports on launches; findings do not stop it."""

    def __init__(self, kernels: Sequence[Any], facts: GpuFacts) -> None:
        super().__init__(kernels, facts=facts)
        self._mode = Mode(True, ROOM)
        self.report = Report(facts)

    def launched(
        self, kernel: Emulated, outcome: LaunchOutcome, grid: Extents, block: Extents, shared_bytes: int
    ) -> None:
        self.report.add(kernel, outcome, grid, block, shared_bytes)


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
    counted = "all blocks" if kernel.blocks == kernel.block_count else f"{kernel.blocks} of the blocks"
    for scope, unit in (("global", "sectors of 32 bytes"), ("shared", "passes over the banks")):
        units, least = kernel.total(scope)
        if units:
            lines.append(f"  {scope} memory: {units} {unit}, {least} at the least ({counted} counted)")
    if kernel.accesses:
        lines += ["", *_rows(kernel.accesses)]
    return lines


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
