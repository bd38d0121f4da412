"""Tuning by TVM's functions: `tune_tasks`, and what `tune_tir` and `tune_relax` share."""

from __future__ import annotations

import os
import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import tir
from mlcc.machine.device import ANALYSIS
from mlcc.machine.target import LlvmTarget, Target
from mlcc.passes.schedule.trace import Trace
from mlcc.records.database import MEMORY
from mlcc.records.database import Database as Records
from mlcc.records.record import FINAL
from mlcc.records.workload import MAIN, key_of, plain
from mlcc.runtime.threads import get_num_threads
from mlcc.tune.contracts import Candidate, Runner, Task
from mlcc.tune.database import Database, JSONDatabase, TuningRecord
from mlcc.tune.engine import runner_for
from mlcc.tune.kernel_search import FINALISTS, KernelSearch
from mlcc.tune.loop import Limits, Loop
from mlcc.tune.profiler import Profiler
from mlcc.tune.recorded import RecordedRunner, candidate_key
from mlcc.tune.space_generator import PostOrderApply
from mlcc.tune.strategy_space import StrategySpace
from mlcc.tune.tune_context import TuneContext
from mlcc.tune.verdict import estimate

_RECORDS = "tune.db"
_LEVEL = 2
_FULL = 2.0  # of a roofline: no kernel is near enough to end its search early
_SCHEDULERS = ("gradient",)


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

    Schedules are measured beside those of the rules, in processes of their own, and their results are compared with
    the kernel's own. `work_dir` keeps all measurements: what is in it is not measured again. `runner` is "local", or a
    `mlcc.tune.contracts.Runner`. The database that comes back has a record for each schedule that ran. Raises
    ValueError for arguments of TVM's that mean nothing here.
    """
    _check(builder, measure_callbacks, task_scheduler, post_optimization)
    weights = task_weights or [1.0] * len(tasks)
    made = _database(database, work_dir, module_equality)
    spaces = [_ContextSpace(context, weight, num_trials_per_iter, cost_model) for context, weight in
              zip(tasks, weights, strict=True)]  # fmt: skip
    if work_dir is not None:
        os.makedirs(work_dir, exist_ok=True)
    with Records(MEMORY if work_dir is None else os.path.join(work_dir, _RECORDS)) as records:
        measuring = _runner(runner, spaces)
        try:
            searches = [_search(space, measuring, records) for space in spaces]
            try:
                with Profiler.timeit("Search"):
                    Loop(searches, Limits(budget, max_trials_global, _FULL, max_trials_per_task)).run()
            finally:
                with Profiler.timeit("Finalists"):
                    for search, space in zip(searches, spaces, strict=True):
                        _commit(made, records, search, space)
        finally:
            measuring.close()
    return made


class _ContextSpace(StrategySpace):
    """The space of a context, which remembers what it proposes."""

    def __init__(self, context: TuneContext, weight: float, per_iter: int, cost_model: Any) -> None:
        self.tuned = context
        strategy = context.search_strategy or "evolutionary"
        super().__init__(_task(context, weight), context.space_generator or "post-order-apply", strategy, cost_model)
        self._per_iter = per_iter
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


def _task(context: TuneContext, weight: float) -> Task:
    """Raises ValueError for a module of several kernels, or without a target."""
    assert context.mod is not None and context.target is not None, "a context to tune has a module and a target"
    funcs = [f for f in context.mod.functions.values() if isinstance(f, tir.PrimFunc)]
    if len(funcs) != 1 or list(context.mod.functions) != [MAIN]:
        raise ValueError("one kernel is tuned at a time: give the module of one function, or use tune_relax")
    func = plain(funcs[0])
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
    return KernelSearch(task, space, default, RecordedRunner(runner, records, task, default, seed, device), seed)


def _commit(made: Database, records: Records, search: KernelSearch, space: _ContextSpace) -> None:
    """Add what ran to the database. The best few are measured afresh, for a search's own figures favour what was lucky;
    nothing else counts as faster than they then are."""
    own = [r for r in records.records(search.task.key) if r.setting == search.runner.setting]
    known = {r.candidate: r for r in own if r.ratios and r.stage != FINAL}
    ranked = sorted((estimate(r.ratios), key) for key, r in known.items() if key in space.proposed)
    seconds = search.default_seconds
    if seconds is None:
        return
    best = [key for _, key in ranked[:FINALISTS]]
    again = search.runner.measure([space.proposed[key] for key in best], 15, final=True) if best else []
    ratios = {key: list(o.ratios) for key, o in zip(best, again, strict=True) if o.ratios}
    least = max((statistics.median(r) for r in ratios.values()), default=0.0)
    context = space.tuned
    assert context.mod is not None
    workload = made.commit_workload(context.mod)
    guessed = search.runner.setting.device == ANALYSIS
    if isinstance(context.space_generator, PostOrderApply) and len(search.default.trace):
        made.commit_tuning_record(
            TuningRecord(search.default.trace, workload, [seconds], context.target, None, guessed)
        )
    for rough, key in ranked:
        times = [seconds * ratio for ratio in ratios.get(key, [max(rough, least)])]
        trace = space.proposed[key].trace
        made.commit_tuning_record(TuningRecord(trace, workload, times, context.target, None, guessed))


def _runner(given: Any, spaces: Sequence[_ContextSpace]) -> Runner:
    """Raises ValueError for a word that names no runner, and for kernels of different kinds of targets."""
    if not isinstance(given, str):
        return given  # type: ignore[no-any-return]
    kinds = {space.task.target.kind for space in spaces}
    if given != "local" or len(kinds) > 1:
        raise ValueError(f"runner is 'local' or what measures, for one kind of target, not {given!r} for {kinds}")
    return runner_for(spaces[0].task.target if spaces else Target())


def _database(given: Any, work_dir: str | None, module_equality: str) -> Database:
    if given == "json":
        if work_dir is None:
            return Database.create("memory", module_equality=module_equality)
        return JSONDatabase(work_dir=work_dir, module_equality=module_equality)
    return Database.create(given)


def _check(builder: Any, callbacks: Any, scheduler: Any, post_optimization: bool) -> None:
    for name, value, known in (
        ("builder", builder, ("local",)), ("measure_callbacks", callbacks, ("default",)),
        ("task_scheduler", scheduler, _SCHEDULERS), ("post_optimization", post_optimization, (False,)),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"{name} is {known[0]!r}, not {value!r}")


def context_of(mod: Any, target: Target | str, space: Any, strategy: Any, name: str, seed: int | None) -> TuneContext:
    """The context of one kernel."""
    return TuneContext(
        mod, target=target, space_generator=space, search_strategy=strategy, task_name=name,
        rand_state=1 if seed is None else seed,
    )  # fmt: skip
