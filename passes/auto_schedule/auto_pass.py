"""The pass `auto-schedule`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.backends import facts_of
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import RuleOutcome, foreign_failures, report, schedule_module
from mlcc.passes.auto_schedule.version_sizes import VersionSizes, versioned_functions
from mlcc.passes.lowering.versions import function_facts
from mlcc.passes.manage.manager import Observer, Pass, PassContext
from mlcc.relax.origins import kernel_origins


@dataclass(frozen=True)
class AutoSchedule(Pass):
    """Schedule TIR functions by rules for the target: vectors, caches, cores; threads, shared memory.

    Functions that are scheduled already, or have the attribute tir.is_scheduled, are left alone. Nothing is measured.
    `mlcc schedule --auto` prints the schedules as a script; `mlcc passes --why-schedule` explains them.

    Before:  for i in range(1024): ...
    After:   for i_0 in T.parallel(4): for i_1, i_2 in T.grid(16, 16): ...   # i_2 vectorized; tir.is_scheduled
    """

    name: ClassVar[str] = "auto-schedule"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        facts_of(ctx.target)  # raises an error for a target without rules, even if there are no functions
        scheduled = module.copy()
        for outcome in schedule_module(module, lambda func: function_facts(func, ctx.target)):
            ctx.warned.extend(foreign_failures(outcome))
            if outcome.func is not None:
                scheduled.update_func(outcome.name, outcome.func)
        return scheduled


@dataclass
class WhySchedule(Observer):
    """Write, before every `auto-schedule` of a pipeline, how each function is scheduled and why.

    That includes the functions that `version-sizes` has scheduled before.
    """

    write: Callable[[str], None]
    target: Target
    _versioned: dict[str, RuleOutcome] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        facts_of(self.target)

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if isinstance(current, VersionSizes):
            self._versioned |= {outcome.name: outcome for outcome in versioned_functions(module, self.target)}
        elif isinstance(current, AutoSchedule):
            outcomes = schedule_module(module, lambda func: function_facts(func, self.target))
            outcomes = [outcome if outcome.func else self._versioned.get(outcome.name, outcome) for outcome in outcomes]
            self.write(report(outcomes, kernel_origins(module)))
            self._versioned.clear()
