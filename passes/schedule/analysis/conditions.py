"""Conditions on blocks: complete blocks, reduction blocks, dominance, compact dataflow.

A *complete* block has only spatial axes, is the only writer of what it writes, and does not read it. A *reduction*
block has an init and spatial and reduce axes with affine bindings, is the only writer, and indexes what it writes by
spatial axes alone. The `..._violation` functions say in words what is missing, to follow "block `C` ...".
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import (
    affine_violation,
    analyzer_of,
    domain_above,
    is_affine_binding,
    vars_of,
)
from mlcc.passes.schedule.analysis.scope import scope_info
from mlcc.passes.schedule.tree import Tree

Scope = tir.Block | tir.For

_KIND_PHRASES = {
    IterKind.SPATIAL: "a spatial", IterKind.REDUCE: "a reduce", IterKind.SCAN: "a scan", IterKind.OPAQUE: "an opaque",
    IterKind.THREAD: "a thread",
}  # fmt: skip


def kind_phrase(kind: IterKind) -> str:
    """Return the kind of an axis with its article: `a reduce`, `an opaque`."""
    return _KIND_PHRASES[kind]


def writers_under(tree: Tree, scope: Scope) -> dict[tir.Buffer, list[tir.Block]]:
    """Return the writers of each buffer in a scope.

    For a loop as scope, the writers inside the blocks below it (where dominance is local).
    """
    if isinstance(scope, tir.Block):
        return scope_info(tree, scope).writers
    writers: dict[tir.Buffer, list[tir.Block]] = {}
    for realize in tree.child_realizes(scope.body):
        for buffer, blocks in scope_info(tree, realize.block).writers.items():
            writers.setdefault(buffer, blocks)
    return writers


def other_writer(tree: Tree, block: tir.Block, scope: Scope) -> tuple[tir.Buffer, tir.Block] | None:
    """Return a buffer that both `block` and another block of the scope write, and that other block; None if none."""
    writers = writers_under(tree, scope)
    for region in block.writes:
        blocks = writers.get(region.buffer, [])
        if len(blocks) > 1:
            return region.buffer, next((b for b in blocks if b is not block), block)
    return None


def _dominance_violation(tree: Tree, block: tir.Block, scope: Scope) -> str | None:
    conflict = other_writer(tree, block, scope)
    if conflict is None:
        return None
    buffer, other = conflict
    if other is block:
        return f"writes `{buffer.name}` in more than one region"
    return f"is not the only writer of `{buffer.name}`: block `{other.name}` writes it too"


def complete_block_violation(tree: Tree, block: tir.Block, scope: Scope) -> str | None:
    """Return why `block` is not complete, None if it is. With a loop as scope: locally, below that loop."""
    for axis in block.iter_vars:
        if axis.kind is not IterKind.SPATIAL:
            return f"has {kind_phrase(axis.kind)} axis `{axis.var.name}`"
    words = _dominance_violation(tree, block, scope)
    if words is not None:
        return words
    written = {w.buffer for w in block.writes}
    for region in block.reads:
        if region.buffer in written:
            return f"reads `{region.buffer.name}`, which it also writes"
    return None


def reduction_block_violation(tree: Tree, block: tir.Block, scope: Scope) -> str | None:
    """Return why `block` is not a reduction block, None if it is. With a loop as scope: locally, below that loop."""
    if block.init is None:
        return "has no init"
    realize = tree.realize(block)
    if not is_affine_binding(tree, realize):
        words = affine_violation(realize, domain_above(tree, realize), analyzer_of(tree))
        return f"has axes that the loops above do not drive affinely ({words})"
    for axis in block.iter_vars:
        if axis.kind not in (IterKind.SPATIAL, IterKind.REDUCE):
            return f"has {kind_phrase(axis.kind)} axis `{axis.var.name}`"
    words = _dominance_violation(tree, block, scope)
    if words is not None:
        return words
    write = reduce_indexed_write(block)
    if write is not None:
        buffer, var = write
        return f"indexes `{buffer.name}`, which it writes, by the reduce axis `{var.name}`"
    return None


def reduce_indexed_write(block: tir.Block) -> tuple[tir.Buffer, tir.Var] | None:
    """Return a buffer that the body stores to at an index with a reduce axis in it, and that axis."""
    reduce = [a.var for a in block.iter_vars if a.kind is IterKind.REDUCE]
    if not reduce:
        return None
    stores = (n for n in walk(block.body) if isinstance(n, tir.BufferStore))
    return next(((s.buffer, v) for s in stores for v in reduce if any(v in vars_of(i) for i in s.indices)), None)


def is_complete_block(tree: Tree, block: tir.Block, scope: Scope) -> bool:
    return complete_block_violation(tree, block, scope) is None


def is_reduction_block(tree: Tree, block: tir.Block, scope: Scope) -> bool:
    return reduction_block_violation(tree, block, scope) is None
