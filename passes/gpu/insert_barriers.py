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
from mlcc.passes.gpu.divergence import Varying, drawn_in, is_barrier, is_threads_left_out, whole_range
from mlcc.passes.gpu.form_kernels import change_kernels
from mlcc.passes.gpu.pipeline import ASYNC, ORDERED
from mlcc.passes.gpu.thread_dependence import Meeting, Side
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.effects import Touch, touches
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.manage.stages import FLAT

MANUAL = "mlcc.manual_barriers"  # of a function that has all the barriers that it is to have


def insert_barriers(func: tir.PrimFunc) -> tir.PrimFunc:
    """Insert barriers into the kernels of `func`, flat loop code with formed kernels. Raises CompileError."""
    if func.attrs.get(MANUAL):
        return func
    return change_kernels(func, _synchronised)


def _synchronised(loops: Sequence[tir.For], body: Body) -> Body:
    if any(called(n).barrier is not None for n in find(body, tir.Call)):
        return body  # it orders accesses by mbarriers itself
    return _Sync(loops, _results(body)).body(body)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """An access with its guards and enclosing loops."""

    touch: Touch
    root: tir.Var | None
    span: Span | None
    guards: tuple[Expr, ...]
    loops: tuple[tir.For, ...]
    later: bool  # an asynchronous copy
    bulk: bool = False  # an access of the copy engine

    @property
    def shared(self) -> bool:
        return self.root is None or _scope(self.root).startswith("shared")


@dataclass(slots=True, eq=False)
class _Summary:
    """The accesses of code before its first barrier (`head`) and after its last (`tail`). `closed` if every path
    reaches a barrier. `starts` are the statements before the first one, each with its accesses."""

    head: list[_Use] = field(default_factory=list)
    tail: list[_Use] = field(default_factory=list)
    closed: bool = False
    starts: list[tuple[int, list[_Use]]] = field(default_factory=list)


class _Inside(Exception):
    """Raised where a barrier is needed, or stands, under divergence."""

    def __init__(self, first: _Use | None, second: _Use | None, barrier: Stmt | None = None) -> None:
        self.first, self.second, self.barrier = first, second, barrier


def _results(body: Body) -> set[tir.Var]:
    """Return the global memory that the kernel writes by known indices and never reads: no flow between threads.

    Two threads that write the same element race in the program itself; a barrier would not order them."""
    written: set[tir.Var] = set()
    other: set[tir.Var] = set()
    for stmt in body:
        for touch in touches(stmt):
            (written if touch.writes and touch.index is not None else other).add(touch.data)
        for node in find(stmt, tir.DeclBuffer, tir.Bind):  # views may read
            other |= {n for n in walk(node) if isinstance(n, tir.Var) and n.dtype.is_handle}
    return {data for data in written - other if _scope(data) == "global"}


