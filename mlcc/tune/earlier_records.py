"""Transfer of schedules from other machines, builds, versions of mlcc, and TVM."""

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
from mlcc.tune.recorded_runner import task_setting

MAX_CANDIDATES = 8


def earlier_schedules(database: Database, task: Task, device: str | None = None) -> list[Candidate]:
    """Return candidates for a task, measured on a device (by default this one), from the best records under other
    settings. Records that no longer apply are skipped."""
    own = task_setting(task, device)
    others = [r for r in database.records(task.key) if r.setting != own and _is_good(r)]
    candidates: dict[str, Candidate] = {}
    for record in sorted(others, key=_sort_key):
        candidate = (
            _apply_record(task, record)
            if len(candidates) < MAX_CANDIDATES and record.candidate not in candidates
            else None
        )
        if candidate is not None:
            candidates[record.candidate] = candidate
    return list(candidates.values())


def _is_good(record: Record) -> bool:
    if record.setting.device == TVM:
        return True
    return record.stage == FINAL and record.bound is not None and record.bound < 1 - MIN_GAIN


def _sort_key(record: Record) -> tuple[bool, float, float, str]:
    """Return the sort key of a record: measured before analysed, then by bound (none for TVM's), then fastest first."""
    return record.setting.device == ANALYSIS, record.bound or 1.0, min(record.seconds, default=1.0), record.candidate


def _apply_record(task: Task, record: Record) -> Candidate | None:
    """Replay a record. Return the candidate, None if its steps fail."""
    sch = Schedule(module_of(task.func), seed=0)
    try:
        run_script(sch, Source("<record>", record.trace))
    except CompileError:
        return None
    func = sch.mod[MAIN]
    return Candidate(func, sch.trace, (("record", record.candidate),)) if isinstance(func, tir.PrimFunc) else None
