"""Every diagnostic code, with its explanation for `mlcc explain`; one module per range of codes.

E00 command line and files; E01 syntax; E02 names and scopes; E03 TensorIR; E04 relax; E05 passes; E06 schedules;
E07 targets; E08 run time; E09 constants and data; E10 importers; E11, W11 tuning; E114 measuring; W03 warnings on
TensorIR and relax; W05 on pipelines; W06 on schedules.
"""

from __future__ import annotations

import importlib

RANGES = {
    "E00": "files", "E01": "syntax", "E02": "names", "E03": "tensorir", "E04": "graph", "E05": "passes",
    "E06": "schedules", "E07": "targets", "E08": "calls", "E09": "data", "E10": "importers",
    "E11": "tuner", "E114": "measuring", "W11": "tuner", "W03": "warnings", "W05": "passes", "W06": "schedules",
}  # fmt: skip


def codes(prefix: str = "") -> dict[str, tuple[str, str]]:
    """All codes of the ranges that start with `prefix`: code -> (title, explanation in a few sentences)."""
    matching: dict[str, tuple[str, str]] = {}
    for start, module in RANGES.items():
        if start.startswith(prefix[:3]) or prefix.startswith(start):
            matching.update(importlib.import_module(f"mlcc.codes.{module}").CODES)
    return matching
