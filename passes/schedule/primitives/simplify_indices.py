"""simplify_indices: what a block accesses, said without quotients and remainders that its axes decide."""

from __future__ import annotations

from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.symbolic_extents import SymbolicExtents
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import Rewriter, used_vars
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def simplify_indices(state: State, block: BlockRef) -> None:
    """Write the indices of a block without the quotients and remainders that the domains of its axes decide:
    `A[i // 8 + j, i % 8]` is `A[j, i]` where `i` is below 8.

    Data that were reshaped are accessed in such a way, and loops that are fused or split afterwards hide that little is
    meant. What is accessed stays the same. TVM has no such step.
    """
    old = block.block
    rewriter = _IndexSimplifier(old, block.tree.func)
    parts = {name: tuple(map(rewriter.visit, getattr(old, name) or ())) for name in ("reads", "writes", "body", "init")}
    if old.init is None:
        del parts["init"]
    edit = Rebuild(block.tree)
    edit.put_block(old, replace(old, **parts))
    state.update(block.func_name, edit)


class _IndexSimplifier(Rewriter):
    def __init__(self, block: tir.Block, func: tir.PrimFunc) -> None:
        super().__init__()
        self._analyzer = Analyzer()
        self._spans = SymbolicExtents(
            {var for buffer in func.buffers if buffer is not None for var in used_vars(buffer.shape)}
        )
        for axis in block.iter_vars:
            self._analyzer.bind(axis.var, axis.dom)
            if tir.const_int(axis.dom.min) == 0:
                self._spans.bind(axis.var, axis.dom.extent)

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.BufferLoad(indices=indices) | tir.BufferStore(indices=indices):
                simplified = tuple(map(self._simplified, indices))
                return node if simplified == indices else replace(node, indices=simplified)
            case tir.BufferRegion(region=region):
                spans = tuple(tir.Range(self._simplified(r.min), r.extent) for r in region)
                same = all(a.min is b.min for a, b in zip(spans, region, strict=True))
                return node if same else replace(node, region=spans)
        return node

    def _simplified(self, index: tir.Expr) -> tir.Expr:
        if not any(isinstance(n, (tir.FloorDiv, tir.FloorMod)) for n in walk(index)):
            return index
        return self._analyzer.simplify(self._spans.simplify(self._analyzer.simplify(index)))
