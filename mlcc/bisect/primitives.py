"""The schedule steps of a pass, one after the other: the statements of a script, or of the trace of a rule."""

from __future__ import annotations

import os
from collections.abc import Collection

from mlcc.errors import MlccError, Source, Span
from mlcc.ir.module import IRModule
from mlcc.passes.auto_schedule.apply_rules import schedule_module
from mlcc.passes.auto_schedule.auto_pass import AutoSchedule
from mlcc.passes.lowering.versions import function_facts
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.schedule.mls.run import run_script
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.schedule_pass import ApplyScript

Steps = list[tuple[str, IRModule]]


def schedule_steps(current: Pass, before: IRModule, ctx: PassContext, kernels: Collection[str]) -> Steps:
    """Return the statements by which a pass schedules a module, each with the module after it.

    Those of a rule are its steps on `kernels`. No statements for passes that do not schedule.
    """
    if isinstance(current, ApplyScript):
        from mlcc.files import read_bytes
        from mlcc.grammar.syntax.reader import read_source

        path = ctx.path(current.script)
        return _run(read_source(read_bytes(path), path), before, os.path.dirname(path) or ".", current.seed)
    if not isinstance(current, AutoSchedule):
        return []
    lines: list[str] = []
    for outcome in schedule_module(before, lambda func: function_facts(func, ctx.target)):
        if outcome.name in kernels and outcome.trace is not None:
            lines += outcome.trace.as_python(defaults=False)
    try:
        return _run(Source("auto-schedule", "\n".join(lines) + "\n"), before, ".", 0) if lines else []
    except MlccError:  # rules may prepare a function before they schedule it
        return []


def _run(source: Source, module: IRModule, folder: str, seed: int) -> Steps:
    schedule = Schedule(module, seed=seed)
    steps: Steps = []

    def after(span: Span) -> None:
        steps.append((source.text[span.start : span.end].strip(), schedule.mod))

    run_script(schedule, source, folder=folder, after=after)
    return steps
