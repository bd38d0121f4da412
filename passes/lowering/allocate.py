"""Turn allocated buffers of blocks into statements, each before the first statement that uses it.

A buffer stays in the body of the block that allocates it; `compact` moves it on from there. What is after its last use
is free for others; the memory plan of a target finds that by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mlcc.ir import tir
from mlcc.ir.node import EMPTY, Attrs, Node, children

Body = tuple[tir.Stmt, ...]


ALIGN = "buffer_dim_align"  # of an allocation: (axis, factor, offset), ...
PERMUTED = "permuted_layout"  # of an allocation in shared memory: what blocks ask of it, see `mlcc.passes.gpu.swizzle`


def place_allocations(
    buffers: tuple[tir.Buffer, ...], body: Body, notes: Mapping[tir.Var, Attrs] = MappingProxyType({})
) -> Body:
    """Return `body` (without blocks) with an allocation before the first use of each of `buffers` that it uses.

    `notes` are annotations of the allocations, by data variable.
    """
    if not buffers:
        return body
    pending = {b.data: b for b in buffers}
    statements: list[tir.Stmt] = []
    for stmt in body:
        if pending:
            used = _data_vars(stmt, pending)
            statements += [tir.AllocBuffer(b, notes.get(b.data, EMPTY), span=b.span) for b in buffers if b.data in used]
            for var in used:
                del pending[var]
        statements.append(stmt)
    return tuple(statements)


def _data_vars(stmt: tir.Stmt, among: dict[tir.Var, tir.Buffer]) -> set[tir.Var]:
    """Return the data variables that occur in a statement, directly or as the data of a buffer."""
    used: set[tir.Var] = set()
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Var):
            if node in among:
                used.add(node)
        elif isinstance(node, tir.Buffer):
            if node.data in among:
                used.add(node.data)
        else:
            stack.extend(children(node))
    return used
