"""Simplify quotients and remainders in indices by the ranges of loops: `(i * 48 + j) // 48` is `i` for `j < 48`.

The 48 may also be a symbolic size. Minima and maxima are simplified too, in indices and in the extents of loops, where
`compute_at` leaves them as TVM does.

Packed panels and reshaped tensors leave such divisions. Without them, accesses are seen to be contiguous, and addresses
cost no divisions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.structural_keys import StructuralKeys
from mlcc.arith.symbolic_extents import SymbolicExtents
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import find, holds, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def simplify_divisions(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (without blocks) with divisions in indices simplified, and decided minima and maxima folded."""
    sizes = {var for buffer in func.buffers if buffer is not None for var in used_vars(buffer.shape)}
    return replace(func, body=_DivisionSimplifier(sizes).body(func.body))


class _DivisionSimplifier(TirMutator):
    def __init__(self, sizes: Collection[tir.Var]) -> None:
        self._analyzer = Analyzer()
        self._spans = SymbolicExtents(sizes) if sizes else None

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if _has_min_max(node.extent):
            node = replace(node, extent=self._analyzer.simplify(node.extent))
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
            if self._spans is not None and tir.const_int(node.min) == 0:
                self._spans.bind(node.var, node.extent)
        return super().stmt_for(node)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        indices = self._indices(node.buffer, node.indices)
        return node if indices is node.indices else tir.BufferLoad(node.dtype, node.buffer, indices, span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        value, indices = self.expr(node.value), self._indices(node.buffer, node.indices)
        if value is node.value and indices is node.indices:
            return node
        return tir.BufferStore(node.buffer, value, indices, span=node.span)

    def _indices(self, buffer: tir.Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        indices = self.exprs(indices)
        needs_simplify = [count_divisions(index) or _has_min_max(index) for index in indices]
        if not any(needs_simplify):
            return indices
        simplified = tuple(
            self._simplified(i) if needed else i for i, needed in zip(indices, needs_simplify, strict=True)
        )
        if sum(map(bool, map(count_divisions, simplified))) > 1 and _same_dtype(simplified):
            joined = linearized_index(indices, buffer.strides or compact_strides(buffer.shape), self._analyzer)
            if joined is not None and not count_divisions(
                joined
            ):  # they are to become one index: then all divisions go
                return tuple(old if count_divisions(new) else new for old, new in zip(indices, simplified, strict=True))
        return simplified

    def _simplified(self, index: Expr) -> Expr:
        index = self._analyzer.simplify(index)
        if self._spans is None or not count_divisions(index):
            return index
        return self._analyzer.simplify(self._spans.simplify(index))


def _same_dtype(indices: tuple[Expr, ...]) -> bool:
    return all(index.dtype == indices[0].dtype for index in indices)


def linearized_index(indices: Sequence[Expr], strides: Sequence[Expr], analyzer: Analyzer) -> Expr | None:
    """Return the linearized index if divisions cancel in it, as those of a fused loop do; None if nothing is gained.

    All indices are of one type. `f // 28 * 28 + f % 28` is `f` for every `f`.
    """
    dtype = indices[0].dtype
    total: Expr = c.const(0, dtype)
    for index, step in zip(indices, strides, strict=True):
        total = c.add(total, c.mul(index, c.cast(dtype, step)))
    keys = StructuralKeys()
    divided: dict[int, list[Expr]] = {}
    for node in find(total, tir.FloorDiv, tir.FloorMod):
        if not count_divisions(node.lhs):
            divided.setdefault(keys.key(node.lhs), []).append(node.lhs)
    dividend_vars: dict[Expr, Expr] = {}
    dividends: dict[Expr, Expr] = {}
    for same in divided.values():
        if len(same) > 1 and not isinstance(same[0], tir.Var):  # taken apart, it would not be seen to be one
            var, bound = tir.Var("f", same[0].dtype), analyzer.bound(same[0])
            analyzer.bind_bound(var, bound.min, bound.max)
            dividend_vars.update(dict.fromkeys(same, var))
            dividends[var] = same[0]
    joined = substitute(analyzer.simplify(substitute(total, dividend_vars)), dividends)
    return joined if count_divisions(joined) < sum(map(count_divisions, indices)) else None


def count_divisions(index: Expr) -> int:
    """Return the number of floor divisions and remainders in an expression."""
    return sum(1 for _ in find(index, tir.FloorDiv, tir.FloorMod))


@dataclass(frozen=True)
class SimplifyDivisions(LoweringStep):
    """Decide quotients and remainders in indices by the ranges of loops.

    Before:  A[(i * 48 + j) // 48, (i * 48 + j) % 48]  # where j < 48
    After:   A[i, j]
    """

    name: ClassVar[str] = "simplify-divisions"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return simplify_divisions(func)


def _has_min_max(expr: Expr) -> bool:
    return holds(expr, tir.Min, tir.Max)
