"""Databases of tuning records, by TVM's names."""

from mlcc.tune.database.database import Database, TuningRecord, Workload
from mlcc.tune.database.json_database import JSONDatabase
from mlcc.tune.database.memory_database import MemoryDatabase
from mlcc.tune.database.schedule_fn_database import ScheduleFnDatabase
from mlcc.tune.database.union_database import OrderedUnionDatabase, UnionDatabase

PyDatabase = Database  # TVM's base of databases that are written in Python

__all__ = [
    "Database", "JSONDatabase", "MemoryDatabase", "OrderedUnionDatabase", "PyDatabase", "ScheduleFnDatabase",
    "TuningRecord", "UnionDatabase", "Workload",
]  # fmt: skip
