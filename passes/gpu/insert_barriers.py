"""Insert thread-block barriers between conflicting accesses of different threads.

Accesses conflict if they may touch the same element and one of them writes (flow, anti and output dependences), in
program order or carried by a loop. No barrier is inserted where `thread_dependence` proves that only one thread is
involved, nor where the program has one. A barrier stands before the first statement that needs it, in the innermost
scope without divergence; divergent conditions are sunk into the statements that they guard (`divergence`).

Functions with the attribute `mlcc.manual_barriers`, and kernels that synchronise through barriers in memory
(`ptx_arrive_barrier` and the like), are left unchanged.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.errors import CompileError, Diagnostic, Label, Span, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.ir.node import children, find, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.bulk_tiles import TILE, is_call
from mlcc.passes.gpu.device import BLOCK, block_barrier
from mlcc.passes.gpu.divergence import (
    DivergenceAnalysis,
    is_barrier,
    is_thread_mask,
    sink_condition,
    with_uniform_bounds,
)
from mlcc.passes.gpu.form_kernels import map_kernels
from mlcc.passes.gpu.pipeline import ASYNC, ORDERED
from mlcc.passes.gpu.thread_dependence import DependenceProblem, Side
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.effects import MemoryAccess, memory_accesses
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.manage.stages import FLAT

MANUAL = "mlcc.manual_barriers"  # attribute of a function whose author placed all barriers


def insert_barriers(func: tir.PrimFunc) -> tir.PrimFunc:
    """Insert barriers into the kernels of `func` (flat loop code with formed kernels). Raises CompileError."""
    if func.attrs.get(MANUAL):
        return func
    return map_kernels(func, _with_barriers)


def _with_barriers(loops: Sequence[tir.For], body: Body) -> Body:
    if any(called(n).barrier is not None for n in find(body, tir.Call)):
        return body  # it orders accesses by mbarriers itself
    return _BarrierInserter(loops, _write_only_buffers(body)).body(body)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """An access with its guards and enclosing loops."""

    touch: MemoryAccess
    root: tir.Var | None
    span: Span | None
    guards: tuple[Expr, ...]
    loops: tuple[tir.For, ...]
    is_async: bool  # an asynchronous copy
    is_bulk: bool = False  # an access of the copy engine

    @property
    def shared(self) -> bool:
        return self.root is None or _scope(self.root).startswith("shared")


@dataclass(slots=True, eq=False)
class _Summary:
    """The accesses of code before its first barrier (`head`) and after its last (`tail`). `closed` if every path
    reaches a barrier. `starts` are the statements before the first one, each with its accesses."""

    head: list[_Access] = field(default_factory=list)
    tail: list[_Access] = field(default_factory=list)
    closed: bool = False
    starts: list[tuple[int, list[_Access]]] = field(default_factory=list)


class _DivergentBarrier(Exception):
    """Raised where a barrier is needed, or found, in divergent code."""

    def __init__(self, first: _Access | None, second: _Access | None, barrier: Stmt | None = None) -> None:
        self.first, self.second, self.barrier = first, second, barrier


def _write_only_buffers(body: Body) -> set[tir.Var]:
    """Return the global buffers that the kernel writes at known indices and never reads: no values flow through them.

    Two threads that write the same element race in the program itself; a barrier would not order them.
    """
    written: set[tir.Var] = set()
    other: set[tir.Var] = set()
    for stmt in body:
        for touch in memory_accesses(stmt):
            (written if touch.writes and touch.index is not None else other).add(touch.data)
        for node in find(stmt, tir.DeclBuffer, tir.Bind):  # views may read
            other |= {n for n in walk(node) if isinstance(n, tir.Var) and n.dtype.is_handle}
    return {data for data in written - other if _scope(data) == "global"}


class _BarrierInserter:
    def __init__(self, threads: Sequence[tir.For], results: Container[tir.Var] = ()) -> None:
        self._write_only = results
        self._divergence = DivergenceAnalysis()
        for loop in threads:
            if loop.thread in BLOCK:
                self._divergence.thread(loop)
        self._axes = tuple(threads)
        self._threads = [x.var for x in threads if x.thread in BLOCK and tir.const_int(x.extent) != 1]
        self._loops: list[tir.For] = []
        self._guards: list[Expr] = []
        self._divergent_scopes: list[Stmt] = []  # enclosing scopes that differ between threads
        self._in_async = False
        self._aliases = Aliases()
        self._bound: set[tir.Var] = set()

    # ------------------------------------------------------------ statements

    def body(self, body: Body) -> tuple[Body, _Summary]:
        """Insert barriers between statements; return the statements and a summary of their accesses."""
        stmts: list[Stmt] = []
        summary = _Summary()
        worklist = list(reversed(body))
        while worklist:
            stmt = worklist.pop()
            try:
                new, inner = self._stmt(stmt)
            except _DivergentBarrier as problem:
                parts = self._split_divergent(stmt, problem)
                if parts is None:
                    raise
                worklist += reversed(parts)
                continue
            conflict = self._conflict(summary.tail, inner.head)
            if conflict is not None:
                if self._divergent_scopes:
                    raise _DivergentBarrier(*conflict)
                stmts.append(block_barrier())
                summary.tail, summary.closed = [], True
            if not summary.closed:
                summary.head += inner.head
                summary.starts.append((len(stmts), inner.head))
            if inner.closed:
                summary.tail, summary.closed = list(inner.tail), True
            else:
                summary.tail += inner.tail
            stmts.append(new)
        return tuple(stmts), summary

    def _stmt(self, stmt: Stmt) -> tuple[Stmt, _Summary]:
        match stmt:
            case tir.For():
                return self._loop(stmt)
            case tir.IfThenElse():
                return self._branch(stmt)
            case tir.While(condition=condition):
                uses = self._accesses(condition, stmt)
                with self._inside(stmt, self._divergence.differs(condition)):
                    body, inner = self.body(stmt.body)
                    body, inner = self._loop_carried(body, inner, None)
                inner = _Summary(uses + inner.head, inner.tail + uses)
                return replace(stmt, body=body), inner
            case tir.AttrStmt(key=key):
                outer, self._in_async = self._in_async, self._in_async or key == ASYNC
                body, inner = self.body(stmt.body)
                self._in_async = outer
                return replace(stmt, body=body), inner
            case tir.Evaluate() if is_barrier(stmt):
                if self._divergent_scopes:
                    raise _DivergentBarrier(None, None, stmt)
                return stmt, _Summary(closed=True)
            case tir.Bind(var=var, value=value):
                self._bind(var, value)
            case tir.DeclBuffer(buffer=buffer, data=data):
                self._aliases.bind(buffer.data, data)
        uses = self._accesses(stmt, stmt)
        return stmt, _Summary(uses, uses)

    def _bind(self, var: tir.Var, value: Expr) -> None:
        self._bound.add(var)
        if var.dtype.is_handle:
            self._aliases.bind(var, value)
        if self._divergence.differs(value):
            self._divergence.mark(var)

    @contextmanager
    def _inside(self, stmt: Stmt, divergent: bool, guard: Expr | None = None) -> Iterator[None]:
        before = len(self._divergent_scopes), len(self._guards), len(self._loops)
        if divergent:
            self._divergent_scopes.append(stmt)
        if guard is not None:
            self._guards.append(guard)
        if isinstance(stmt, tir.For):
            self._loops.append(stmt)
        try:
            yield
        finally:
            del self._divergent_scopes[before[0] :], self._guards[before[1] :], self._loops[before[2] :]

    def _branch(self, stmt: tir.IfThenElse) -> tuple[Stmt, _Summary]:
        condition = stmt.condition
        divergent = self._divergence.differs(condition)
        uses = self._accesses(condition, stmt)
        with self._inside(stmt, divergent, condition):
            then, one = self.body(stmt.then_body)
        other, two = stmt.else_body, _Summary()
        if stmt.else_body is not None:
            with self._inside(stmt, divergent, c.logical_not(condition)):
                other, two = self.body(stmt.else_body)
        closed = one.closed and two.closed
        tail = one.tail + two.tail + ([] if closed else uses)
        branch = replace(stmt, then_body=then, else_body=other)
        return branch, _Summary(uses + one.head + two.head, tail, closed)

    def _loop(self, loop: tir.For) -> tuple[Stmt, _Summary]:
        divergent = self._divergence.differs(loop.min) or self._divergence.differs(loop.extent)
        uses = self._accesses(loop.min, loop) + self._accesses(loop.extent, loop)
        if divergent:
            self._divergence.mark(loop.var)
        with self._inside(loop, divergent):
            body, inner = self.body(loop.body)
            body, inner = self._loop_carried(body, inner, loop)
        trips = tir.const_int(loop.extent)
        if inner.closed and loop.kind is ForKind.VECTORIZED:
            loop = replace(loop, kind=ForKind.SERIAL)
        closed = inner.closed and trips is not None and trips > 0
        return replace(loop, body=body), _Summary(uses + inner.head, inner.tail + ([] if closed else uses), closed)

    def _loop_carried(self, body: Body, inner: _Summary, loop: tir.For | None) -> tuple[Body, _Summary]:
        """Insert a barrier into the body of a loop that carries a dependence between threads."""
        if loop is not None and tir.const_int(loop.extent) == 1:
            return body, inner
        for at, head in inner.starts:
            conflict = self._conflict(inner.tail, head, loop, inner.closed)
            if conflict is None:
                continue
            if self._divergent_scopes:
                raise _DivergentBarrier(*conflict)
            before = [use for place, uses in inner.starts if place < at for use in uses]
            body = (*body[:at], block_barrier(), *body[at:])
            return body, _Summary(before, inner.tail, True)
        return body, inner

    # ------------------------------------------------------------ divergence

    def _split_divergent(self, stmt: Stmt, problem: _DivergentBarrier) -> list[Stmt] | None:
        """Split a statement under divergence into several, so that a barrier can stand between them; None if an outer
        scope diverges. Raises CompileError if it cannot be split."""
        parts: list[Stmt] | None = None
        match stmt:
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other) if self._divergence.differs(
                condition
            ):
                if problem.barrier is None or is_thread_mask(condition):
                    parts = self._sink_into_branches(condition, then, other)
            case tir.For() if self._divergence.differs(stmt.min) or self._divergence.differs(stmt.extent):
                if problem.barrier is None:
                    uniform = with_uniform_bounds(stmt, self._divergence)
                    parts = None if uniform is None else [uniform]
            case tir.While(condition=condition) if self._divergence.differs(condition):
                pass
            case _:
                return None
        if parts is None:
            raise CompileError(_error(stmt, problem))
        return parts

    def _sink_into_branches(self, condition: Expr, then: Body, other: Body | None) -> list[Stmt] | None:
        guarded = sink_condition(condition, then, self._divergence)
        rest = sink_condition(c.logical_not(condition), other or (), self._divergence)
        return None if guarded is None or rest is None else guarded + rest

    # ------------------------------------------------------------ accesses

    def _accesses(self, node: tir.Stmt | Expr, stmt: Stmt) -> list[_Access]:
        """Return the accesses that other threads may see; for a statement, without those of its nested bodies."""
        uses = []
        parts = children(node) if nested_bodies(stmt) and node is stmt else [node]
        for part in parts:
            for touch in memory_accesses(part):
                root = self._aliases.of(touch.data).root
                if root is None or _scope(root) in ("global", "shared", "shared.dyn"):
                    around = tuple(self._guards), tuple(self._loops)
                    uses.append(_Access(touch, root, stmt.span, *around, self._in_async, is_call(stmt, TILE)))
        return uses

    def _conflict(
        self, before: Sequence[_Access], after: Sequence[_Access], loop: tir.For | None = None, next_only: bool = False
    ) -> tuple[_Access, _Access] | None:
        """Return two accesses that need a barrier between them, or None. With `loop`, the second is in a later
        iteration of it (the next one if `next_only`)."""
        if not self._threads:
            return None
        for a in before:
            for b in after:
                if not (a.touch.writes or b.touch.writes):
                    continue
                if a.is_bulk:
                    continue  # readers of a bulk copy's data wait for it (`bulk_tiles`)
                if a.root is b.root and a.root in self._write_only:
                    continue
                if a.root is not b.root and a.root is not None and b.root is not None:
                    continue
                if self._divergent_scopes and not (a.shared or b.shared):
                    continue  # of global memory, where barriers are not possible
                if not (self._is_ordered_by_pipeline(a, b, loop) or self._is_same_thread(a, b, loop, next_only)):
                    return a, b
        return None

    def _is_ordered_by_pipeline(self, a: _Access, b: _Access, loop: tir.For | None) -> bool:
        """Return True if one of two accesses is an asynchronous copy and a pipeline orders the two."""
        around = set(a.loops) & set(b.loops) if loop is None else {loop}
        return a.is_async != b.is_async and any(x.annotations.get(ORDERED) for x in around)

    def _is_same_thread(self, a: _Access, b: _Access, loop: tir.For | None, next_only: bool) -> bool:
        one, two = a.touch.index, b.touch.index
        if one is None or two is None or a.touch.data is not b.touch.data:
            return False
        if one.dtype.lanes > 1 or two.dtype.lanes > 1:
            return False
        common = set(self._loops) - {loop}
        inner = {x.var for use in (a, b) for x in use.loops if x not in common and x is not loop}
        other = {*self._threads, *inner, *self._bound}
        sides = [
            Side(index, use.guards, {x.var: tir.Range(x.min, x.extent) for x in (*self._axes, *use.loops)})
            for use, index in ((a, one), (b, two))
        ]
        carried_by = None if loop is None else (loop.var, 1 if next_only else None)
        return DependenceProblem(self._threads, other, carried_by).is_within_thread(*sides)


def _scope(data: tir.Var) -> str:
    return "global" if data.pointer is None else data.pointer.scope


def _error(scope: Stmt, problem: _DivergentBarrier) -> Diagnostic:
    what = "under a condition" if isinstance(scope, tir.IfThenElse) else "in a loop"
    divergence = Label(scope.span, "differs between threads")
    if problem.barrier is not None:
        text = f"a barrier is {what} that differs between the threads of a block"
        help = "threads that reach the barrier would wait forever for those that do not"
        return error("E0726", text, problem.barrier.span, related=(divergence,), help=help)
    assert problem.first is not None and problem.second is not None
    name = problem.second.touch.data.name
    text = f"threads exchange values through `{name}` {what} that differs between them"
    places = (Label(problem.first.span, "one thread accesses it here"), divergence)
    help = "a barrier is needed between the two accesses, and all threads must reach it"
    return error("E0726", text, problem.second.span, "another one here", related=places, help=help)


@dataclass(frozen=True)
class InsertBarriers(LoweringStep):
    """Insert barriers where threads of a block exchange values (TVM: ThreadSync).

    A barrier separates a write from an access of the same element by another thread, in program order or in a later
    iteration of a loop around both. It stands before the first statement that needs it. None is inserted where the
    indices prove that one thread makes both accesses, nor in functions with the attribute `mlcc.manual_barriers`.

    Before:  S[t] = A[t]; B[t] = S[63 - t]
    After:   S[t] = A[t]; T.tvm_storage_sync("shared"); B[t] = S[63 - t]
    """

    name: ClassVar[str] = "insert-barriers"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return insert_barriers(func)
