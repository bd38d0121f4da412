"""Search for schedules: measure ways to schedule a kernel, and keep what is faster than the rules' own.

The names and arguments are those of TVM's `meta_schedule`: `from mlcc import tune as ms`.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Mutator": "mlcc.tune.mutator",
    "Postproc": "mlcc.tune.postproc",
    "ScheduleRule": "mlcc.tune.schedule_rule",
    "SpaceGenerator": "mlcc.tune.space_generator",
    "TuneContext": "mlcc.tune.tune_context",
    "tune": "mlcc.tune.engine",
}
_MODULES = ("mutator", "postproc", "schedule_rule", "space_generator", "tune_context")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"mlcc.tune.{name}")
    raise AttributeError(f"module 'mlcc.tune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_NAMES, *_MODULES])
