"""The design space of the rules: plans for a kernel, ordered by predictions and measurements."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from mlcc.passes.auto_schedule.plans import Plan, Planned, Plans
from mlcc.passes.lowering.versions import function_facts
from mlcc.tune.contracts import Candidate, Task
from mlcc.tune.option_effects import OptionEffects

FAILED = 3.0  # the ratio that a plan counts with that does not run
CROWDED = 0.05  # what each plan of a batch costs the others that change the same choice, as a part of their times
NOISE = 0.005  # of expectations, so that equals come in an order that the seed decides
SURPRISE = 1.02  # times what was expected: a plan that turns out to be expected to take longer waits again
RULE = "rule"  # the name under which decisions have the rule of a plan


class RuleSpace:
    """The plans of the rules for a task (`mlcc.tune.contracts.Space`).

    `batches` begins with the default's neighbours, the most promising ones of each choice first, and the defaults of
    other rules. It learns from the ratios that it is sent what each option is worth, goes on with the neighbours of
    whatever is best so far, and ends when all plans that can be reached so have been measured.
    """

    def __init__(self, task: Task) -> None:
        """Raises CompileError for a function that rules leave alone."""
        facts = function_facts(task.func, task.target)
        self._serial = task.threads == 1
        self.plans = Plans(task.func, facts, task.constants)

    def default(self) -> Candidate | None:
        """The candidate of the pass `auto-schedule`; None if no rule matches the function."""
        planned = self.plans.default
        return None if planned is None else _candidate(planned)

    def candidate(self, decisions: Sequence[tuple[str, object]]) -> Candidate:
        """The candidate of recorded decisions. Raises CompileError where the rules do not offer them any more."""
        given = dict(decisions)
        choices = {name: value for name, value in given.items() if name != RULE and isinstance(value, int)}
        return _candidate(self.plans.apply(Plan(str(given.get(RULE, "")), choices)))

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        """See `Space.batches`; the default is not among the candidates."""
        search = _Search(self.plans, Random(seed), self._serial)
        while batch := search.batch(size):
            ratios = yield [_candidate(planned) for planned in batch]
            search.learn(batch, ratios)


def _candidate(planned: Planned) -> Candidate:
    trace = planned.answer.trace
    assert trace is not None
    decisions = ((RULE, planned.plan.rule), *planned.plan.choices.items())
    return Candidate(planned.func, trace, decisions, planned.predicted)


@dataclass(eq=False)
class _Waiting:
    """A queued plan, built or not: the choice that it changes, the rule's prediction, and a little noise."""

    plan: Plan
    change: str
    predicted: float
    noise: float
    made: Planned | None = None


class _Search:
    """The state of a search in a space: plans that wait to be proposed, plans seen so far, and measured ratios."""

    def __init__(self, plans: Plans, random: Random, serial: bool) -> None:
        self._plans, self._random, self._serial = plans, random, serial
        self._waiting: list[_Waiting] = []
        self._named: set[str] = set()  # plans that have been waiting
        self._results: set[str] = set()  # what plans have come to
        self._measured: list[tuple[float, Planned]] = []  # with their ratios, not yet looked around
        self._best = 1.0
        default = plans.default
        self._effects = OptionEffects({} if default is None else _options(default.plan))
        if default is not None:
            self._named.add(str(default.plan))
            self._results.add(default.key)
            self._look_around(default)
        for rule in plans.rules:
            if default is None or rule.name != default.plan.rule:
                self._wait(Plan(rule.name), RULE, plans.rule_cost(rule.name))

    def batch(self, size: int) -> list[Planned]:
        """The next plans to measure, most promising first; none at the end."""
        chosen: list[Planned] = []
        changes: dict[str, int] = {}
        while len(chosen) < size:
            if not self._waiting:
                if not self._measured:
                    break
                self._measured.sort(key=lambda pair: -pair[0])
                self._look_around(self._measured.pop()[1])
                continue
            taken = min(self._waiting, key=lambda w: self._expected(w) + CROWDED * changes.get(w.change, 0))
            self._waiting.remove(taken)
            planned = taken.made or self._plans.repair(taken.plan)
            if planned is None or planned.key in self._results and taken.made is None:
                continue
            if taken.made is None:
                self._named.add(str(planned.plan))
                self._results.add(planned.key)
                if planned.predicted > taken.predicted * SURPRISE:
                    self._waiting.append(_Waiting(planned.plan, taken.change, planned.predicted, taken.noise, planned))
                    continue
            changes[taken.change] = changes.get(taken.change, 0) + 1
            chosen.append(planned)
        return chosen

    def learn(self, batch: Sequence[Planned], ratios: Sequence[float | None]) -> None:
        """Take in the measured ratios of a batch."""
        for planned, ratio in zip(batch, ratios, strict=True):
            self._effects.add(_options(planned.plan), math.log((ratio or FAILED) / planned.predicted))
            if ratio is not None:
                self._measured.append((ratio, planned))
        self._effects.fit()
        best = min((pair for pair in self._measured), key=lambda pair: pair[0], default=None)
        if best is not None and best[0] < self._best:
            self._best = best[0]
            self._measured.remove(best)
            self._look_around(best[1])

    def _look_around(self, planned: Planned) -> None:
        for change, plan, predicted in self._plans.neighbours(planned):
            if not (self._serial and change.startswith("parallel")):
                self._wait(plan, change, predicted)

    def _wait(self, plan: Plan, change: str, predicted: float) -> None:
        if str(plan) not in self._named:
            self._named.add(str(plan))
            self._waiting.append(_Waiting(plan, change, predicted, NOISE * self._random.random()))

    def _expected(self, waiting: _Waiting) -> float:
        """The logarithm of the ratio that is expected of a plan."""
        return math.log(waiting.predicted) + self._effects.sum(_options(waiting.plan)) + waiting.noise


def _options(plan: Plan) -> Mapping[str, object]:
    return {RULE: plan.rule, **plan.choices}
