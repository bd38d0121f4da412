"""Divergence analysis, and rewrites that sink divergent conditions and bounds so that barriers are possible.

if tx < 32:              for k in range(4):
    for k in range(4):       if tx < 32: S[tx] = ...
        S[tx] = ...   ->     (barrier)
        ... = S[31 - tx]     if tx < 32: ... = S[31 - tx]
"""

from __future__ import annotations

from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.mutator import Body

BARRIERS = ("shared", "shared.dyn")


def is_barrier(stmt: Node) -> bool:
    """Return True if a statement is a barrier of the block."""
    match stmt:
        case tir.Evaluate(value=tir.Call(op=tir.Op("tir.tvm_storage_sync"), args=(tir.StringImm(value=kind), *_))):
            return kind in BARRIERS
    return False


def is_thread_mask(condition: Expr) -> bool:
    """Return True if a pass added the condition to mask off excess threads of a loop (`T.likely`)."""
    if isinstance(condition, tir.And):
        return is_thread_mask(condition.lhs) and is_thread_mask(condition.rhs)
    return isinstance(condition, tir.Call) and condition.op == tir.Op("tir.likely")


class DivergenceAnalysis:
    """Divergence analysis: the variables whose values differ between the threads of a block."""

    def __init__(self) -> None:
        self._vars: set[tir.Var] = set()
        self.domains: dict[tir.Var, Interval] = {}  # ranges of divergent variables

    def thread(self, loop: tir.For) -> None:
        """Enter a loop over the threads of a block: its variable diverges."""
        if tir.const_int(loop.extent) != 1:
            self.mark(loop.var)
            self.domains[loop.var] = from_range(tir.Range(loop.min, loop.extent))

    def mark(self, var: tir.Var) -> None:
        """Mark a variable as divergent."""
        self._vars.add(var)

    def differs(self, value: Node) -> bool:
        """Return True if a value may be divergent: it depends on the thread, or reads thread-private memory."""
        for node in walk(value):
            if isinstance(node, tir.Var) and node in self._vars:
                return True
            if isinstance(node, tir.BufferLoad) and node.buffer.scope not in ("global", "shared", "shared.dyn"):
                return True
            if isinstance(node, tir.Call) and effect_of(node) > Effect.READ:
                return True
        return False

    def greatest_over_threads(self, value: Expr) -> Expr | None:
        """Return the greatest value of an expression over all threads; None if unknown."""
        reach = eval_set(value, self.domains)
        return None if reach.high is None or self.differs(reach.high) else reach.high


def sink_condition(condition: Expr, body: Body, varying: DivergenceAnalysis) -> list[Stmt] | None:
    """Sink `condition` into each statement of the body; None if that would change its meaning."""
    if not is_pure(condition):
        return None
    guarded: list[Stmt] = []
    for stmt in body:
        match stmt:
            case tir.AllocBuffer() | tir.DeclBuffer():
                guarded.append(stmt)
            case tir.Bind(value=value):
                if not _is_speculatable(value):
                    return None
                guarded.append(stmt)
            case tir.Evaluate() if is_barrier(stmt):
                guarded.append(stmt)
            case tir.For() if (
                not varying.differs(stmt.extent) and _is_speculatable(stmt.min) and _is_speculatable(stmt.extent)
            ):
                guarded.append(replace(stmt, body=(tir.IfThenElse(condition, stmt.body, span=stmt.span),)))
            case tir.AttrStmt():
                guarded.append(replace(stmt, body=(tir.IfThenElse(condition, stmt.body, span=stmt.span),)))
            case tir.IfThenElse(condition=inner, then_body=then, else_body=other):
                if other and not is_pure(inner):
                    return None
                if _is_speculatable(inner) and not varying.differs(inner):
                    parts = [
                        None if b is None else (tir.IfThenElse(condition, b, span=stmt.span),) for b in (then, other)
                    ]
                    guarded.append(replace(stmt, then_body=parts[0], else_body=parts[1]))
                    continue
                guarded.append(tir.IfThenElse(c.logical_and(condition, inner), then, span=stmt.span))
                if other:
                    guarded.append(
                        tir.IfThenElse(c.logical_and(condition, c.logical_not(inner)), other, span=stmt.span)
                    )
            case _:
                guarded.append(tir.IfThenElse(condition, (stmt,), span=stmt.span))
    return guarded


def with_uniform_bounds(loop: tir.For, varying: DivergenceAnalysis) -> tir.For | None:
    """Rewrite a loop with divergent bounds as a uniform loop with a condition inside; None if impossible."""
    if not _is_speculatable(loop.min) or not _is_speculatable(loop.extent) or tir.const_int(loop.step) not in (None, 1):
        return None
    most = varying.greatest_over_threads(loop.extent)
    if most is None or varying.differs(loop.min):
        return None
    inside = c.less(c.sub(loop.var, loop.min), loop.extent)
    return replace(loop, extent=most, body=(tir.IfThenElse(inside, loop.body, span=loop.span),))


def _is_speculatable(value: Expr) -> bool:
    """Return True if a value can be computed speculatively: no loads, no calls, no division by an unknown number."""
    for node in walk(value):
        if isinstance(node, (tir.BufferLoad, tir.Call)):
            return False
        if isinstance(node, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)) and not tir.const_int(node.rhs):
            return False
    return True
