"""A profile of a compiled function by kernel: its time, operations, memory traffic, and share of the roofline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlcc import backends
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.ir.visit import used_vars
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import constant_parameters, schedule_function
from mlcc.passes.auto_schedule.version_sizes import schedule_versions
from mlcc.passes.lowering.versions import function_facts
from mlcc.passes.lowering.work_estimate import extent_at
from mlcc.passes.manage.levels import SCHEDULING
from mlcc.passes.manage.manager import Observer, Pass
from mlcc.passes.manage.stages import BLOCKS, stage_of
from mlcc.relax.renamed import replaced_kernels
from mlcc.runtime.profile_counters import CallCount, CallSite
from mlcc.tune.peak_rates import PeakRates
from mlcc.tune.roofline import operations, traffic


class CompiledKernels(Observer):
    """The kernels of a build: as they are before they are scheduled, and as code is generated from them."""

    def __init__(self, target: str | Target) -> None:
        self.target = Target.parse(target)
        self._steps = {"apply-tuned", *SCHEDULING, *backends.of(self.target).lowering}
        self._unscheduled: IRModule | None = None
        self._before_rules: IRModule | None = None
        self._lowered = IRModule()
        self._names: dict[str, str] = {}  # of kernels that passes renamed: as they were before they were scheduled

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if self._unscheduled is None and current.name in self._steps and stage_of(module) == BLOCKS:
            self._unscheduled = module
        if current.name in SCHEDULING and self._before_rules is None:
            self._before_rules = module

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self._lowered = module
        if self._unscheduled is not None:
            for name, old in replaced_kernels(module, before).items():
                self._names[name] = self._names.get(old, old)

    def work(self, name: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Return the floating-point operations and the compulsory traffic in bytes of a call; None if unknown."""
        func = (self._unscheduled or self._lowered).functions.get(self._names.get(name, name))
        if not isinstance(func, tir.PrimFunc):
            return None
        values = _values(func, sizes)
        count = operations(func, values)
        return None if count is None else (count, traffic(func, values))

    def threads(self, name: str, sizes: Mapping[str, int], limit: int) -> int:
        """Return the number of threads that a call may use of `limit`, by its parallel loops."""
        func = self._lowered.functions.get(name)
        if not isinstance(func, tir.PrimFunc):
            return 1
        values = _values(func, sizes)
        loops = [loop for loop in find(func.body, tir.For) if loop.kind is tir.ForKind.PARALLEL]
        extents = [extent_at(loop.extent, values) for loop in loops]
        return max((min(limit, limit if extent is None else extent) for extent in extents), default=1)

    def rule(self, name: str) -> tuple[str, str]:
        """Return the schedule rule of a kernel and its reason; where no rule applies, what takes its place."""
        module, name = self._before_rules, self._names.get(name, name)
        if module is None:
            return "none", "the pipeline does not schedule"
        func = module.functions.get(name)
        if not isinstance(func, tir.PrimFunc):
            return "none", "made after scheduling"
        given = (self._unscheduled or module).functions.get(name)
        if given is not None and given is not func:
            return "tuned", "by the database"
        constants = constant_parameters(module).get(name, frozenset())
        facts = function_facts(func, self.target)
        outcome = schedule_versions(func, name, facts, constants) or schedule_function(
            func, name, facts, constants=constants
        )
        return outcome.rule or "none", outcome.why


def _values(func: tir.PrimFunc, sizes: Mapping[str, int]) -> dict[tir.Var, int]:
    shapes = tuple(n for b in func.buffers if b is not None for n in b.shape)
    return {v: sizes[v.name] for v in used_vars(shapes) if v.name in sizes}


@dataclass
class KernelRow:
    """One kernel in a call of the profiled function: seconds, and work if it is known, summed over all its calls."""

    kernel: str
    calls: float = 0.0
    seconds: float = 0.0
    operations: float | None = 0.0
    bytes: float | None = 0.0
    least_seconds: float = 0.0  # by the roofline
    bound: str = ""  # what the roofline is for the largest call: `compute`, or a level of memory
    threads: int = 1
    sites: list[CallSite] = field(default_factory=list)

    @property
    def roofline_share(self) -> float | None:
        return self.least_seconds / self.seconds if self.least_seconds and self.seconds else None


@dataclass(frozen=True)
class Round:
    """One sample: the seconds of a call on average, and the counters after `number` calls."""

    seconds: float
    number: int
    counts: Sequence[CallCount]


@dataclass(frozen=True)
class KernelProfile:
    """A profile whose `rows`, the slowest first, and `rest` add up to `seconds`, the time of a call.

    All are means over the half of the rounds around the median, which unlike medians add up.
    """

    seconds: float
    rows: tuple[KernelRow, ...]
    rounds: int

    @property
    def rest(self) -> float:
        """Return the seconds outside of kernels."""
        return self.seconds - sum(row.seconds for row in self.rows)


def middle_half(rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds whose times are between the quartiles; all of fewer than four."""
    ordered = sorted(rounds, key=lambda one: one.seconds)
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter]


def make_profile(
    sites: Sequence[CallSite], rounds: Sequence[Round], kernels: CompiledKernels, peak: PeakRates, threads: int
) -> KernelProfile:
    """Summarize the rounds by kernel. `sites` are those of the counters; without calls they are left out."""
    used = middle_half(rounds)
    rows: dict[str, KernelRow] = {}
    largest: dict[str, float] = {}
    for at, site in enumerate(sites):
        counts = [one.counts[at] for one in used]
        calls = statistics.fmean(c.calls / one.number for c, one in zip(counts, used, strict=True))
        if not calls:
            continue
        row = rows.setdefault(site.kernel, KernelRow(site.kernel))
        row.sites.append(site)
        row.calls += calls
        row.seconds += statistics.fmean(c.seconds / one.number for c, one in zip(counts, used, strict=True))
        sizes = counts[-1].sizes
        row.threads = max(row.threads, kernels.threads(site.kernel, sizes, threads))
        work = kernels.work(site.kernel, sizes)
        if work is None or row.operations is None or row.bytes is None:
            row.operations = row.bytes = None
            continue
        row.operations += calls * work[0]
        row.bytes += calls * work[1]
        arithmetic, memory = peak.seconds(*work)
        least = max(arithmetic, memory)
        row.least_seconds += calls * least
        if least >= largest.get(site.kernel, 0.0):
            largest[site.kernel] = least
            row.bound = "compute" if arithmetic >= memory else peak.level(work[1])
    for row in rows.values():
        if row.operations is None:
            row.least_seconds, row.bound = 0.0, ""
    ordered = sorted(rows.values(), key=lambda row: -row.seconds)
    return KernelProfile(statistics.fmean(one.seconds for one in used), tuple(ordered), len(rounds))