class _Sync:
    def __init__(self, threads: Sequence[tir.For], results: Container[tir.Var] = ()) -> None:
        self._results = results
        self._varying = Varying()
        for loop in threads:
            if loop.thread in BLOCK:
                self._varying.thread(loop)
        self._axes = tuple(threads)
        self._threads = [x.var for x in threads if x.thread in BLOCK and tir.const_int(x.extent) != 1]
        self._loops: list[tir.For] = []
        self._guards: list[Expr] = []
        self._apart: list[Stmt] = []  # scopes around that threads do not run alike
        self._later = False
        self._aliases = Aliases()
        self._bound: set[tir.Var] = set()

    # ------------------------------------------------------------ statements

    def body(self, body: Body) -> tuple[Body, _Summary]:
        """Insert barriers between statements; return these and a summary of their accesses."""
        stmts: list[Stmt] = []
        summary = _Summary()
        waiting = list(reversed(body))
        while waiting:
            stmt = waiting.pop()
            try:
                new, inner = self._stmt(stmt)
            except _Inside as problem:
                parts = self._parted(stmt, problem)
                if parts is None:
                    raise
                waiting += reversed(parts)
                continue
            clash = self._clash(summary.tail, inner.head)
            if clash is not None:
                if self._apart:
                    raise _Inside(*clash)
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
                uses = self._uses(condition, stmt)
                with self._around(stmt, self._varying.differs(condition)):
                    body, inner = self.body(stmt.body)
                    body, inner = self._carried(body, inner, None)
                inner = _Summary(uses + inner.head, inner.tail + uses)
                return replace(stmt, body=body), inner
            case tir.AttrStmt(key=key):
                outer, self._later = self._later, self._later or key == ASYNC
                body, inner = self.body(stmt.body)
                self._later = outer
                return replace(stmt, body=body), inner
            case tir.Evaluate() if is_barrier(stmt):
                if self._apart:
                    raise _Inside(None, None, stmt)
                return stmt, _Summary(closed=True)
            case tir.Bind(var=var, value=value):
                self._bind(var, value)
            case tir.DeclBuffer(buffer=buffer, data=data):
                self._aliases.bind(buffer.data, data)
        uses = self._uses(stmt, stmt)
        return stmt, _Summary(uses, uses)

    def _bind(self, var: tir.Var, value: Expr) -> None:
        self._bound.add(var)
        if var.dtype.is_handle:
            self._aliases.bind(var, value)
        if self._varying.differs(value):
            self._varying.mark(var)

    @contextmanager
    def _around(self, stmt: Stmt, apart: bool, guard: Expr | None = None) -> Iterator[None]:
        before = len(self._apart), len(self._guards), len(self._loops)
        if apart:
            self._apart.append(stmt)
        if guard is not None:
            self._guards.append(guard)
        if isinstance(stmt, tir.For):
            self._loops.append(stmt)
        try:
            yield
        finally:
            del self._apart[before[0] :], self._guards[before[1] :], self._loops[before[2] :]

    def _branch(self, stmt: tir.IfThenElse) -> tuple[Stmt, _Summary]:
        condition = stmt.condition
        apart = self._varying.differs(condition)
        uses = self._uses(condition, stmt)
        with self._around(stmt, apart, condition):
            then, one = self.body(stmt.then_body)
        other, two = stmt.else_body, _Summary()
        if stmt.else_body is not None:
            with self._around(stmt, apart, c.logical_not(condition)):
                other, two = self.body(stmt.else_body)
        closed = one.closed and two.closed
        tail = one.tail + two.tail + ([] if closed else uses)
        branch = replace(stmt, then_body=then, else_body=other)
        return branch, _Summary(uses + one.head + two.head, tail, closed)

    def _loop(self, loop: tir.For) -> tuple[Stmt, _Summary]:
        apart = self._varying.differs(loop.min) or self._varying.differs(loop.extent)
        uses = self._uses(loop.min, loop) + self._uses(loop.extent, loop)
        if apart:
            self._varying.mark(loop.var)
        with self._around(loop, apart):
            body, inner = self.body(loop.body)
            body, inner = self._carried(body, inner, loop)
        trips = tir.const_int(loop.extent)
        if inner.closed and loop.kind is ForKind.VECTORIZED:
            loop = replace(loop, kind=ForKind.SERIAL)
        closed = inner.closed and trips is not None and trips > 0
        return replace(loop, body=body), _Summary(uses + inner.head, inner.tail + ([] if closed else uses), closed)

    def _carried(self, body: Body, inner: _Summary, loop: tir.For | None) -> tuple[Body, _Summary]:
        """Insert a barrier into the body of a loop if it has a loop-carried dependence between threads."""
        if loop is not None and tir.const_int(loop.extent) == 1:
            return body, inner
        for at, head in inner.starts:
            clash = self._clash(inner.tail, head, loop, inner.closed)
            if clash is None:
                continue
            if self._apart:
                raise _Inside(*clash)
            before = [use for place, uses in inner.starts if place < at for use in uses]
            body = (*body[:at], block_barrier(), *body[at:])
            return body, _Summary(before, inner.tail, True)
        return body, inner

    # ------------------------------------------------------------ divergence

    def _parted(self, stmt: Stmt, problem: _Inside) -> list[Stmt] | None:
        """Split a statement under divergence into several, so that a barrier can stand between them; None if an outer
        scope diverges. Raises CompileError if it cannot be split."""
        parts: list[Stmt] | None = None
        match stmt:
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other) if self._varying.differs(
                condition
            ):
                if problem.barrier is None or is_threads_left_out(condition):
                    parts = self._drawn(condition, then, other)
            case tir.For() if self._varying.differs(stmt.min) or self._varying.differs(stmt.extent):
                if problem.barrier is None:
                    whole = whole_range(stmt, self._varying)
                    parts = None if whole is None else [whole]
            case tir.While(condition=condition) if self._varying.differs(condition):
                pass
            case _:
                return None
        if parts is None:
            raise CompileError(_refusal(stmt, problem))
        return parts

    def _drawn(self, condition: Expr, then: Body, other: Body | None) -> list[Stmt] | None:
        guarded = drawn_in(condition, then, self._varying)
        rest = drawn_in(c.logical_not(condition), other or (), self._varying)
        return None if guarded is None or rest is None else guarded + rest

    # ------------------------------------------------------------ accesses

    def _uses(self, node: tir.Stmt | Expr, stmt: Stmt) -> list[_Use]:
        """Return the accesses that other threads may see; of a statement, without those of its nested bodies."""
        uses = []
        parts = children(node) if nested_bodies(stmt) and node is stmt else [node]
        for part in parts:
            for touch in touches(part):
                root = self._aliases.of(touch.data).root
                if root is None or _scope(root) in ("global", "shared", "shared.dyn"):
                    around = tuple(self._guards), tuple(self._loops)
                    uses.append(_Use(touch, root, stmt.span, *around, self._later, is_call(stmt, TILE)))
        return uses

    def _clash(
        self, before: Sequence[_Use], after: Sequence[_Use], loop: tir.For | None = None, once: bool = False
    ) -> tuple[_Use, _Use] | None:
        """Return two accesses that need a barrier between them, or None. With `loop`, the second is in a later
        iteration of it (the next one if `once`)."""
        if not self._threads:
            return None
        for a in before:
            for b in after:
                if not (a.touch.writes or b.touch.writes):
                    continue
                if a.bulk:
                    continue  # readers of a bulk copy's data wait for it (`bulk_tiles`)
                if a.root is b.root and a.root in self._results:
                    continue
                if a.root is not b.root and a.root is not None and b.root is not None:
                    continue
                if self._apart and not (a.shared or b.shared):
                    continue  # of global memory, as far as barriers can be had
                if not (self._ordered(a, b, loop) or self._by_one(a, b, loop, once)):
                    return a, b
        return None

    def _ordered(self, a: _Use, b: _Use, loop: tir.For | None) -> bool:
        """Return True if one access is an asynchronous copy, the other is none, and a pipeline orders the two."""
        around = set(a.loops) & set(b.loops) if loop is None else {loop}
        return a.later != b.later and any(x.annotations.get(ORDERED) for x in around)

    def _by_one(self, a: _Use, b: _Use, loop: tir.For | None, once: bool) -> bool:
        one, two = a.touch.index, b.touch.index
        if one is None or two is None or a.touch.data is not b.touch.data:
            return False
        if one.dtype.lanes > 1 or two.dtype.lanes > 1:
            return False
        here = set(self._loops) - {loop}
        inner = {x.var for use in (a, b) for x in use.loops if x not in here and x is not loop}
        other = {*self._threads, *inner, *self._bound}
        sides = [
            Side(index, use.guards, {x.var: tir.Range(x.min, x.extent) for x in (*self._axes, *use.loops)})
            for use, index in ((a, one), (b, two))
        ]
        ahead = None if loop is None else (loop.var, 1 if once else None)
        return Meeting(self._threads, other, ahead).never_between_threads(*sides)


