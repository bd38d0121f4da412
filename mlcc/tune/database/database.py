"""The base of databases: workloads, and measurements of their schedules."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Self

from mlcc.ir import tir
from mlcc.ir.hashing import structural_hash
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Trace
from mlcc.tune.arg_info import ArgInfo
from mlcc.tune.tune_context import normalize_mod

_current: ContextVar[Database | None] = ContextVar("tuning database", default=None)


@dataclass(eq=False)
class Workload:
    """A module that is tuned; `key` is its structural hash. TVM: `Workload`."""

    mod: IRModule
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = structural_hash(self.mod)


@dataclass(eq=False)
class TuningRecord:
    """A schedule of a workload and its times; `run_secs` is None if it failed. TVM: `TuningRecord`.

    Times predicted by analysis (`by_analysis`) rank after all measured ones.
    """

    trace: Trace
    workload: Workload
    run_secs: Sequence[float] | None = None
    target: Target | None = None
    args_info: Sequence[ArgInfo] | None = None
    by_analysis: bool = False

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of records, best first."""
        return self.by_analysis, self.seconds

    @property
    def seconds(self) -> float:
        """The median time; infinity for a failure."""
        good = [s for s in self.run_secs or () if math.isfinite(s)]
        return statistics.median(good) if good else math.inf

    def schedule(self) -> Schedule:
        """Apply the trace to the workload. Raises CompileError if it does not apply."""
        sch = Schedule(self.workload.mod, seed=1)
        self.trace.apply_to_schedule(sch)
        return sch


class Database:
    """A collection of records by workload. TVM: `Database`.

    A context manager: within it, `Database.current()` returns this database.
    """

    def __init__(self) -> None:
        self._tokens: list[Token[Database | None]] = []

    def has_workload(self, mod: IRModule) -> bool:
        """Return True if the database has a structurally equal workload."""
        raise NotImplementedError

    def commit_workload(self, mod: IRModule) -> Workload:
        """Return the workload of a module; add it if it is missing."""
        raise NotImplementedError

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        raise NotImplementedError

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """Return the fastest records of a workload, without failures."""
        raise NotImplementedError

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records, in the order of insertion."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    # ------------------------------------------------------------ queries

    def query_tuning_record(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        """Return the fastest record of a module for the target's kind, None if there is none."""
        mod = normalize_mod(mod)
        if not self.has_workload(mod):
            return None
        kind = Target.parse(target).kind
        records = self.get_top_k(self.commit_workload(mod), 1 << 30)
        return next((r for r in records if r.target is None or r.target.kind == kind), None)

    def query_schedule(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> Schedule | None:
        """Return a schedule with the trace of the fastest record applied, None if there is none."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        sch = Schedule(normalize_mod(mod), seed=1)
        record.trace.apply_to_schedule(sch)
        return sch

    def query_ir_module(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, workload_name: str = "main"
    ) -> IRModule | None:
        """Return the module scheduled by the fastest record, None if there is none."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(
        self, mod: IRModule | tir.PrimFunc, target: Target | str, *, workload_name: str = "main",
        kind: str = "schedule",
    ) -> Any:  # fmt: skip
        """Return the best `schedule`, `record` or `ir_module`. Raises ValueError for other kinds."""
        queries: dict[str, Callable[..., Any]] = {
            "schedule": self.query_schedule, "record": self.query_tuning_record, "ir_module": self.query_ir_module,
        }  # fmt: skip
        if kind not in queries:
            raise ValueError(f"`kind` must be {', '.join(queries)}, not {kind!r}")
        return queries[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Copy the fastest record of each workload to another database."""
        seen: dict[int, Workload] = {}
        for record in self.get_all_tuning_records():
            seen.setdefault(record.workload.key, record.workload)
        for workload in seen.values():
            for best in self.get_top_k(workload, 1):
                own = destination.commit_workload(workload.mod)
                destination.commit_tuning_record(
                    TuningRecord(best.trace, own, best.run_secs, best.target, best.args_info, best.by_analysis)
                )

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    @staticmethod
    def current() -> Database | None:
        """Return the database of the innermost enclosing `with`, None outside."""
        return _current.get()

    @staticmethod
    def create(kind: Any = "json", *args: Any, **kwargs: Any) -> Database:
        """Create a database by name: `json`, `memory`, `union`, `ordered_union`; or one of a schedule function.

        Raises ValueError for other names.
        """
        from mlcc.tune.database import (
            JSONDatabase,
            MemoryDatabase,
            OrderedUnionDatabase,
            ScheduleFnDatabase,
            UnionDatabase,
        )

        named: dict[str, Callable[..., Database]] = {
            "json": JSONDatabase, "memory": MemoryDatabase, "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }  # fmt: skip
        if isinstance(kind, Database):
            return kind
        if callable(kind):
            return ScheduleFnDatabase(kind, *args, **kwargs)
        if kind not in named:
            raise ValueError(f"`database` must be {', '.join(named)} or a function, not {kind!r}")
        return named[kind](*args, **kwargs)
