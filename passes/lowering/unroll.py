"""Replace loops marked `T.unroll` by copies of their bodies, within a size limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.lowering.folding import copy_body
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

LLVM_UNROLL = "mlcc.llvm_unroll"  # the annotation of a loop that LLVM does not unroll either, with the value 0


def unroll_loops(func: tir.PrimFunc, limit: int) -> tir.PrimFunc:
    """Return `func` with marked loops of up to `limit` statements unrolled, innermost first; others keep their mark."""
    return replace(func, body=unroll_body(func.body, limit))


def unroll_body(body: Body, limit: int) -> Body:
    """Return statements with marked loops unrolled, as `unroll_loops` does."""
    return _Unroller(limit).body(body)


class _Unroller(TirMutator):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def expr(self, node: tir.Expr) -> tir.Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = replace(node, body=self.body(node.body))
        trips = tir.const_int(loop.extent)
        if loop.kind is not ForKind.UNROLLED or trips is None or tir.const_int(loop.step) not in (None, 1):
            return loop
        if trips * max(1, statement_count(loop.body)) > self._limit or has_jump(loop.body):
            return loop
        copies: list[Stmt] = []
        for number in range(trips):
            copies += copy_body(loop.body, {loop.var: c.add(loop.min, number)})
        return copies


def select_unrolled(func: tir.PrimFunc, limit: int) -> tir.PrimFunc:
    """Return `func` with only those loops marked that `unroll_loops` unrolls; the others become serial."""
    return replace(func, body=_UnrollSelector(limit).body(func.body))


class _UnrollSelector(TirMutator):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def expr(self, node: tir.Expr) -> tir.Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop: tir.For = replace(node, body=self.body(node.body))
        if loop.kind is not ForKind.UNROLLED or _fits_unfolded(loop, self._limit):
            return loop
        if isinstance(_Unroller(self._limit).stmt_for(loop), list):
            return loop
        return replace(loop, kind=ForKind.SERIAL)


def _fits_unfolded(loop: tir.For, limit: int) -> bool:
    """Return True if the unrolled loop fits the limit even if nothing folds. Makes no copies to find out."""
    trips = tir.const_int(loop.extent)
    if trips is None or tir.const_int(loop.step) not in (None, 1) or has_jump(loop.body):
        return False
    return trips * max(1, _size_bound(loop.body)) <= limit


def _size_bound(body: Body) -> int:
    """Return an upper bound of the statements in a body after unrolling."""
    total = 0
    for stmt in body:
        inside = sum(map(_size_bound, nested_bodies(stmt)))
        if isinstance(stmt, tir.For) and stmt.kind is ForKind.UNROLLED:
            inside *= max(1, tir.const_int(stmt.extent) or 1)
        total += 1 + inside
    return total


def statement_count(body: Body) -> int:
    """Return the number of statements, including nested ones."""
    total = 0
    stack = list(body)
    while stack:
        stmt = stack.pop()
        total += 1
        for nested in nested_bodies(stmt):
            stack.extend(nested)
    return total


def nested_bodies(stmt: Stmt) -> tuple[Body, ...]:
    """Return the bodies inside a statement of loop code."""
    if isinstance(stmt, (tir.For, tir.While, tir.AttrStmt)):
        return (stmt.body,)
    if isinstance(stmt, tir.IfThenElse):
        return (stmt.then_body,) if stmt.else_body is None else (stmt.then_body, stmt.else_body)
    return ()


def has_jump(body: Body) -> bool:
    """Return True if the body contains a `break` or `continue` of its own loop."""
    for stmt in body:
        if isinstance(stmt, (tir.Break, tir.Continue)):
            return True
        if not isinstance(stmt, (tir.For, tir.While)) and any(has_jump(nested) for nested in nested_bodies(stmt)):
            return True
    return False


@dataclass(frozen=True)
class UnrollLoops(LoweringStep):
    """Unroll `T.unroll` loops, within a size limit.

    A loop keeps its mark if its extent is not constant, if its body may leave it, or if its copies would have more than
    512 statements.

    Before:  for i in T.unroll(2): C[i] = A[i]
    After:   C[0] = A[0]
             C[1] = A[1]
    """

    name: ClassVar[str] = "unroll-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return unroll_loops(func, options.unroll_limit)


@dataclass(frozen=True)
class SelectUnrolledLoops(LoweringStep):
    """Keep `T.unroll` on the loops that are small enough to be written out; the others become serial.

    Before:  for i in T.unroll(100000): ...
    After:   for i in range(100000): ...
    """

    name: ClassVar[str] = "select-unrolled-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return select_unrolled(func, options.unroll_limit)
