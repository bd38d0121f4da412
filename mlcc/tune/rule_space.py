"""The design space of the rules: plans for a kernel, prioritized by predictions and measurements."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from mlcc.passes.auto_schedule.plans import AppliedPlan, Plan, Plans
from mlcc.passes.lowering.versions import function_facts
from mlcc.tune.contracts import Candidate, Task
from mlcc.tune.option_effects import OptionEffects

FAILURE_RATIO = 3.0  # the ratio that a failed plan counts as
CROWDING_PENALTY = 0.05  # penalty for each plan of a batch that changes the same choice
NOISE = 0.005  # of expectations: breaks ties by the seed
REQUEUE_RATIO = 1.02  # a built plan predicted slower than expected by this factor is queued again
RULE = "rule"  # the decision that names the rule of a plan


class RuleSpace:
    """The plans of the rules for a task (`mlcc.tune.contracts.Space`).

    A best-first local search: `batches` begins with the default's neighbours and the defaults of other rules, learns
    the effect of each option from the measured ratios, continues with the neighbours of the best plan so far, and ends
    when all reachable plans have been measured.
    """

    def __init__(self, task: Task) -> None:
        """Raises CompileError for a function that no rule may schedule."""
        facts = function_facts(task.func, task.target)
        self._serial = task.threads == 1
        self.plans = Plans(task.func, facts, task.constants)

    def default(self) -> Candidate | None:
        """The candidate of the pass `auto-schedule`; None if no rule matches the function."""
        planned = self.plans.default
        return None if planned is None else _candidate(planned)

    def candidate(self, decisions: Sequence[tuple[str, object]]) -> Candidate:
        """Rebuild the candidate of recorded decisions. Raises CompileError if the rules no longer offer them."""
        given = dict(decisions)
        choices = {name: value for name, value in given.items() if name != RULE and isinstance(value, int)}
        return _candidate(self.plans.apply(Plan(str(given.get(RULE, "")), choices)))

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        """See `Space.batches`; the default is not among the candidates."""
        search = _Search(self.plans, Random(seed), self._serial)
        while batch := search.batch(size):
            ratios = yield [_candidate(planned) for planned in batch]
            search.learn(batch, ratios)


def _candidate(planned: AppliedPlan) -> Candidate:
    trace = planned.answer.trace
    assert trace is not None
    decisions = ((RULE, planned.plan.rule), *planned.plan.choices.items())
    return Candidate(planned.func, trace, decisions, planned.predicted)


@dataclass(eq=False)
class _QueuedPlan:
    """A queued plan, built or not: the choice that it changes, the rule's prediction, and a little noise."""

    plan: Plan
    change: str
    predicted: float
    noise: float
    planned: AppliedPlan | None = None


class _Search:
    """The state of a best-first search: the queue, the plans seen so far, and measured ratios."""

    def __init__(self, plans: Plans, random: Random, serial: bool) -> None:
        self._plans, self._random, self._serial = plans, random, serial
        self._queue: list[_QueuedPlan] = []
        self._queued_names: set[str] = set()  # plans that have been queued
        self._seen_keys: set[str] = set()  # keys of built plans
        self._measured: list[tuple[float, AppliedPlan]] = []  # with their ratios; their neighbours are not queued yet
        self._best = 1.0
        default = plans.default
        self._effects = OptionEffects({} if default is None else _options(default.plan))
        if default is not None:
            self._queued_names.add(str(default.plan))
            self._seen_keys.add(default.key)
            self._queue_neighbours(default)
        for rule in plans.rules:
            if default is None or rule.name != default.plan.rule:
                self._enqueue(Plan(rule.name), RULE, plans.rule_cost(rule.name))

    def batch(self, size: int) -> list[AppliedPlan]:
        """The next plans to measure, most promising first; none at the end."""
        chosen: list[AppliedPlan] = []
        changes: dict[str, int] = {}
        while len(chosen) < size:
            if not self._queue:
                if not self._measured:
                    break
                self._measured.sort(key=lambda pair: -pair[0])
                self._queue_neighbours(self._measured.pop()[1])
                continue
            taken = min(
                self._queue, key=lambda w: self._expected_log_ratio(w) + CROWDING_PENALTY * changes.get(w.change, 0)
            )
            self._queue.remove(taken)
            planned = taken.planned or self._plans.repair(taken.plan)
            if planned is None or planned.key in self._seen_keys and taken.planned is None:
                continue
            if taken.planned is None:
                self._queued_names.add(str(planned.plan))
                self._seen_keys.add(planned.key)
                if planned.predicted > taken.predicted * REQUEUE_RATIO:
                    self._queue.append(_QueuedPlan(planned.plan, taken.change, planned.predicted, taken.noise, planned))
                    continue
            changes[taken.change] = changes.get(taken.change, 0) + 1
            chosen.append(planned)
        return chosen

    def learn(self, batch: Sequence[AppliedPlan], ratios: Sequence[float | None]) -> None:
        """Take in the measured ratios of a batch."""
        for planned, ratio in zip(batch, ratios, strict=True):
            self._effects.add(_options(planned.plan), math.log((ratio or FAILURE_RATIO) / planned.predicted))
            if ratio is not None:
                self._measured.append((ratio, planned))
        self._effects.fit()
        best = min((pair for pair in self._measured), key=lambda pair: pair[0], default=None)
        if best is not None and best[0] < self._best:
            self._best = best[0]
            self._measured.remove(best)
            self._queue_neighbours(best[1])

    def _queue_neighbours(self, planned: AppliedPlan) -> None:
        for change, plan, predicted in self._plans.neighbours(planned):
            if not (self._serial and change.startswith("parallel")):
                self._enqueue(plan, change, predicted)

    def _enqueue(self, plan: Plan, change: str, predicted: float) -> None:
        if str(plan) not in self._queued_names:
            self._queued_names.add(str(plan))
            self._queue.append(_QueuedPlan(plan, change, predicted, NOISE * self._random.random()))

    def _expected_log_ratio(self, waiting: _QueuedPlan) -> float:
        """Predict the logarithm of a plan's ratio."""
        return math.log(waiting.predicted) + self._effects.sum(_options(waiting.plan)) + waiting.noise


def _options(plan: Plan) -> Mapping[str, object]:
    return {RULE: plan.rule, **plan.choices}
