"""Unions of databases."""

from __future__ import annotations

from typing import NoReturn

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.tune.database.database import Database, TuningRecord, Workload


class UnionDatabase(Database):
    """A read-only union that returns the fastest record of all its databases. TVM: `UnionDatabase`."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def has_workload(self, mod: IRModule) -> bool:
        return any(database.has_workload(mod) for database in self.databases)

    def query_tuning_record(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        return min(self._records_of(mod, target, workload_name), key=lambda record: record.rank, default=None)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return [record for database in self.databases for record in database.get_all_tuning_records()]

    def commit_workload(self, mod: IRModule) -> NoReturn:
        raise TypeError("a union of databases is only asked: commit to one of them")

    def commit_tuning_record(self, record: TuningRecord) -> NoReturn:
        raise TypeError("a union of databases is only asked: commit to one of them")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        own = [d for d in self.databases if d.has_workload(workload.mod)]
        records = [record for d in own for record in d.get_top_k(d.commit_workload(workload.mod), top_k)]
        return sorted(records, key=lambda record: record.rank)[:top_k]

    def _records_of(self, mod: IRModule | tir.PrimFunc, target: Target | str, name: str) -> list[TuningRecord]:
        asked = [database.query_tuning_record(mod, target, name) for database in self.databases]
        return [record for record in asked if record is not None]


class OrderedUnionDatabase(UnionDatabase):
    """A read-only union that returns the record of the first database that has one. TVM: `OrderedUnionDatabase`."""

    def query_tuning_record(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        return next(iter(self._records_of(mod, target, workload_name)), None)
