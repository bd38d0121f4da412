"""The roofline model of a kernel: the minimum time of its arithmetic and memory traffic on a machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlcc.ir import tir
from mlcc.ir.intrinsics import name_of
from mlcc.ir.node import children, find, walk
from mlcc.passes.lowering.work_estimate import extent_at
from mlcc.tune.contracts import Task
from mlcc.tune.peak_rates import PeakRates

_ARITHMETIC = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min, tir.Call)
_FREE = ("if_then_else", "assume_number", "allow_reciprocal")  # calls that compute nothing


def least_seconds(task: Task, floors: PeakRates) -> float:
    """Return the roofline time of a call: the larger of its times for arithmetic and compulsory memory traffic.

    0 if the trip counts are unknown.
    """
    sizes = _sizes(task)
    work = operations(task.func, sizes)
    return 0.0 if work is None else max(floors.seconds(work, traffic(task.func, sizes)))


def operations(func: tir.PrimFunc, sizes: Mapping[tir.Var, int] | None = None) -> int | None:
    """Count the floating-point operations of a call (a multiply-add is two); None if trip counts are unknown."""
    stores = _stores(func, sizes or {})
    return None if stores is None else sum(times * _arithmetic(store.value) for store, times in stores)


def _stores(func: tir.PrimFunc, sizes: Mapping[tir.Var, int]) -> list[tuple[tir.BufferStore, int]] | None:
    """Return the stores of a function with their trip counts in a call; None if one is unknown."""
    stores = []
    stack: list[tuple[Any, int]] = [(stmt, 1) for stmt in func.body]
    while stack:
        node, times = stack.pop()
        match node:
            case tir.For(extent=extent, body=body):
                trips = extent_at(extent, sizes)
                if trips is None:
                    return None
                stack += [(stmt, times * max(trips, 0)) for stmt in body]
            case tir.While():
                return None
            case tir.Block(body=body):
                stack += [(stmt, times) for stmt in body]  # inits of reductions are negligible
            case tir.BufferStore():
                stores.append((node, times))
            case tir.Expr() | tir.Buffer():
                pass
            case _:
                stack += [(child, times) for child in children(node)]
    return stores


def traffic(func: tir.PrimFunc, sizes: Mapping[tir.Var, int] | None = None) -> int:
    """Return the compulsory memory traffic of a call in bytes: each argument once.

    An argument larger than the call's accesses, such as a table with a few rows looked up, counts with the accesses.
    """
    accesses = _accesses(func, sizes or {})
    total = 0
    for buffer in func.buffers:
        shape = [extent_at(n, sizes or {}) for n in buffer.shape] if buffer is not None else []
        if buffer is not None and None not in shape:
            size = math.prod(n for n in shape if n is not None)
            total += buffer.dtype.bytes * (size if accesses is None else min(size, accesses[buffer]))
    return total


def _accesses(func: tir.PrimFunc, sizes: Mapping[tir.Var, int]) -> Counter[tir.Buffer] | None:
    """Count the elements of each buffer that a call loads and stores; None if unknown."""
    stores = _stores(func, sizes)
    if stores is None:
        return None
    counts: Counter[tir.Buffer] = Counter()
    for store, times in stores:
        for access in (store, *find(store, tir.BufferLoad)):
            counts[access.buffer] += times
    return counts


def _arithmetic(value: tir.Expr) -> int:
    """Count the floating-point operations in an expression."""
    return sum(node.dtype.is_float and name_of(node) not in _FREE for node in find(value, *_ARITHMETIC))


def _sizes(task: Task) -> dict[tir.Var, int]:
    shapes = tuple(n for b in task.func.buffers if b is not None for n in b.shape)
    return {v: task.sizes[v.name] for v in walk(shapes) if isinstance(v, tir.Var) and v.name in task.sizes}
