"""Workloads: unscheduled functions, keyed by a structural hash without attributes irrelevant to a schedule."""

from __future__ import annotations

import functools

from mlcc.ir import tir
from mlcc.ir.hashing import structural_hash
from mlcc.ir.module import IRModule
from mlcc.ir.versions import VERSIONS

MAIN = "main"  # what the function of a workload is called in its module, its text and the scripts of its records
_APART = ("global_symbol", "op_pattern", VERSIONS)


def without_module_attrs(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return a function without the attributes that name it in its module."""
    for name in _APART:
        if name in func.attrs:
            func = func.without_attr(name)
    return func


def with_module_attrs_of(func: tir.PrimFunc, other: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` with the attributes that name `other` in its module."""
    kept = {name: other.attrs[name] for name in _APART if name in other.attrs}
    return without_module_attrs(func).with_attr(kept) if kept else without_module_attrs(func)


def module_of(func: tir.PrimFunc) -> IRModule:
    """Return the module on which scripts of records run: the function alone, as `main`."""
    return IRModule({MAIN: without_module_attrs(func)})


def key_of(func: tir.PrimFunc, constants: frozenset[int] = frozenset()) -> str:
    """Return 32 hexadecimal digits: the structural hash of a function and of its constant parameters."""
    if not constants:
        return candidate_key(func)
    return f"{structural_hash((without_module_attrs(func), tuple(sorted(constants)))):032x}"


def candidate_key(func: tir.PrimFunc) -> str:
    """Return the key of a scheduled function among those of its workload. The latest keys are memoized."""
    return _hashed(without_module_attrs(func))


@functools.lru_cache(maxsize=1024)
def _hashed(func: tir.PrimFunc) -> str:
    return f"{structural_hash(func):032x}"
