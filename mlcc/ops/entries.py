"""The entries of all operators, by name: the tables `OPS` of the family files.

A family is imported when one of its operators is first asked for; `family_index` says which family that is.
"""

from __future__ import annotations

import importlib
from typing import Any

from mlcc.ops.family_index import FAMILY_OF

FAMILIES = (
    "unary", "binary", "create", "manipulate", "join", "index", "reduce", "linalg", "nn", "norm", "pad", "conv",
    "conv_transpose", "pool", "attention", "loss", "resize", "sample", "region", "detection", "quantize",
    "packed", "grad", "builtin", "gather", "scatter", "scatter_reduce", "scan", "sort", "einsum", "grouped", "sets",
    "layout", "ccl", "recurrent", "random", "signal",
)  # fmt: skip

_entries: dict[str, Any] = {}
_imported: set[str] = set()


def entries() -> dict[str, Any]:
    """The entries (`mlcc.ops.registry.Impl`) by the operators' names without prefix."""
    for family in FAMILIES:
        _import(family)
    return _entries


def entry(name: str) -> Any:
    """The entry of an operator, None for an unknown name. Imports only the operator's family if possible."""
    if name not in _entries and name in FAMILY_OF:
        _import(FAMILY_OF[name])
    return _entries[name] if name in _entries else entries().get(name)


def _import(family: str) -> None:
    if family not in _imported:
        _entries.update(importlib.import_module(f"mlcc.ops.{family}").OPS)
        _imported.add(family)
