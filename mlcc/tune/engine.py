"""Tune a module: extract its kernels, search, and keep the schedules that are proven to be faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.module import Func, IRModule
from mlcc.machine.device import device_key
from mlcc.machine.target import CudaTarget, LlvmTarget, Target
from mlcc.passes.auto_schedule.apply_tuned import replay_record
from mlcc.passes.manage.levels import SCHEDULING, level_of
from mlcc.passes.manage.manager import Pipeline
from mlcc.passes.schedule.trace import Trace
from mlcc.records.choice import choose
from mlcc.records.database import MEMORY, Database
from mlcc.records.record import Record
from mlcc.tune.contracts import Candidate, Runner, Space, Task
from mlcc.tune.earlier_records import earlier_schedules
from mlcc.tune.kernel_search import KernelSearch
from mlcc.tune.recorded_runner import RecordedRunner, task_setting
from mlcc.tune.spaces import space_factory
from mlcc.tune.tasks import ExtractedModule, extract
from mlcc.tune.tuning_loop import SearchLimits, TuningLoop

if TYPE_CHECKING:
    from mlcc.tune.peak_rates import PeakRates

_MAX_MEASUREMENTS = 3  # of the peak rates in one run


@dataclass(eq=False)
class Tuning:
    """The tuning of a module; `loop` has the state of the search for each kernel.

    A context manager that ends the measuring processes and closes the database, if it opened them itself.
    """

    extracted: ExtractedModule
    database: Database
    loop: TuningLoop
    device: str | None = None  # the key of the measuring machines; None: this machine
    _opened: tuple[Runner | Database, ...] = ()

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self._opened:
            one.close()

    def end_processes(self) -> None:
        """End the measuring processes; results can still be read."""
        for one in self._opened:
            if not isinstance(one, Database):
                one.close()

    @property
    def kernels(self) -> list[KernelSearch]:
        return list(self.loop.kernels)

    def winner(self, kernel: KernelSearch) -> Record | None:
        """Return the best record of a kernel, which builds with the database use."""
        return choose(self.database, kernel.task.key, task_setting(kernel.task, self.device)).record

    @property
    def ratio(self) -> float:
        """The module's time with all winners relative to the default schedules; unmeasured kernels do not count."""
        known = [k for k in self.kernels if k.default_seconds is not None]
        winners = [(kernel.share, self.winner(kernel)) for kernel in known]
        return 1.0 - sum(share * (1.0 - (record.ratio or 1.0)) for share, record in winners if record is not None)

    def with_winners(self) -> IRModule:
        """The module with each tuned kernel scheduled by its record; the others are unchanged."""
        module = self.extracted.module.copy()
        winners = {name: self.winner(k) for k in self.kernels for name in k.task.names}
        for name, record in winners.items():
            func = module.functions[name]
            if record is not None and isinstance(func, tir.PrimFunc):
                module.update_func(name, replay_record(func, record))
        return module

    def scheduled(self) -> IRModule:
        """The module with each tuned kernel scheduled by its record and the others by the rules; it compiles anywhere
        without the database."""
        from mlcc.driver import run_passes

        rules = Pipeline(tuple(p for p in self.extracted.left.passes if p.name in SCHEDULING))
        target = self.loop.kernels[0].task.target
        return run_passes(self.with_winners(), rules, target=target, verify_each=False)


