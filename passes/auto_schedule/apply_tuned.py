"""The pass `apply-tuned`: schedules from the database of `mlcc tune`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import mlcc
from mlcc.errors import CompileError, Diagnostic, Severity, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.device import measured_on
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import constant_parameters
from mlcc.passes.auto_schedule.eligibility import MADE_BY, SCHEDULED, why_ineligible
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.schedule.mls.run import apply_schedule
from mlcc.records.choice import MIN_GAIN, choose
from mlcc.records.database import Database
from mlcc.records.record import Record, Setting
from mlcc.records.workload import MAIN, key_of, module_of, with_module_attrs_of
from mlcc.runtime.threads import get_num_threads


@dataclass(frozen=True)
class ApplyTuned(Pass):
    """Schedule TIR functions by the tuning records of a database, where these are faster than the rules.

    A record applies to a function with the same loops, and to the same target, machine, number of threads, level and
    version of mlcc, if it is certain to gain at least `min-gain`. Functions without a record are left to
    `auto-schedule`. `threads=0` stands for the default of `mlcc run`.

    Before:  for i in range(1024): ...
    After:   for i_0 in T.parallel(4): ...   # mlcc.made_by = "record 1f0c: 0.86 of ...", tir.is_scheduled
    """

    name: ClassVar[str] = "apply-tuned"
    needs_blocks: ClassVar[bool] = True
    database: str = field(metadata={"file": True})
    min_gain: float = MIN_GAIN
    threads: int = 0
    level: int = 2

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        setting = setting_for(ctx.target, self.threads or get_num_threads(), self.level)
        known = constant_parameters(module)
        scheduled = module.copy()
        applied, elsewhere = 0, {}
        with Database(ctx.path(self.database), reads_only=True) as database:
            for name, func in module.functions.items():
                if not isinstance(func, tir.PrimFunc) or why_ineligible(func) is not None:
                    continue
                choice = choose(database, key_of(func, known.get(name, frozenset())), setting, self.min_gain)
                if choice.record is None:
                    if choice.differs:
                        elsewhere[name] = choice.why
                    continue
                try:
                    scheduled.update_func(name, replay_record(func, choice.record))
                    applied += 1
                except CompileError as exc:
                    ctx.warned.append(_record_error(name, exc))
        if elsewhere and not applied:
            name, why = next(iter(elsewhere.items()))
            ctx.warned.append(_warning("W1101", f"no record of {self.database} matches this build: {name}: {why}"))
        return scheduled


def setting_for(target: Target, threads: int, level: int) -> Setting:
    """Return the conditions that records of builds for a target must have been measured under."""
    thread_count = 1 if target.kind == "cuda" else threads
    return Setting(measured_on(target), str(target), thread_count, level, mlcc.__version__)


def replay_record(func: tir.PrimFunc, record: Record) -> tir.PrimFunc:
    """Return a function scheduled as a record says. Raise CompileError if the script does not fit the function."""
    replayed = apply_schedule(module_of(func), record.trace, f"<record {record.candidate[:8]}>")[MAIN]
    assert isinstance(replayed, tir.PrimFunc)
    scheduled: tir.PrimFunc = with_module_attrs_of(replayed, func).with_attr(
        {SCHEDULED: True, MADE_BY: describe_record(record)}
    )
    return scheduled


def describe_record(record: Record) -> str:
    """Describe a record in a few words: its name, gain and date."""
    bound = f" (at most {record.bound:.2f})" if record.bound is not None else ""
    ratio = f"{record.ratio:.2f} of the rules' time{bound}" if record.ratio is not None else "not measured"
    return f"apply-tuned: record {record.candidate[:8]}, {ratio}, {record.made[:10]}"


def _record_error(name: str, exc: CompileError) -> Diagnostic:
    first = exc.diagnostics[0]
    return _warning("W1102", f"the record of {name} does not apply to it: {first.code}: {first.message}")


def _warning(code: str, message: str) -> Diagnostic:
    diagnostic = error(code, message, help="the rules schedule it instead; run `mlcc tune` for new records")
    return Diagnostic(code=diagnostic.code, message=diagnostic.message, help=diagnostic.help, severity=Severity.WARNING)
