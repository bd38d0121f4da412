"""Tuning by TVM's functions: `tune_tasks`, and what `tune_tir` and `tune_relax` share."""

from __future__ import annotations

import os
import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import tir
from mlcc.machine.device import ANALYSIS
from mlcc.machine.target import CudaTarget, LlvmTarget, Target
from mlcc.passes.schedule.trace import Trace
from mlcc.records.database import MEMORY
from mlcc.records.database import Database as Records
from mlcc.records.record import FINAL
from mlcc.records.workload import MAIN, key_of, without_module_attrs
from mlcc.runtime.threads import get_num_threads
from mlcc.tune import runner as runners
from mlcc.tune.builder import Builder, BuilderResult, LocalBuilder
from mlcc.tune.contracts import Candidate, Runner, Task
from mlcc.tune.cost_model import CostModel, FrozenModel
from mlcc.tune.database import Database, JSONDatabase, TuningRecord
from mlcc.tune.kernel_search import FINALISTS, KernelSearch
from mlcc.tune.measure import protocol
from mlcc.tune.measure.gpu import GpuRunner
from mlcc.tune.measure.local import LocalRunner
from mlcc.tune.measure_callback import AddToDatabase, MeasureCallback, UpdateCostModel
from mlcc.tune.profiler import Profiler
from mlcc.tune.ratio_statistics import median_ratio
from mlcc.tune.recorded_runner import RecordedRunner, candidate_key
from mlcc.tune.runner import RunnerResult
from mlcc.tune.search_strategy import MeasureCandidate
from mlcc.tune.space_generator import PostOrderApply
from mlcc.tune.strategy_space import StrategySpace
from mlcc.tune.task_scheduler import TaskRecord, TaskScheduler
from mlcc.tune.tune_context import TuneContext
from mlcc.tune.tuning_loop import SearchLimits, TuningLoop
from mlcc.tune.user_runner import UserRunner

_RECORDS = "tune.db"
_LEVEL = 2
_NO_EARLY_STOP = 2.0  # share of the roofline that no kernel reaches, so that no search ends early


@dataclass(frozen=True)
class TuneConfig:
    """The arguments of `tune_tir` as TVM took them in 2022: with one, `tune_tir` returns the best schedule."""

    max_trials_global: int = 64
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    strategy: str = "evolutionary"
    options: dict[str, Any] = field(default_factory=dict)


def tune_tasks(
    *, tasks: Sequence[TuneContext], task_weights: Sequence[float] | None = None, work_dir: str | None = None,
    max_trials_global: int, max_trials_per_task: int | None = None, num_trials_per_iter: int = 64,
    builder: Any = "local", runner: Any = "local", database: Any = "json", cost_model: Any = "xgb",
    measure_callbacks: Any = "default", task_scheduler: Any = "gradient", module_equality: str = "structural",
    post_optimization: bool = False, budget: float | None = None,
) -> Database:  # fmt: skip
    """Tune contexts, at most `max_trials_global` candidates all together and `max_trials_per_task` of each, or for
    `budget` seconds.

    Candidates are measured beside the rules' schedules, in separate processes, and their results are compared with
    those of the unscheduled kernel. `work_dir` keeps all measurements, which are not repeated. `builder`, `runner`,
    `task_scheduler` and `measure_callbacks` are names, or objects of the modules of those names; `runner` may also be a
    `mlcc.tune.contracts.Runner`. The returned database has a record for each schedule that ran. Raises ValueError for
    unsupported arguments of TVM's.
    """
    if post_optimization:
        raise ValueError(
            '`post_optimization` is not supported: `strategy="local-descent"` continues from the best candidates'
        )
    weights = task_weights or [1.0] * len(tasks)
    output_database = _database(database, work_dir, module_equality)
    scheduler, callbacks = TaskScheduler.create(task_scheduler), MeasureCallback.create(measure_callbacks)
    scheduler.tasks_ = [TaskRecord(*pair) for pair in zip(tasks, weights, strict=True)]
    scheduler.database_, scheduler.measure_callbacks_ = output_database, callbacks
    model = CostModel.create(cost_model)
    if not any(isinstance(one, UpdateCostModel) for one in callbacks):
        model = FrozenModel(model)
    spaces = [_ContextSpace(scheduler, at, num_trials_per_iter, model) for at in range(len(tasks))]
    if work_dir is not None:
        os.makedirs(work_dir, exist_ok=True)
    with Records(MEMORY if work_dir is None else os.path.join(work_dir, _RECORDS)) as records:
        measuring = _runner(builder, runner, spaces)
        try:
            searches = [_search(space, measuring, records) for space in spaces]
            try:
                with Profiler.timeit("Search"):
                    limits = SearchLimits(budget, max_trials_global, _NO_EARLY_STOP, max_trials_per_task)
                    TuningLoop(searches, limits, choose=scheduler.choose).run()
            finally:
                with Profiler.timeit("Finalists"):
                    adds = any(isinstance(one, AddToDatabase) for one in callbacks)
                    for search, space in zip(searches, spaces, strict=True):
                        if adds:
                            _commit(output_database, records, search, space)
        finally:
            measuring.close()
    return output_database


