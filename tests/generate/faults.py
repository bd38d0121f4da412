"""Faults planted into well-defined functions: one loop, index, store or kind of loop is changed."""

from __future__ import annotations

import random
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import map_children, replace, walk


def planted(func: tir.PrimFunc, seed: int) -> tir.PrimFunc:
    """The function with one change that may be a fault: it may also be harmless, or the same function."""
    rng = random.Random(seed)
    rule = rng.choice([_longer_loop, _shifted_index, _shifted_index, _lost_store, _shorter_loop])
    targets = [n for stmt in func.body for n in walk(stmt) if rule(n, rng) is not None]
    if not targets:
        return func
    return replace(func, body=tuple(_with(s, rng.choice(targets), rule, rng) for s in func.body))  # type: ignore[no-any-return]


def _with(node: Any, target: Any, rule: Any, rng: random.Random) -> Any:
    if node is target:
        return rule(node, rng)
    return map_children(node, lambda child: _with(child, target, rule, rng))


def _longer_loop(node: Any, rng: random.Random) -> Any:
    if isinstance(node, tir.For) and isinstance(node.extent, tir.IntImm):
        return replace(node, extent=c.const(node.extent.value + rng.randint(1, 3), node.extent.dtype))
    return None


def _shorter_loop(node: Any, rng: random.Random) -> Any:
    if isinstance(node, tir.For) and isinstance(node.extent, tir.IntImm) and node.extent.value > 1:
        return replace(node, extent=c.const(node.extent.value - 1, node.extent.dtype))
    return None


def _shifted_index(node: Any, rng: random.Random) -> Any:
    if isinstance(node, (tir.BufferLoad, tir.BufferStore)) and node.indices and node.buffer.name != "count":
        at = rng.randrange(len(node.indices))
        if node.indices[at].dtype.lanes > 1:
            return None
        made = [*node.indices]
        made[at] = c.add(made[at], rng.choice([-1, 1, 1, 2]))
        return replace(node, indices=tuple(made))
    return None


def _lost_store(node: Any, rng: random.Random) -> Any:
    kept = not isinstance(node, tir.BufferStore) or node.buffer.name == "count"  # else a loop would not end
    return None if kept else tir.Evaluate(c.const(0))
