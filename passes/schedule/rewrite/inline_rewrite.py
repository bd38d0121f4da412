"""Removal of buffers from a scope: loads or stores of them are replaced, and regions are inferred again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mlcc.arith.regions import BlockAccess
from mlcc.ir import tir
from mlcc.ir.node import children, map_children, replace
from mlcc.passes.schedule.analysis.uses import uses
from mlcc.passes.schedule.tree import Body, Tree


class ScopeRewriter:
    """Rebuild a scope block without `buffers`, which the blocks `removed` write.

    `load` gives what stands for a load of one of the buffers, which may load others of them, `store` for a store to
    one, `realize` may change a block's realize once its inside is rewritten. `reuse` tells which block became which.
    Blocks that named a buffer in their regions have them inferred anew.
    """

    def __init__(
        self,
        buffers: Iterable[tir.Buffer],
        removed: Iterable[tir.Block],
        tree: Tree,
        *,
        load: Callable[[tir.BufferLoad], tir.Expr] | None = None,
        store: Callable[[tir.BufferStore], tir.Stmt] | None = None,
        realize: Callable[[tir.Block, tir.BlockRealize], tir.BlockRealize] | None = None,
    ) -> None:
        self.buffers = frozenset(buffers)
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._load, self._store, self._realize = load, store, realize
        self._visible: dict[tir.Var, tir.Buffer] = {}
        self._memo: dict[int, tuple[Any, Any]] = {}
        self._tree = tree
        for block in removed:
            self._record_buffers(block)

    def scope(self, block: tir.Block) -> tir.Block:
        """The scope block without the buffers; its own regions stay."""
        self._record_buffers(block)
        for stmt in block.body:  # statements that do not use the buffers are skipped
            if stmt in self._tree and self.buffers.isdisjoint(uses(self._tree, stmt).objects):
                self._memo[id(stmt)] = (stmt, stmt)
        rewritten = map_children(block, self.visit)
        return replace(rewritten, alloc_buffers=tuple(b for b in rewritten.alloc_buffers if b not in self.buffers))

    def visit(self, node: Any) -> Any:
        if isinstance(node, _LEAVES):
            return node
        known = self._memo.get(id(node))
        if known is not None:
            return known[1]
        rewritten: Any
        match node:
            case tir.Block():
                rewritten = self._block(node)
            case tir.Range(min=low, extent=size) if isinstance(low, _LEAVES) and isinstance(size, _LEAVES):
                return node
            case _:
                rewritten = map_children(node, self.visit)
        match rewritten:
            case tir.BufferLoad(buffer=buffer) if buffer in self.buffers and self._load is not None:
                rewritten = self._load(rewritten)
                if len(self.buffers) > 1:
                    rewritten = self.visit(rewritten)
            case tir.BufferStore(buffer=buffer) if buffer in self.buffers and self._store is not None:
                rewritten = self._store(rewritten)
            case tir.BlockRealize() if self._realize is not None:
                rewritten = self._realize(node.block, rewritten)
                if rewritten.block is not node.block:
                    self.reuse[node.block] = rewritten.block
        self._memo[id(node)] = (node, rewritten)
        return rewritten

    def _block(self, block: tir.Block) -> tir.Block:
        self._record_buffers(block)
        rewritten = map_children(block, self.visit)
        if any(r.buffer in self.buffers for r in (*rewritten.reads, *rewritten.writes)):
            own = {buffer.data for buffer in block.alloc_buffers}
            outer = {data: buffer for data, buffer in self._visible.items() if data not in own}
            reads, writes = access_regions(rewritten, outer)
            rewritten = replace(rewritten, reads=reads, writes=writes)
        if rewritten is not block:
            self.reuse[block] = rewritten
        return rewritten

    def _record_buffers(self, block: tir.Block) -> None:
        for region in (*block.reads, *block.writes):
            self._visible[region.buffer.data] = region.buffer
        for buffer in block.alloc_buffers:
            self._visible[buffer.data] = buffer


Regions = tuple[tir.BufferRegion, ...]
_LEAVES = (tir.Var, tir.IntImm, tir.FloatImm, tir.StringImm, tir.Buffer)


def access_regions(block: tir.Block, visible: dict[tir.Var, tir.Buffer]) -> tuple[Regions, Regions]:
    """Return the regions that a block reads and writes, inferred from its body; accesses by pointer count as both."""
    access = BlockAccess(visible).collect(block)
    opaque = access.opaque.as_regions()
    return (*access.read_regions(block), *opaque), (*access.writes.as_regions(), *opaque)


def pointer_use(tree: Tree, body: Body, buffer: tir.Buffer) -> tir.Block | None | bool:
    """Return the innermost block that uses `buffer` by its pointer or matches it to another buffer.

    False if none does, None if a statement outside of all blocks does.
    """
    key = ("pointers", id(body))
    if key not in tree.cache:
        tree.cache[key] = {p for stmt in body for p in uses(tree, stmt).pointers}
    if tree.cache[key].isdisjoint((buffer, buffer.data)):
        return False
    stack: list[tuple[Any, tir.Block | None]] = [
        (stmt, None) for stmt in body if not {buffer, buffer.data}.isdisjoint(uses(tree, stmt).pointers)
    ]
    while stack:
        node, block = stack.pop()
        if node is buffer.data:
            return block
        if isinstance(node, tir.Buffer):
            continue
        if isinstance(node, tir.Block):
            block = node
            if any(m.source.buffer is buffer for m in node.match_buffers):
                return block
        stack += [(child, block) for child in children(node)]
    return False
