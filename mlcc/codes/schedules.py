"""Diagnostic codes: schedules, one module per family of primitives."""

from __future__ import annotations

import importlib

_FAMILIES = (
    "schedule_script", "schedule_handles", "schedule_loops", "schedule_stages", "schedule_reductions",
    "schedule_memory", "schedule_tensors", "schedule_sampling", "schedule_analysis", "schedule_rules",
)  # fmt: skip

CODES: dict[str, tuple[str, str]] = {}
for _family in _FAMILIES:
    CODES.update(importlib.import_module(f"mlcc.codes.{_family}").CODES)
