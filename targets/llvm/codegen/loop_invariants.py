"""Loop-invariant expressions: those that need not be computed in every iteration of a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.node import find, walk

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def is_loop_invariant(e: Emitter, value: tir.Expr, least: int) -> bool:
    """Return True if a value without side effects is invariant in the innermost loop, and the loop is long enough.

    It is if it runs at least `least` times, or an unknown number of times. For decisions about profit only: buffers are
    assumed not to alias.
    """
    if not e.around:
        return False
    loop = e.around[-1]
    times = tir.const_int(loop.extent)
    if times is not None and times < least:
        return False
    changed = e.changed.get(loop)
    if changed is None:
        changed = e.changed[loop] = _changed(loop)
    return not any(
        (isinstance(node, tir.Var) and node in changed) or (isinstance(node, tir.BufferLoad) and node.buffer in changed)
        for node in walk(value)
    )


_CHANGING = (tir.For, tir.Bind, tir.Let, tir.BufferStore, tir.AllocBuffer, tir.DeclBuffer)


def _changed(loop: tir.For) -> frozenset[tir.Var | tir.Buffer]:
    """Return the variables that a loop's iterations bind, and the buffers that they store to."""
    changed: set[tir.Var | tir.Buffer] = {loop.var}
    for node in find(loop.body, *_CHANGING):
        if isinstance(node, (tir.For, tir.Bind, tir.Let)):
            changed.add(node.var)
        else:
            changed.add(node.buffer)
    return frozenset(changed)
