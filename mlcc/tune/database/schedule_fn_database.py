"""A database whose schedules come from a function."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.database.database import TuningRecord, Workload
from mlcc.tune.database.memory_database import MemoryDatabase
from mlcc.tune.tune_context import normalize_mod


class ScheduleFnDatabase(MemoryDatabase):
    """Schedules by a function, which returns False if it has no schedule. TVM: `ScheduleFnDatabase`."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def query_tuning_record(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        sch = Schedule(normalize_mod(mod), seed=1)
        if not self.schedule_fn(sch):
            return None
        return TuningRecord(sch.trace, Workload(normalize_mod(mod)), None, Target.parse(target))