class _ContextSpace(StrategySpace):
    """The space of a scheduler's task, which records its proposals and calls callbacks after each batch."""

    def __init__(self, scheduler: TaskScheduler, number: int, per_iter: int, cost_model: Any) -> None:
        context, weight = scheduler.tasks_[number].ctx, scheduler.tasks_[number].task_weight
        self.tuned = context
        strategy = context.search_strategy or "evolutionary"
        super().__init__(_task(context, weight), context.space_generator or "post-order-apply", strategy, cost_model)
        self._scheduler, self._number, self._per_iter = scheduler, number, per_iter
        self.search: KernelSearch | None = None
        self.proposed: dict[str, Candidate] = {}

    @property
    def task(self) -> Task:
        return self._task

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        search = super().batches(seed, max(min(size, self._per_iter), 1))
        proposed = next(search, None)
        while proposed:
            self.proposed.update((candidate_key(c.func), c) for c in proposed)
            ratios = yield proposed
            try:
                proposed = search.send(ratios)
            except StopIteration:
                return

    def told(self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        """Call the callbacks, with ratios converted to seconds."""
        baseline_seconds = self.search.default_seconds if self.search is not None else None
        secs = [[ratio * (baseline_seconds or 1.0) for ratio in r.run_secs] if r.run_secs else None for r in results]
        built = [BuilderResult(None) for _ in results]
        timed = [RunnerResult(s, r.error_msg) for s, r in zip(secs, results, strict=True)]
        for callback in self._scheduler.measure_callbacks_:
            callback.apply(self._scheduler, self._number, candidates, built, timed)


def _task(context: TuneContext, weight: float) -> Task:
    """Convert a context to a task. Raises ValueError for a module of several kernels."""
    assert context.mod is not None and context.target is not None, "a context to tune has a module and a target"
    funcs = [f for f in context.mod.functions.values() if isinstance(f, tir.PrimFunc)]
    if len(funcs) != 1 or list(context.mod.functions) != [MAIN]:
        raise ValueError("a context must have a single kernel: pass the module of one function, or use tune_relax")
    func = without_module_attrs(funcs[0])
    threads = context.target.num_cores if isinstance(context.target, LlvmTarget) else 0
    return Task(
        key_of(func), (context.task_name,), func, context.target, threads or get_num_threads(), _LEVEL,
        calls=max(round(weight), 1),
    )  # fmt: skip


def _search(space: _ContextSpace, runner: Runner, records: Records) -> KernelSearch:
    task = space.task
    seed = space.tuned.rand_state
    default = space.default() or Candidate(task.func, Trace())
    device = getattr(runner, "device", None)
    space.search = KernelSearch(
        task, space, default, RecordedRunner(runner, records, task, default, seed, device), seed
    )
    return space.search


def _commit(database: Database, records: Records, search: KernelSearch, space: _ContextSpace) -> None:
    """Add the successful candidates to the database. The best few are measured again to avoid the winner's curse; no
    other candidate counts as faster than they are then."""
    own = [r for r in records.records(search.task.key) if r.setting == search.runner.setting]
    known = {r.candidate: r for r in own if r.ratios and r.stage != FINAL}
    ranked = sorted((median_ratio(r.ratios), key) for key, r in known.items() if key in space.proposed)
    seconds = search.default_seconds
    if seconds is None:
        return
    best = [key for _, key in ranked[:FINALISTS]]
    outcomes = search.runner.measure([space.proposed[key] for key in best], 15, final=True) if best else []
    ratios = {key: list(o.ratios) for key, o in zip(best, outcomes, strict=True) if o.ratios}
    finalist_bound = max((statistics.median(r) for r in ratios.values()), default=0.0)
    context = space.tuned
    assert context.mod is not None
    workload = database.commit_workload(context.mod)
    by_analysis = search.runner.setting.device == ANALYSIS
    if isinstance(context.space_generator, PostOrderApply) and len(search.default.trace):
        database.commit_tuning_record(
            TuningRecord(search.default.trace, workload, [seconds], context.target, None, by_analysis)
        )
    for rough, key in ranked:
        times = [seconds * ratio for ratio in ratios.get(key, [max(rough, finalist_bound)])]
        trace = space.proposed[key].trace
        database.commit_tuning_record(TuningRecord(trace, workload, times, context.target, None, by_analysis))


def _runner(builder: Any, runner: Any, spaces: Sequence[_ContextSpace]) -> Runner:
    """Return the runner for a builder and a runner of TVM's API; a runner with `measure` is returned as is.

    Raises ValueError for unknown names, kernels of different kinds of targets, and a user-defined builder without a
    user-defined runner.
    """
    builds = Builder.create(builder)
    if hasattr(runner, "measure"):
        return runner  # type: ignore[no-any-return]
    runs = runners.Runner.create(runner)
    kinds = {space.task.target.kind for space in spaces}
    if len(kinds) > 1:
        raise ValueError(f"all kernels must be for one kind of target, not for {', '.join(sorted(kinds))}")
    if not isinstance(runs, runners.LocalRunner):
        return UserRunner(builds, runs)
    if not isinstance(builds, LocalBuilder):
        raise ValueError("a custom builder needs a custom runner: LocalRunner builds the candidates itself")
    return _default_runner(builds, runs, spaces[0].task.target if spaces else Target())


def _default_runner(builder: LocalBuilder, runner: runners.LocalRunner, target: Target) -> Runner:
    if isinstance(target, CudaTarget):
        return GpuRunner(seconds=max(builder.timeout_sec, runner.timeout_sec))
    cold = runner.evaluator_config.enable_cpu_cache_flush
    limits = protocol.ResourceLimits(seconds=runner.timeout_sec)
    return LocalRunner(builder.max_workers, limits=limits, cold=cold, build_seconds=builder.timeout_sec)


def _database(given: Any, work_dir: str | None, module_equality: str) -> Database:
    if given == "json":
        if work_dir is None:
            return Database.create("memory", module_equality=module_equality)
        return JSONDatabase(work_dir=work_dir, module_equality=module_equality)
    return Database.create(given)


def make_context(mod: Any, target: Target | str, space: Any, strategy: Any, name: str, seed: int | None) -> TuneContext:
    """The context of one kernel."""
    return TuneContext(
        mod, target=target, space_generator=space, search_strategy=strategy, task_name=name,
        rand_state=1 if seed is None else seed,
    )  # fmt: skip
