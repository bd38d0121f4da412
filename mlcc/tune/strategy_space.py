"""Generic design spaces for the tuning loop: made by a generator, searched by a strategy."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.records.workload import MAIN, module_of
from mlcc.tune.contracts import Candidate, Task
from mlcc.tune.rule_space import RuleSpace
from mlcc.tune.runner import RunnerResult
from mlcc.tune.search_strategy import MeasureCandidate, SearchStrategy
from mlcc.tune.space_generator import SpaceGenerator
from mlcc.tune.tune_context import TuneContext

_NO_LIMIT = 1 << 30


class StrategySpace:
    """The spaces that a generator makes of a task's function (`mlcc.tune.contracts.Space`).

    The default is the rules' schedule, which builds use without tuning: candidates have to be faster.
    """

    def __init__(
        self, task: Task, generator: Any = "post-order-apply", strategy: Any = "evolutionary", cost_model: Any = "xgb"
    ) -> None:
        self._task = task
        self._generator = SpaceGenerator.create(generator)
        self._strategy = SearchStrategy.create(strategy)
        self._cost_model = cost_model
        self._default = _rules_default(task)

    def default(self) -> Candidate | None:
        """The rules' schedule, None if no rule applies."""
        return self._default

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        """See `Space.batches`. Raises CompileError if a step of a schedule function or script fails."""
        context = self.context(seed)
        spaces = context.generate_design_space()
        context.pre_tuning(_NO_LIMIT, size, spaces, cost_model=self._cost_model)
        while proposed := context.generate_measure_candidates():
            ratios = yield [self._candidate(one) for one in proposed]
            results = [RunnerResult([r]) if r is not None else RunnerResult(None, "it did not run") for r in ratios]
            context.notify_runner_results(proposed, results)
            self.told(proposed, results)

    def told(self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        """Take the results of a batch; `run_secs` are ratios."""

    def context(self, seed: int) -> TuneContext:
        """The context of a search."""
        return TuneContext(
            module_of(self._task.func), target=self._task.target, space_generator=self._generator.clone(),
            search_strategy=self._strategy.clone(), task_name=self._task.names[0], rand_state=seed + 1,
        )  # fmt: skip

    def _candidate(self, one: MeasureCandidate) -> Candidate:
        func = one.sch.mod[MAIN]
        assert isinstance(func, tir.PrimFunc)
        trace = one.sch.trace.simplified()
        samplings = [inst for inst in trace.insts if inst.is_sampling]
        decisions = [("space", one.space), *((f"{at}: {i.name}", i.decision) for at, i in enumerate(samplings))]
        return Candidate(func, trace, tuple(decisions))


class GenericSpace(StrategySpace):
    """The spaces of post-order apply, by evolutionary search: `--space generic`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class ScriptSpace(StrategySpace):
    """The space of a schedule script with sampling: `--space FILE.mls`."""

    def __init__(self, task: Task, path: str) -> None:
        """Raises CompileError for a file that cannot be read."""
        super().__init__(task, path)


def _rules_default(task: Task) -> Candidate | None:
    try:
        return RuleSpace(task).default()
    except CompileError:
        return None
