"""Redirection of accesses from one buffer to another: loads, stores, regions, matched buffers and pointers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import map_children, replace
from mlcc.ir.tir import Expr, IntImm, Range
from mlcc.ir.visit import Rewriter
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.storage import quoted
from mlcc.passes.schedule.tree import child_realizes

Indices = tuple[Expr, ...]
Region = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Indexing:
    """The maps from indices, and regions, of the old buffer to those of the new one."""

    indices: Callable[[Indices], Indices]
    region: Callable[[Region], Region]


SAME_INDEXING = Indexing(lambda indices: indices, lambda region: region)


def shifted_indexing(mins: Sequence[Expr]) -> Indexing:
    """The new buffer starts at `mins` of the old one."""
    analyzer = Analyzer()

    def less(index: Expr, low: Expr) -> Expr:
        if tir.const_int(low) == 0:  # of the index's own width
            return analyzer.simplify(index)
        return analyzer.simplify(c.sub(index, low))

    return Indexing(
        lambda indices: tuple(less(i, m) for i, m in zip(indices, mins, strict=True)),
        lambda region: tuple(Range(less(r.min, m), r.extent) for r, m in zip(region, mins, strict=True)),
    )


def fixed_indexing(indices: Indices) -> Indexing:
    """Return a map that replaces every index by `indices`."""
    region = point(indices)
    return Indexing(lambda _: indices, lambda _: region)


def point(indices: Sequence[Expr]) -> Region:
    """The region of one element."""
    return tuple(Range(i, IntImm(i.dtype, 1)) for i in indices)


class Retarget(Rewriter):
    """Replace buffer `old` by `new` in the blocks that `takes` names; `reuse` maps old blocks to new.

    Blocks that `skips` names are left alone with all that is in them. Blocks inside a block are asked for one by one.
    Of an `old[...]` that is replaced the indices stay: an index that itself loads from `old` goes on doing so, unless
    `stores` says that `new` also takes what was stored to `old`.
    """

    def __init__(
        self, old: tir.Buffer, new: tir.Buffer, applies_to: Callable[[tir.Block], bool],
        skips: Callable[[tir.Block], bool] = lambda _: False, indexing: Indexing = SAME_INDEXING, stores: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._old, self._new, self._how, self._stores = old, new, indexing, stores
        self._takes, self._skips = applies_to, skips
        self._active = False
        self._memos: dict[bool, Any] = {False: self._memo, True: {}}

    def visit(self, node: Any) -> Any:
        match node:
            case tir.Buffer():
                return node
            case tir.Block():
                return self._block(node)
            case tir.Expr() if not self._active:
                return node
            case tir.Var():
                return self._new.data if node is self._old.data else node
            case tir.BufferLoad(buffer=buffer, indices=indices) if buffer is self._old:
                mapped = self._visit_indices(indices) if self._stores else indices
                return replace(node, buffer=self._new, indices=self._how.indices(mapped))
            case tir.BufferStore(buffer=buffer, indices=indices) if buffer is self._old and self._stores:
                mapped = self._how.indices(self._visit_indices(indices))
                return replace(node, buffer=self._new, value=self.visit(node.value), indices=mapped)
        return super().visit(node)

    def _visit_indices(self, indices: Indices) -> Indices:
        return tuple(self.visit(i) for i in indices)

    def _block(self, block: tir.Block) -> tir.Block:
        if self._skips(block):
            return block
        around = self._active
        self._set_active(self._takes(block))
        new_block = map_children(block, self.visit)
        if self._active:
            changes: dict[str, Any] = {
                "reads": self._regions(new_block.reads),
                "match_buffers": self._matches(new_block),
            }
            if self._stores:
                changes["writes"] = self._regions(new_block.writes)
            new_block = replace(new_block, **changes)
        elif new_block is not block:
            new_block = self._declare_new(new_block)
        self._set_active(around)
        if new_block is not block:
            self.reuse[block] = new_block
        return new_block

    def _declare_new(self, block: tir.Block) -> tir.Block:
        """Add the new buffer to the regions of a block that keeps the old one, if blocks in it access the new one."""
        inside = [r.block for r in child_realizes(block.body)]

        def with_new(regions: tuple[tir.BufferRegion, ...], found: bool) -> tuple[tir.BufferRegion, ...]:
            more = [self._region(r) for r in regions if r.buffer is self._old and found]
            return (*regions, *more) if more else regions

        reads = with_new(block.reads, any(r.buffer is self._new for b in inside for r in b.reads))
        writes = with_new(block.writes, any(r.buffer is self._new for b in inside for r in b.writes))
        return replace(block, reads=reads, writes=writes)

    def _set_active(self, active: bool) -> None:
        self._active, self._memo = active, self._memos[active]

    def _region(self, region: tir.BufferRegion) -> tir.BufferRegion:
        if region.buffer is not self._old:
            return region
        return tir.BufferRegion(self._new, self._how.region(region.region))

    def _regions(self, regions: tuple[tir.BufferRegion, ...]) -> tuple[tir.BufferRegion, ...]:
        new_regions = tuple(self._region(r) for r in regions)
        return regions if all(a is b for a, b in zip(regions, new_regions, strict=True)) else new_regions

    def _matches(self, block: tir.Block) -> tuple[tir.MatchBufferRegion, ...]:
        old = block.match_buffers
        for match in old:
            if match.source.buffer is self._old and match.buffer.scope != self._new.scope:
                raise Refusal(
                    "E0643", f"block `{block.name}` matches `{match.buffer.name}` in {quoted(match.buffer.scope)} to"
                    f" `{self._old.name}`, which cannot be moved to {quoted(self._new.scope)}", block,
                    f"cache it in {quoted(match.buffer.scope)}",
                )  # fmt: skip
        new_matches = tuple(replace(m, source=self._region(m.source)) for m in old)
        return old if all(a is b for a, b in zip(old, new_matches, strict=True)) else new_matches
