"""Plans: the choices of a rule for one function as data, and enumeration of the plans that exist."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice
from math import prod

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.auto_schedule.apply_rules import (
    Facts,
    RuleOutcome,
    apply_first_rule,
    constant_parameters,
    prepare_kernel,
)
from mlcc.passes.auto_schedule.eligibility import why_ineligible
from mlcc.passes.auto_schedule.rule import Rule
from mlcc.passes.auto_schedule.rules import rules_for
from mlcc.passes.auto_schedule.tuning_choices import RequestedChoices
from mlcc.records.workload import candidate_key

OTHER_RULE_COST = 2.0  # the expected relative time of a kernel under another rule than its default


@dataclass(frozen=True)
class Plan:
    """A rule, and its choices by name. Omitted choices are the rule's best guesses."""

    rule: str
    choices: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.rule}({', '.join(f'{name}={value}' for name, value in self.choices.items())})"


@dataclass(frozen=True, eq=False)
class AppliedPlan:
    """The function that results from a plan with all its choices.

    `predicted` is the expected time, relative to the rule's best guess (1.0).
    """

    plan: Plan
    answer: RuleOutcome
    predicted: float

    @property
    def func(self) -> tir.PrimFunc:
        assert self.answer.func is not None
        return self.answer.func

    @cached_property
    def key(self) -> str:
        """A key that is equal for plans with the same result."""
        return candidate_key(self.func)


class Plans:
    """The plans for an unscheduled function on a machine.

    `constants` are the parameters that every caller gives constants for. Work that plans have in common is done once.
    """

    def __init__(
        self, func: tir.PrimFunc, facts: Facts, constants: frozenset[int] = frozenset(), name: str = "main"
    ) -> None:
        """Raise CompileError (E0697) for a function that rules leave alone."""
        ineligible = why_ineligible(func)
        if ineligible is not None:
            raise CompileError(error("E0697", f"`{name}` has no plans: {ineligible}", func.span))
        self.name = name
        self.rules = rules_for(facts)
        self._start = prepare_kernel(func, name, facts, constants)
        self._start.sch.share_steps()

    @cached_property
    def default(self) -> AppliedPlan | None:
        """The plan that the pass `auto-schedule` follows; None if no rule takes the function."""
        return _applied_plan(apply_first_rule(self._start, self.rules), 1.0)

    def apply(self, plan: Plan) -> AppliedPlan:
        """Apply a plan to the function.

        Raise CompileError: E0698 for a rule that does not exist or does not apply to the function, E0699 for a choice
        that the rule does not offer.
        """
        rule = next((r for r in self.rules if r.name == plan.rule), None)
        if rule is None:
            names = ", ".join(r.name for r in self.rules)
            raise CompileError(
                error("E0698", f"there is no rule `{plan.rule}` for this target", help=f"rules: {names}")
            )
        planned = self._apply_rule(rule, plan.choices)
        if isinstance(planned, str):
            raise CompileError(error("E0698", f"rule `{plan.rule}` does not take `{self.name}`: {planned}"))
        offers = {offer.name: offer for offer in planned.answer.offers}
        for name, value in plan.choices.items():
            if name not in offers:
                listed = f"it chooses {', '.join(offers)}" if offers else "it makes no choices here"
                raise CompileError(error("E0699", f"rule `{plan.rule}` has no choice `{name}` here", help=listed))
            if offers[name].taken != value:
                listed = ", ".join(map(str, offers[name].options))
                message = f"rule `{plan.rule}` does not offer {name}={value} here"
                raise CompileError(error("E0699", message, help=f"`{name}` ({offers[name].about}) may be {listed}"))
        return planned

    def best_first(self) -> Iterator[AppliedPlan]:
        """Yield all plans, those of other rules too, by increasing expected time, the default first.

        Plans with the result of an earlier one are skipped.
        """
        seen_keys: set[str] = set()
        frontier = Frontier(self)
        while (planned := frontier.next()) is not None:
            if planned.key not in seen_keys:
                seen_keys.add(planned.key)
                yield planned

    def neighbours(self, planned: AppliedPlan) -> list[tuple[str, Plan, float]]:
        """Return the plans that change one choice of a plan: the name of the choice, the plan, and its expected time.

        Some of them only `repair` can apply: choices that depend on the changed one keep their values in one plan, and
        become the rule's best guesses in another.
        """
        by_plan: dict[str, tuple[str, Plan, float]] = {}
        offers = planned.answer.offers
        for number, offer in enumerate(offers):
            dependent_costs = {o.name: o.cost for o in offers[number + 1 :] if offer.group and o.group == offer.group}
            for option, cost in zip(offer.options, offer.costs, strict=True):
                if option == offer.taken:
                    continue
                choices = {**planned.plan.choices, offer.name: option}
                expected = planned.predicted * cost / offer.cost
                with_defaults = Plan(
                    planned.plan.rule, {name: v for name, v in choices.items() if name not in dependent_costs}
                )
                for plan, time in (
                    (with_defaults, expected / prod(dependent_costs.values())),
                    (Plan(planned.plan.rule, choices), expected),
                ):
                    by_plan.setdefault(str(plan), (offer.name, plan, time))
        return sorted(by_plan.values(), key=lambda neighbour: neighbour[2])

    def repair(self, plan: Plan) -> AppliedPlan | None:
        """Apply a plan, with best guesses in place of choices that are not offered; None if the rule does not apply."""
        rule = next((r for r in self.rules if r.name == plan.rule), None)
        planned = None if rule is None else self._apply_rule(rule, plan.choices)
        return planned if isinstance(planned, AppliedPlan) else None

    def rule_cost(self, rule: str) -> float:
        """Return the expected time of a rule's best guess, relative to the default rule."""
        return 1.0 if self.default is None or rule == self.default.plan.rule else OTHER_RULE_COST

    def _apply_rule(self, rule: Rule, choices: Mapping[str, int]) -> AppliedPlan | str:
        """Apply a rule with some choices; return the reason, as text, if it refuses."""
        answer = apply_first_rule(self._start, (rule,), RequestedChoices(choices, named=True))
        return _applied_plan(answer, self.rule_cost(rule.name)) or answer.passed[0][1]


