"""The entries of all operators, by name: the tables `OPS` of the family files.

A family is imported when one of its operators is first asked for; `family_index` says which family that is.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from mlcc import plugins
from mlcc.errors import CompileError
from mlcc.ops.family_index import FAMILY_OF

FAMILIES = (
    "unary", "binary", "create", "manipulate", "join", "index", "reduce", "linalg", "nn", "norm", "pad", "conv",
    "conv_transpose", "pool", "attention", "loss", "resize", "sample", "region", "detection", "quantize",
    "packed", "grad", "builtin", "gather", "scatter", "scatter_reduce", "scan", "sort", "einsum", "grouped", "sets",
    "layout", "ccl", "recurrent", "random", "signal",
)  # fmt: skip

_entries: dict[str, Any] = {}
_imported: set[str] = set()
_loading: set[str] = set()
_failed: dict[str, CompileError] = {}


def entries() -> dict[str, Any]:
    """The entries (`mlcc.ops.registry.Impl`) by the operators' names without prefix."""
    own_entries()
    for name in plugins.installed(plugins.OPERATORS):
        if name not in _entries:
            with contextlib.suppress(CompileError):  # it is reported when the operator is named
                _installed(name)
    return _entries


def own_entries() -> dict[str, Any]:
    """The entries without those of installed packages that nothing has named yet."""
    for family in FAMILIES:
        _import(family)
    return _entries


def entry(name: str) -> Any:
    """The entry of an operator, None for an unknown name. Imports only the operator's family if possible."""
    if name not in _entries and name in FAMILY_OF:
        _import(FAMILY_OF[name])
    return _entries[name] if name in _entries else own_entries().get(name) or _installed(name)


def _installed(name: str) -> Any:
    """The entry of an operator of an installed package, None if there is none. Raises CompileError E0552."""
    if name in _loading or name not in plugins.installed(plugins.OPERATORS):
        return None
    if name in _failed:
        raise _failed[name]

    def check(impl: Any) -> str | None:
        from mlcc.ops.registry import Impl
        from mlcc.ops.signature import stated_signature

        if not isinstance(impl, Impl):
            return "is no mlcc.ops.registry.Impl"
        try:
            stated_signature(impl)
        except ValueError as exc:
            return f"has wrong parameters: {exc}"
        return None

    _loading.add(name)  # its package may ask for operators itself
    try:
        _entries[name] = plugins.load_installed(plugins.OPERATORS, name, check)
    except CompileError as exc:
        _failed[name] = exc
        raise
    finally:
        _loading.discard(name)
    return _entries[name]


def _import(family: str) -> None:
    if family not in _imported:
        _entries.update(importlib.import_module(f"mlcc.ops.{family}").OPS)
        _imported.add(family)
