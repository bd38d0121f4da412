"""Expand virtual threads: a loop bound to `vthread.x`, `.y` or `.z` becomes the work of several threads in the code of
one.

A statement that depends on the virtual thread is replicated, one copy next to the other; invariant statements are kept
once. Enclosing loops and conditions are shared, so that one tile in shared memory serves all virtual threads. An
allocation inside whose contents differ is replicated, too. Iterations of a thread-bound loop are independent, so that
their statements may be interleaved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, find, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.buffer_offsets import OffsetBuffer, OffsetCopier, fragment_sizes, replicated_buffer
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.manage.stages import FLAT

MAX_UNROLLED = 16  # virtual threads that are unrolled; more of them become a loop


def inject_virtual_threads(func: tir.PrimFunc) -> tir.PrimFunc:
    """Expand the virtual threads of `func` (flat loop code)."""
    return replace(func, body=_Injector().body(func.body))


class _Injector(TirMutator):
    """Replace loops over virtual threads, innermost first."""

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = super().stmt_for(node)
        assert isinstance(loop, tir.For)
        if loop.kind is not ForKind.THREAD_BINDING or not _is_virtual(loop.thread):
            return loop
        return list(_expand(loop.var, loop.min, loop.extent, loop.body))

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        scope = super().stmt_attr(node)
        axis = node.subject
        if not isinstance(scope, tir.AttrStmt) or not isinstance(axis, tir.IterVar):
            return scope
        if node.key == "virtual_thread" or (node.key == "thread_extent" and _is_virtual(axis.thread_tag)):
            return list(_expand(axis.var, c.const(0, axis.var.dtype), c.as_expr(scope.value), scope.body))
        return scope


def _is_virtual(axis: str | None) -> bool:
    return axis is not None and axis.startswith(("vthread", "cthread"))


def _expand(var: tir.Var, low: Expr, extent: Expr, body: Body) -> Body:
    count = tir.const_int(extent)
    varying = VaryingState(body, var)
    many = count is None or count > MAX_UNROLLED
    if count is None or (many and varying.has_declarations):
        return (tir.For(var, low, extent, ForKind.SERIAL, body),)  # one after the other, in memory used again
    return _Interleaver(var, low, count, varying, fragment_sizes(body), many).run(body)


class VaryingState:
    """The variables and memory that depend on a variable: their contents vary with it, or are written for some of its
    values only.

    `memory` are data variables (roots of views); `names` scalars and views.
    """

    def __init__(self, body: Body, var: tir.Var) -> None:
        self.names: set[tir.Var] = {var}
        self.memory: set[tir.Var] = set()
        self._aliases = Aliases()
        size = -1
        while size != len(self.names) + len(self.memory):
            size = len(self.names) + len(self.memory)
            self._visit(body, False)
        self.has_declarations = any(map(self.is_replicated, _statements(body)))

    def is_replicated(self, stmt: Stmt) -> bool:
        """Return True if a statement declares a variable or memory of which each value of the variable needs a copy."""
        match stmt:
            case tir.Bind(var=var):
                return var in self.names
            case tir.DeclBuffer(buffer=buffer):
                return buffer.data in self.names
            case tir.AllocBuffer(buffer=buffer):
                return buffer.data in self.memory
        return False

    def varies(self, node: Node) -> bool:
        """Return True if an expression may vary with the variable."""
        for part in walk(node):
            if isinstance(part, tir.Var):
                if part in self.names or self._root(part) in self.memory:
                    return True
            elif isinstance(part, tir.Buffer) and (self._root(part.data) in self.memory or part.data in self.names):
                return True
        return False

    def _root(self, data: tir.Var) -> tir.Var:
        return self._aliases.of(data).root or data

    def _visit(self, body: Body, divergent: bool) -> None:
        """`divergent`: under a condition, or in a loop, that differs."""
        for stmt in body:
            match stmt:
                case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                    if divergent or self.varies(value) or any(map(self.varies, indices)) or buffer.data in self.names:
                        self.memory.add(self._root(buffer.data))
                case tir.Bind(var=var, value=value):
                    if var.dtype.is_handle:
                        self._aliases.bind(var, value)
                    if self.varies(value):
                        self.names.add(var)
                case tir.DeclBuffer(buffer=buffer, data=data):
                    self._aliases.bind(buffer.data, data)
                    if any(n in self.names for n in walk(data) if isinstance(n, tir.Var)):
                        self.names.add(buffer.data)
                case tir.Evaluate(value=value):
                    if divergent or self.varies(value):
                        for call in (n for n in find(value, tir.Call)):
                            if effect_of(call) >= Effect.UPDATE:
                                self._record_call(call)
            inner_divergent = divergent
            match stmt:
                case tir.For():
                    parts = (stmt.min, stmt.extent, *(() if stmt.step is None else (stmt.step,)))
                    inner_divergent = divergent or any(map(self.varies, parts))
                case tir.IfThenElse(condition=condition) | tir.While(condition=condition):
                    inner_divergent = divergent or self.varies(condition)
            for nested in nested_bodies(stmt):
                self._visit(nested, inner_divergent)

    def _record_call(self, call: tir.Call) -> None:
        for part in walk(call):
            if isinstance(part, tir.Var) and part.dtype.is_handle:
                self.memory.add(self._root(part))
            elif isinstance(part, tir.Buffer):
                self.memory.add(self._root(part.data))


def _statements(body: Body) -> list[Stmt]:
    statements: list[Stmt] = []
    for stmt in body:
        statements.append(stmt)
        for nested in nested_bodies(stmt):
            statements += _statements(nested)
    return statements


class _Interleaver:
    """Interleave the statements of all virtual threads. With `loops`, a varying statement runs in a loop over them."""

    def __init__(
        self, var: tir.Var, low: Expr, count: int, varying: VaryingState, fragments: dict[tir.Var, int], loops: bool
    ) -> None:
        self._var = var
        self._low = low
        self._varying = varying
        self._loops = loops
        self._count = count
        self._places: list[dict[tir.Var, OffsetBuffer]] = [{} for _ in range(0 if loops else count)]
        self._copies = [
            OffsetCopier({var: c.add(low, number)}, places, fragments) for number, places in enumerate(self._places)
        ]

    def run(self, body: Body) -> Body:
        stmts: list[Stmt] = []
        for stmt in body:
            stmts += self._stmt(stmt)
        return tuple(stmts)

    def _stmt(self, stmt: Stmt) -> Body:
        varying = self._varying
        match stmt:
            case tir.AllocBuffer(buffer=buffer) if buffer.data in varying.memory:
                whole, distance = replicated_buffer(buffer, self._count)
                for number, places in enumerate(self._places):
                    places[buffer.data] = OffsetBuffer(whole, c.mul(distance, number))
                return (replace(stmt, buffer=whole),)
            case tir.For():
                parts = (stmt.min, stmt.extent, *(() if stmt.step is None else (stmt.step,)))
                if not any(map(varying.varies, parts)):
                    return (replace(stmt, body=self.run(stmt.body)),)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                if not varying.varies(condition):
                    return (
                        replace(stmt, then_body=self.run(then), else_body=None if other is None else self.run(other)),
                    )
            case tir.While(condition=condition, body=inner):
                if not varying.varies(condition):
                    return (replace(stmt, body=self.run(inner)),)
            case tir.AttrStmt(subject=subject, value=value, body=inner):
                if not any(isinstance(part, Node) and varying.varies(part) for part in (subject, value)):
                    return (replace(stmt, body=self.run(inner)),)
        if not varying.varies(stmt):
            return (stmt,)
        if self._loops:
            own = tir.Var(self._var.name, self._var.dtype, span=self._var.span)
            copy = OffsetCopier({self._var: own}, {}, {}).body((stmt,))
            return (tir.For(own, self._low, c.const(self._count, own.dtype), ForKind.SERIAL, copy),)
        return tuple(s for copy in self._copies for s in copy.body((stmt,)))


@dataclass(frozen=True)
class InjectVirtualThreads(LoweringStep):
    """Expand virtual threads into the code of one thread (TVM: InjectVirtualThread).

    Before:  for v in T.thread_binding(2, thread="vthread.x"): C[v * 8 + t] = ...
    After:   C[t] = ...; C[8 + t] = ...
    """

    name: ClassVar[str] = "inject-virtual-threads"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return inject_virtual_threads(func)
