"""User-defined rules, which blocks name in an annotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedule_rule.analysis import annotation
from mlcc.tune.schedule_rule.rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

CustomRule = Callable[[Schedule, BlockRV], list[Schedule]]
_rules: dict[tuple[str, str], CustomRule] = {}


def register_custom_rule(name: str, key: str) -> Callable[[CustomRule], CustomRule]:
    """Return a decorator that registers a function as the rule `name` for targets with a key (`cpu`, `cuda`, `gpu`)."""

    def register(rule: CustomRule) -> CustomRule:
        _rules[name, key] = rule
        return rule

    return register


class ApplyCustomRule(ScheduleRule):
    """Applies the rule that a block names in its annotation `schedule_rule`. TVM: `ApplyCustomRule`.

    Other rules skip such blocks. An unknown name removes the annotation, "None" disables every rule.
    """

    def __init__(self) -> None:
        self._keys: tuple[str, ...] = ()

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._keys = context.facts.keys

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        name = annotation(sch, block, "schedule_rule")
        if name is None or name == "None":
            return [sch]
        for key in self._keys:
            if (str(name), key) in _rules:
                return _rules[str(name), key](sch, block)
        sch.unannotate(block, "schedule_rule")
        return [sch]
