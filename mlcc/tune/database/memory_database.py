"""A database that ends with the process."""

from __future__ import annotations

import math

from mlcc.ir.equal import structural_equal
from mlcc.ir.hashing import structural_hash
from mlcc.ir.module import IRModule
from mlcc.tune.database.database import Database, TuningRecord, Workload


class MemoryDatabase(Database):
    """Records in memory. TVM: `MemoryDatabase`. Modules are compared structurally (`module_equality="structural"`).

    Raises ValueError for other ways to compare.
    """

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__()
        if module_equality != "structural":
            raise ValueError(f"modules are compared by structure, not by {module_equality!r}")
        self._workloads: dict[int, list[Workload]] = {}
        self._records: list[TuningRecord] = []

    def has_workload(self, mod: IRModule) -> bool:
        return self._find(mod) is not None

    def commit_workload(self, mod: IRModule) -> Workload:
        workload = self._find(mod)
        if workload is None:
            workload = Workload(mod)
            self._workloads.setdefault(workload.key, []).append(workload)
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self._records.append(record)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        own = [r for r in self._records if r.workload is workload and math.isfinite(r.seconds)]
        return sorted(own, key=lambda record: record.rank)[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._records)

    def _find(self, mod: IRModule) -> Workload | None:
        alike = self._workloads.get(structural_hash(mod), ())
        return next((w for w in alike if structural_equal(w.mod, mod)), None)
