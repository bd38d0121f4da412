"""Quotients and remainders in indices go where loops tell their values: `(i * 48 + j) // 48` is `i` for `j < 48`,
and so it is where 48 is a size that is not known.

Layouts in panels and reshaped tensors leave them. Without, accesses are seen to be consecutive, and cost no divisions.
"""

from __future__ import annotations

from collections.abc import Collection

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.spans import Spans
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import used_vars
from mlcc.passes.lowering.mutator import Mutator


def simplify_divisions(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func`, without blocks, with simplified indices where these divide."""
    sizes = {var for buffer in func.buffers if buffer is not None for var in used_vars(buffer.shape)}
    return replace(func, body=_Divisions(sizes).body(func.body))  # type: ignore[no-any-return]


class _Divisions(Mutator):
    def __init__(self, sizes: Collection[tir.Var]) -> None:
        self._analyzer = Analyzer()
        self._spans = Spans(sizes) if sizes else None

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
            if self._spans is not None and tir.const_int(node.min) == 0:
                self._spans.bind(node.var, node.extent)
        return super().stmt_for(node)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        indices = self._indices(node.indices)
        return node if indices is node.indices else tir.BufferLoad(node.dtype, node.buffer, indices, span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        value, indices = self.expr(node.value), self._indices(node.indices)
        if value is node.value and indices is node.indices:
            return node
        return tir.BufferStore(node.buffer, value, indices, span=node.span)

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        indices = self.exprs(indices)
        if not any(divisions(index) for index in indices):
            return indices
        return tuple(self._analyzer.simplify(index) if divisions(index) else index for index in indices)


def divisions(index: Expr) -> int:
    """How many quotients and remainders there are in an expression."""
    return sum(isinstance(node, (tir.FloorDiv, tir.FloorMod)) for node in walk(index))
