"""Search for schedules: measure candidates for each kernel and keep those that are faster than the rules' schedule.

The names and arguments are those of TVM's `meta_schedule`: `from mlcc import tune as ms`.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Builder": "mlcc.tune.builder",
    "CostModel": "mlcc.tune.cost_model",
    "Database": "mlcc.tune.database",
    "ExtractedTask": "mlcc.tune.relax_integration",
    "MeasureCallback": "mlcc.tune.measure_callback",
    "MeasureCandidate": "mlcc.tune.search_strategy",
    "Mutator": "mlcc.tune.mutator",
    "Postproc": "mlcc.tune.postproc",
    "Profiler": "mlcc.tune.profiler",
    "Runner": "mlcc.tune.runner",
    "ScheduleRule": "mlcc.tune.schedule_rule",
    "SearchStrategy": "mlcc.tune.search_strategy",
    "SpaceGenerator": "mlcc.tune.space_generator",
    "TaskScheduler": "mlcc.tune.task_scheduler",
    "TuneConfig": "mlcc.tune.tune",
    "TuneContext": "mlcc.tune.tune_context",
    "compile_relax": "mlcc.tune.relax_integration",
    "compile_tir": "mlcc.tune.tir_integration",
    "extract_tasks": "mlcc.tune.relax_integration",
    "tune_relax": "mlcc.tune.relax_integration",
    "tune_tasks": "mlcc.tune.tune",
    "tune_tir": "mlcc.tune.tir_integration",
}
_MODULES = (
    "arg_info", "builder", "cost_model", "database", "measure_callback", "mutator", "postproc", "relax_integration",
    "runner", "schedule_rule", "search_strategy", "space_generator", "task_scheduler", "tir_integration",
    "tune_context",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"mlcc.tune.{name}")
    raise AttributeError(f"module 'mlcc.tune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_NAMES, *_MODULES])
