"""Schedules of a kernel from elsewhere: from other machines and builds, earlier versions of mlcc, and TVM."""

from __future__ import annotations

from mlcc.errors import CompileError, Source
from mlcc.ir import tir
from mlcc.machine.device import ANALYSIS
from mlcc.passes.schedule.mls.run import run_script
from mlcc.passes.schedule.schedule import Schedule
from mlcc.records.choice import MIN_GAIN
from mlcc.records.database import Database
from mlcc.records.record import FINAL, TVM, Record
from mlcc.records.workload import MAIN, module_of
from mlcc.tune.contracts import Candidate, Task
from mlcc.tune.recorded import setting_of

MOST = 8


def earlier_schedules(database: Database, task: Task, device: str | None = None) -> list[Candidate]:
    """The best schedules that records under other settings have for a task that is measured on a device, by default
    this one, as candidates for it. Those that do not apply any more are left out."""
    own = setting_of(task, device)
    others = [r for r in database.records(task.key) if r.setting != own and _is_good(r)]
    candidates: dict[str, Candidate] = {}
    for record in sorted(others, key=_order):
        candidate = _applied(task, record) if len(candidates) < MOST and record.candidate not in candidates else None
        if candidate is not None:
            candidates[record.candidate] = candidate
    return list(candidates.values())


def _is_good(record: Record) -> bool:
    if record.setting.device == TVM:
        return True
    return record.stage == FINAL and record.bound is not None and record.bound < 1 - MIN_GAIN


def _order(record: Record) -> tuple[bool, float, float, str]:
    """Return the sort key of a record: measured before analysed, then by bound (none for TVM's), then fastest first."""
    return record.setting.device == ANALYSIS, record.bound or 1.0, min(record.seconds, default=1.0), record.candidate


def _applied(task: Task, record: Record) -> Candidate | None:
    """The candidate of a record; None if its steps cannot be done."""
    sch = Schedule(module_of(task.func), seed=0)
    try:
        run_script(sch, Source("<record>", record.trace))
    except CompileError:
        return None
    func = sch.mod[MAIN]
    return Candidate(func, sch.trace, (("record", record.candidate),)) if isinstance(func, tir.PrimFunc) else None