def _scope(data: tir.Var) -> str:
    return "global" if data.pointer is None else data.pointer.scope


def _refusal(scope: Stmt, problem: _Inside) -> Diagnostic:
    what = "under a condition" if isinstance(scope, tir.IfThenElse) else "in a loop"
    here = Label(scope.span, "not the same for all threads")
    if problem.barrier is not None:
        text = f"a barrier stands {what} that is not the same for all threads of a block"
        return error("E0726", text, problem.barrier.span, related=(here,), help="those that come would wait for ever")
    assert problem.first is not None and problem.second is not None
    name = problem.second.touch.data.name
    text = f"threads hand values on through `{name}` {what} that is not the same for all of them"
    places = (Label(problem.first.span, "one thread is here"), here)
    help = "a barrier has to stand between the two, and all threads have to come to it"
    return error("E0726", text, problem.second.span, "another one here", related=places, help=help)


@dataclass(frozen=True)
class InsertBarriers(LoweringStep):
    """Insert barriers where threads of a block hand values to one another (TVM: ThreadSync).

    Before:  S[t] = A[t]; B[t] = S[63 - t]
    After:   S[t] = A[t]; T.tvm_storage_sync("shared"); B[t] = S[63 - t]
    """

    name: ClassVar[str] = "insert-barriers"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return insert_barriers(func)
