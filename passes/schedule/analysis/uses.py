"""Index of the buffers and variables that statements use, which lets a step skip the other statements."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlcc.ir import tir
from mlcc.ir.node import children, walk
from mlcc.passes.schedule.tree import Tree


class Uses(NamedTuple):
    """The buffers and variables that a statement uses.

    `objects`: all of them, those in the shapes of buffers too. `pointers`: variables outside of buffers, and the
    buffers that blocks match others to.
    """

    objects: set[tir.Buffer | tir.Var]
    pointers: set[tir.Buffer | tir.Var]


def uses(tree: Tree, stmt: tir.Stmt) -> Uses:
    """The buffers and variables of a statement."""
    return tree.memoized(("uses", stmt), lambda: _uses(stmt))  # type: ignore[no-any-return]


def _uses(stmt: tir.Stmt) -> Uses:
    collected = Uses(set(), set())
    stack: list[Any] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Var):
            collected.pointers.add(node)
        elif isinstance(node, tir.Buffer):
            if node not in collected.objects:
                collected.objects.update(n for n in walk(node) if isinstance(n, (tir.Buffer, tir.Var)))
        else:
            if isinstance(node, tir.Block):
                collected.pointers.update(m.source.buffer for m in node.match_buffers)
            stack += children(node)
    collected.objects.update(collected.pointers)
    return collected
