"""The pass `auto-schedule`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from mlcc import plugins
from mlcc.backends import facts_of
from mlcc.errors import Diagnostic, Severity
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import RuleOutcome, report, schedule_module
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
            ctx.warned.extend(_foreign_failures(outcome))
            if outcome.func is not None:
                scheduled.update_func(outcome.name, outcome.func)
        return scheduled


def _foreign_failures(outcome: RuleOutcome) -> list[Diagnostic]:
    """Return a warning (W0503) for a rule from outside mlcc that failed because of a bug."""
    found = [] if outcome.broken is None else [plugins.failure(outcome.broken, f"a rule failed on `{outcome.name}`")]
    help = "the kernel went to the next rule; `--why-schedule` shows to which"
    return [
        replace(d, code="W0503", severity=Severity.WARNING, help=help)
        for exc in found
        if exc is not None
        for d in exc.diagnostics
    ]


@dataclass
class WhySchedule(Observer):
    """Write, before every `auto-schedule` of a pipeline, how it will schedule each function and why."""

    write: Callable[[str], None]
    target: Target

    def __post_init__(self) -> None:
        facts_of(self.target)

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if isinstance(current, AutoSchedule):
            outcomes = schedule_module(module, lambda func: function_facts(func, self.target))
            self.write(report(outcomes, kernel_origins(module)))