def best_plans(module: IRModule, facts: Facts, count: int) -> dict[str, list[AppliedPlan]]:
    """Return the `count` plans with the least expected times for each TIR function."""
    known = constant_parameters(module)
    best: dict[str, list[AppliedPlan]] = {}
    for name, func in module.functions.items():
        if isinstance(func, tir.PrimFunc) and why_ineligible(func) is None:
            plans = Plans(func, facts, known.get(name, frozenset()), name)
            best[name] = list(islice(plans.best_first(), count))
    return best


class Frontier:
    """A priority queue of plans by expected time, for best-first enumeration; every plan is created once.

    A plan that has been applied shows its choices. Each option not taken, after the choices before it, is the prefix of
    further plans, of which only the cost of the prefix is known.
    """

    def __init__(self, plans: Plans) -> None:
        self.plans = plans
        self._numbers = count()
        self._queue: list[tuple[float, int, Plan]] = []
        rules = [rule.name for rule in plans.rules]
        default_rule = plans.default.plan.rule if plans.default is not None else ""
        for rule in sorted(rules, key=lambda name: name != default_rule):
            self._add(plans.rule_cost(rule), Plan(rule))

    def next(self) -> AppliedPlan | None:
        """Return the next plan that applies; None at the end."""
        while self._queue:
            _, _, prefix = heapq.heappop(self._queue)
            planned = self.plans.repair(prefix)
            if planned is not None:
                self._branch(planned, len(prefix.choices))
                return planned
        return None

    def _branch(self, applied: AppliedPlan, fixed_count: int) -> None:
        """Add the options not taken, from choice number `fixed_count` on."""
        chosen: dict[str, int] = {}
        cost = self.plans.rule_cost(applied.plan.rule)
        for number, offer in enumerate(applied.answer.offers):
            if number >= fixed_count:
                for option, option_cost in zip(offer.options, offer.costs, strict=True):
                    if option != offer.taken:
                        self._add(cost * option_cost, Plan(applied.plan.rule, {**chosen, offer.name: option}))
            chosen[offer.name] = offer.taken
            cost *= offer.cost

    def _add(self, cost: float, plan: Plan) -> None:
        heapq.heappush(self._queue, (cost, next(self._numbers), plan))


def _applied_plan(answer: RuleOutcome, cost: float) -> AppliedPlan | None:
    if answer.rule is None or answer.func is None:
        return None
    choices = {offer.name: offer.taken for offer in answer.offers}
    return AppliedPlan(Plan(answer.rule, choices), answer, cost * prod(offer.cost for offer in answer.offers))