def tuning(
    module: IRModule | Func, target: str | Target = "llvm{cpu=native}", *, level: int | None = None,
    threads: int | None = None, kernels: str = "*", sizes: Mapping[str, int] | None = None,
    database: Database | str | None = None, space: str | Callable[[Task], Space] = "rules",
    runner: Runner | None = None, cluster: str | None = None, jobs: int = 1, seed: int = 0,
    budget: float | None = None, trials: int | None = None, until: float = 0.9,
    changed: Callable[[Tuning], None] = lambda tuning: None,
) -> Tuning:  # fmt: skip
    """Set up the tuning of a module; `loop.run()` runs it. Arguments as for `tune`; `changed` is called on progress."""
    from mlcc.runtime.threads import get_num_threads

    parsed_target = Target.parse(target)
    whole_module = module if isinstance(module, IRModule) else IRModule.from_expr(module)
    count = get_num_threads() if threads is None else threads
    make_space = space_factory(space) if isinstance(space, str) else space
    with contextlib.ExitStack() as resources:  # closed here on errors, else by the Tuning
        active_runner = runner
        if active_runner is None:  # started first: process start-up takes as long as everything that follows
            active_runner = runner_for(parsed_target, jobs, cluster)
            resources.callback(active_runner.close)
        extracted = extract(
            whole_module, parsed_target, level=level_of(level), threads=count, kernels=kernels, sizes=sizes
        )
        records = database if isinstance(database, Database) else resources.enter_context(Database(database or MEMORY))
        device = getattr(active_runner, "device", None)
        searches = []
        for task in extracted.tasks:
            task_space = make_space(task)
            default = task_space.default() or Candidate(task.func, Trace())
            recorded = RecordedRunner(active_runner, records, task, default, seed, device)
            searches.append(
                KernelSearch(task, task_space, default, recorded, seed, earlier_schedules(records, task, device))
            )
        resources.pop_all()
    machine = _PeakRateHistory(records, is_remote=device is not None)
    loop = TuningLoop(
        searches, SearchLimits(budget, trials, until), floors=lambda kernel, again: machine.roofline(kernel.task, again)
    )
    owned = (None if runner is not None else active_runner, None if isinstance(database, Database) else records)
    session = Tuning(extracted, records, loop, device, tuple(one for one in owned if one is not None))
    loop.changed = lambda: changed(session)
    return session


def tune(module: IRModule | Func, target: str | Target = "llvm{cpu=native}", **options: object) -> Tuning:
    """Search for faster schedules of the kernels of a module, and record what is measured.

    module    an IRModule, of relax functions and TensorIR functions as they come, or one function
    target    what it is built for; `level` and `threads` are those of the build
    kernels   a glob over the names of kernels; `sizes` has the values of symbolic sizes by name
    database  a `Database` or the path of one; in memory where it is None
    space     "rules", "generic", a `.mls` file, or a function that gives the `Space` of a `Task`
    runner    what measures; by default processes on this machine, `jobs` of which compile, or the workers of a Dask
              `cluster`, by its address
    budget    in seconds; `trials` is a number of candidates, `until` the share of the roofline that is good enough

    The same records and the same seed give the same schedules. Raises CompileError.
    """
    session = tuning(module, target, **options)  # type: ignore[arg-type]
    try:
        session.loop.run()
    except BaseException:
        session.close()
        raise
    session.end_processes()
    return session


def runner_for(target: Target, jobs: int = 1, cluster: str | None = None) -> Runner:
    """Return a runner for a target, on this machine or on a cluster's workers. Raises CompileError."""
    if cluster is not None:
        from mlcc.tune.measure.cluster import DaskRunner

        if isinstance(target, CudaTarget):
            return DaskRunner(cluster, gpu=True)
        return DaskRunner(cluster, jobs=jobs)
    if isinstance(target, CudaTarget):
        from mlcc.tune.measure.gpu import GpuRunner

        return GpuRunner()
    from mlcc.tune.measure.local import LocalRunner

    return LocalRunner(jobs=jobs)


class _PeakRateHistory:
    """The measured peak performance of this machine, for rooflines.

    A search starts with the first recorded measurement and uses one more at each request with `again`; the best so far
    counts. A resumed search therefore sees the same measurements in the same order.
    """

    def __init__(self, records: Database, is_remote: bool = False) -> None:
        self._records, self._is_remote = records, is_remote
        self._used = 0

    def roofline(self, task: Task, again: bool) -> float:
        """Return the roofline time of a task, 0 if the machine is unknown; `again` uses one more measurement."""
        from mlcc.tune.roofline import least_seconds

        if not isinstance(task.target, LlvmTarget) or self._is_remote:
            return 0.0
        if again or not self._used:
            self._used = min(self._used + 1, _MAX_MEASUREMENTS)
        return least_seconds(task, self._floors(device_key(task.target), task.threads))

    def _floors(self, device: str, threads: int) -> PeakRates:
        """Return the best of the measurements that the search has seen; measures and stores a missing one."""
        from mlcc.tune.peak_rates import PeakRates, measure

        known = [PeakRates.of(one) for one in self._records.floors(device, threads) or ()]
        while len(known) < self._used:
            known.append(measure(threads).max_with(known[-1] if known else None))
            self._records.keep_floors(device, threads, [one.data() for one in known])
        return known[self._used - 1]
