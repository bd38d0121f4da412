"""Rewriting all accesses of a buffer to another layout."""

from __future__ import annotations

from mlcc.arith.index_map import map_indices
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import map_children, replace, walk
from mlcc.passes.schedule.rewrite.accesses import AccessRewriter, Indices
from mlcc.passes.schedule.rewrite.inline_rewrite import access_regions
from mlcc.passes.schedule.rewrite.layout_padding import PaddingPlan
from mlcc.passes.schedule.tree import Body, Stmt

Regions = tuple[tir.BufferRegion, ...]


class LayoutRewriter(AccessRewriter):
    """Replace `old` by `new`, with indices mapped and simplified, according to the plan for padding."""

    def __init__(
        self, site: tir.Block, old: tir.Buffer, new: tir.Buffer, index_map: tir.IndexMap, plan: PaddingPlan
    ) -> None:
        super().__init__()
        self._origin = {rewritten: block for block, rewritten in plan.reuse.items()}
        self._site, self._old, self._new, self._map, self._plan = site, old, new, index_map, plan

    def access(self, buffer: tir.Buffer, indices: Indices) -> tuple[tir.Buffer, Indices]:
        if buffer is not self._old:
            return buffer, indices
        return self._new, self.simplified(map_indices(self._map, indices, self._plain))

    def replaced(self, stmt: Stmt) -> Stmt:
        return self._plan.replacements.get(id(stmt), stmt)

    def following(self, stmt: Stmt) -> Body:
        return self._plan.epilogue.get(id(stmt), ())

    def inner_block(self, old: tir.Block, new: tir.Block) -> tir.Block:
        if old is self._site and self._plan.prologue:
            new = replace(new, body=(*self._plan.prologue, *new.body))
        if self._old in new.alloc_buffers:
            allocs = tuple(self._new if b is self._old else b for b in new.alloc_buffers)
            new = replace(new, alloc_buffers=allocs)
        new = replace(new, reads=self._indexed(new.reads), writes=self._indexed(new.writes))
        if any(r.buffer in (self._old, self._new) for r in (*old.reads, *old.writes)):
            reads, writes = access_regions(new, {self._new.data: self._new})
            new = replace(new, reads=self._regions(new.reads, reads), writes=self._regions(new.writes, writes))
        if old in self._origin:
            self.reuse[self._origin[old]] = new
        return new

    def _indexed(self, regions: Regions) -> Regions:
        """Return the regions, whose bounds may load from the buffer, with indices mapped."""
        return (
            tuple(
                map_children(r, lambda span: map_children(span, self._leaf) if isinstance(span, tir.Range) else span)
                for r in regions
            )
            if any(isinstance(n, tir.BufferLoad) for n in walk(regions))
            else regions
        )

    def _regions(self, declared: Regions, inferred: Regions) -> Regions:
        mine = next((r for r in inferred if r.buffer is self._new), None)
        if mine is None:  # declared but not touched: all of it
            mine = tir.BufferRegion(self._new, tuple(tir.Range(c.const(0, d.dtype), d) for d in self._new.shape))
        return tuple(mine if r.buffer in (self._old, self._new) else r for r in declared)


class AccessSimplifier(AccessRewriter):
    """Simplify the indices of all accesses, and the regions of blocks."""

    def access(self, buffer: tir.Buffer, indices: Indices) -> tuple[tir.Buffer, Indices]:
        return buffer, self.simplified(indices)

    def inner_block(self, old: tir.Block, new: tir.Block) -> tir.Block:
        return replace(new, reads=self._regions(new.reads), writes=self._regions(new.writes))

    def _regions(self, regions: Regions) -> Regions:
        new_regions = []
        for region in regions:
            lows = self.simplified(tuple(span.min for span in region.region))
            sizes = [self._analyzer.simplify(span.extent) for span in region.region]
            new_regions.append(tir.BufferRegion(region.buffer, tuple(map(tir.Range, lows, sizes))))
        return tuple(new_regions)
