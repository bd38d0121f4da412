"""The schedule step `schedule_by_rule`: apply a rule with given choices. Plans written as scripts end with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import constant_parameters
from mlcc.passes.auto_schedule.plans import Plan, Plans
from mlcc.passes.lowering.versions import function_facts
from mlcc.passes.schedule.handles import ExprRV
from mlcc.passes.schedule.registry import describe

if TYPE_CHECKING:
    from mlcc.passes.schedule.schedule import Schedule


def schedule_by_rule(
    sch: Schedule, name: str, rule: str | None, choices: Mapping[str, Any] | None, target: Target | str
) -> None:
    """Schedule the unscheduled function `name` by a rule and replay the steps on `sch`.

    See `Schedule.schedule_by_rule`. Raise CompileError (E0698) if no rule takes the function.
    """
    func = sch.state.func(name)
    facts = function_facts(func, Target.parse(target))
    plans = Plans(func, facts, constant_parameters(sch.mod).get(name, frozenset()), name)
    planned = plans.default if rule is None else plans.apply(Plan(rule, _integer_choices(sch, choices or {})))
    if planned is None:
        raise CompileError(error("E0698", f"no rule takes `{name}`"))
    assert planned.answer.trace is not None
    planned.answer.trace.apply_to_schedule(sch)


def _integer_choices(sch: Schedule, choices: Mapping[str, Any]) -> dict[str, int]:
    """Return choices as integers, sampled ones by their decisions."""
    numbers = {}
    for name, value in choices.items():
        number = sch.get(value) if isinstance(value, ExprRV) else value
        if not isinstance(name, str) or not isinstance(number, int):
            raise CompileError(error("E0613", f"a choice is a name and an integer, not {describe(value)}"))
        numbers[name] = number
    return numbers
