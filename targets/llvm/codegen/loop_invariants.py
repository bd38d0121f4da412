"""What stays the same while a loop runs: what need not be computed for each of its iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.node import find, walk

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def is_steady(e: Emitter, value: tir.Expr, least: int) -> bool:
    """Is a value, which must have no effects, the same in all iterations of the loop around, of which there are so many
    or an unknown number?

    This decides what is worth doing, nothing else: buffers are taken to be apart.
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
    """The variables that iterations bind, and the buffers that they store to."""
    found: set[tir.Var | tir.Buffer] = {loop.var}
    for node in find(loop.body, *_CHANGING):
        if isinstance(node, (tir.For, tir.Bind, tir.Let)):
            found.add(node.var)
        else:
            found.add(node.buffer)
    return frozenset(found)
