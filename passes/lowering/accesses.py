"""Collect the accesses of allocated buffers in program order: each load and store with its loops and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from mlcc.arith.conditions import conjuncts
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, children, find, holds, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.effects import memory_accesses
from mlcc.passes.lowering.init_block import init_condition
from mlcc.passes.lowering.match_buffer import viewed_region

_fresh_numbers = count(-(1 << 40), -1)  # numbers of scopes that no other access shares
Scope = tuple[Stmt, int]  # a statement, and the number of one of its bodies


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """An access whose `indices` and `guards` have bound names replaced by their values where these stay the same.

    `path` are the scopes around, outermost first, and each guard says how many of them it stands in; of two accesses in
    one iteration of their common loops, the one with the lower `number` comes first.
    """

    buffer: tir.Buffer
    indices: tuple[Expr, ...]
    writes: bool
    guards: tuple[tuple[Expr, int], ...]
    path: tuple[Scope, ...]
    number: int

    def loops(self, start: int = 0) -> list[tir.For]:
        """Return the surrounding loops from a depth on, outermost first."""
        return [s for s, _ in self.path[start:] if isinstance(s, tir.For)]


@dataclass(slots=True, eq=False)
class BufferUses:
    """The accesses of one allocated buffer. `opaque`: some are unknown, through a pointer or another view."""

    allocation: tir.AllocBuffer
    path: tuple[Scope, ...]
    accesses: list[Access] = field(default_factory=list)
    opaque: bool = False


class AccessCollector:
    """Collect the accesses in loop code or blocks of allocated buffers, and of some `parameters`.

    `uses` are by data variable. `loose` are variables whose value may change between executions or is no expression of
    other variables. `jumps`: a loop may be left early.
    """

    def __init__(self, parameters: Iterable[tir.Buffer] = ()) -> None:
        self.uses: dict[tir.Var, BufferUses] = {b.data: BufferUses(tir.AllocBuffer(b), ()) for b in parameters}
        self.loose: set[tir.Var] = set()
        self.jumps = False
        self.values: dict[tir.Var, Expr] = {}  # of bound names
        self._views: dict[tir.Var, tuple[tir.Buffer, tuple[tir.Range, ...]]] = {}
        self._guards: list[tuple[Expr, int]] = []
        self._path: list[Scope] = []
        self._number = 0
        self._scopes = 0

    def body(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            self._stmt(stmt)

    # ------------------------------------------------------------ statements

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                self._expr(value)
                for index in indices:
                    self._expr(index)
                self._access(buffer, indices, True)
            case tir.For(min=low, extent=extent, step=step, body=body):
                for part in (low, extent, *(() if step is None else (step,))):
                    self._expr(part)
                self._visit_scope(stmt, lambda: self.body(body))
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                self._expr(condition)
                self._visit_under(condition, lambda: self._visit_scope(stmt, lambda: self.body(then)))
                no = c.logical_not(condition)
                self._visit_under(no, lambda: self._visit_scope(stmt, lambda: self.body(other or ())))
            case tir.While(condition=condition, body=body):
                self._expr(condition)
                self._visit_scope(stmt, lambda: self.body(body))
            case tir.Bind(var=var, value=value):
                self._expr(value)
                self._bind(var, value)
            case tir.AllocBuffer(buffer=buffer):
                self.uses[buffer.data] = BufferUses(stmt, tuple(self._path))
                for part in _layout_exprs(buffer):
                    self._expr(part)
            case tir.DeclBuffer(buffer=buffer, data=data) if (region := viewed_region(data)) is not None:
                self._view(buffer, *region)
            case tir.DeclBuffer(buffer=buffer, data=data):
                self._expr(data)  # an allocated buffer's data variable there makes that buffer opaque
                for part in _layout_exprs(buffer):
                    self._expr(part)
            case tir.AttrStmt(subject=subject, value=value, body=body):
                for part in (subject, value):
                    if isinstance(part, Node):
                        self._expr(part)
                self._visit_scope(stmt, lambda: self.body(body))
            case tir.BlockRealize():
                self._block(stmt)
            case tir.Break() | tir.Continue():
                self.jumps = True
            case _:
                for child in children(stmt):
                    self._expr(child)

    def _block(self, realize: tir.BlockRealize) -> None:
        """Visit a block. Its init is a scope of its own, run where all reduce axes are at their start."""
        block = realize.block
        for part in (*realize.values, realize.predicate):
            self._expr(part)
        for axis, value in zip(block.iter_vars, realize.values, strict=True):
            self._bind(axis.var, value)
        for view in block.match_buffers:
            self._expr(view.source.buffer.data)
        for buffer in block.alloc_buffers:
            self.uses[buffer.data] = BufferUses(tir.AllocBuffer(buffer), tuple(self._path))

        def visit() -> None:
            if block.init is not None:
                init = block.init
                begins = init_condition(block, realize.values, self._substituted)
                self._visit_under(begins, lambda: self._visit_scope(realize, lambda: self.body(init)))
            self._visit_scope(realize, lambda: self.body(block.body))

        self._visit_under(realize.predicate, visit)

    def _visit_scope(self, stmt: Stmt, visit: Callable[[], object]) -> None:
        self._scopes += 1
        self._path.append((stmt, self._scopes))
        visit()
        self._path.pop()

    def _visit_under(self, condition: Expr, visit: Callable[[], object]) -> None:
        parts = [(part, len(self._path)) for part in conjuncts(self._substituted(condition))]
        self._guards += parts
        visit()
        del self._guards[len(self._guards) - len(parts) :]

    def _bind(self, var: tir.Var, value: Expr) -> None:
        if var.dtype.is_handle or not is_pure(value):
            self.loose.add(var)
        else:
            self.values[var] = self._substituted(value)

    # ------------------------------------------------------------ expressions

    def _substituted(self, node: Expr) -> Expr:
        return substitute(node, self.values) if self.values else node

    def _expr(self, node: Node) -> None:
        match node:
            case tir.IntImm() | tir.FloatImm() | tir.StringImm():
                pass
            case tir.Var():
                if node in self.uses:
                    self.uses[node].opaque = True
            case tir.BufferLoad(buffer=buffer, indices=indices):
                for index in indices:
                    self._expr(index)
                self._access(buffer, indices, False)
            case tir.Call() if any(arg in self._views for arg in pointers(node)):
                self._through_views(node)
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, yes, no)):
                self._expr(condition)
                self._visit_under(condition, lambda: self._expr(yes))
                self._visit_under(c.logical_not(condition), lambda: self._expr(no))
            case tir.Call(op=tir.Op(name="tir.address_of" | "tir.tvm_access_ptr"), args=args):
                for arg in args:
                    self._expr(arg.buffer.data if isinstance(arg, tir.BufferLoad) else arg)
            case tir.Let(var=var, value=value, body=body):
                self._expr(value)
                self._bind(var, value)
                self._expr(body)
            case tir.Buffer(data=data):
                self._expr(data)
            case _:
                for child in children(node):
                    self._expr(child)

    # ------------------------------------------------------------ views

    def _view(self, view: tir.Buffer, source: tir.Buffer, region: tuple[tir.Range, ...]) -> None:
        """Record a view, so that accesses through it count as accesses of the source region."""
        for axis in region:
            self._expr(axis.min)
            self._expr(axis.extent)
        outer = self._views.get(source.data)
        if outer is not None:
            lead = len(outer[1]) - len(region)
            shifted = (tir.Range(c.add(o.min, r.min), r.extent) for o, r in zip(outer[1][lead:], region, strict=True))
            source, region = outer[0], (*outer[1][:lead], *shifted)
        if source.data in self.uses:
            self._views[view.data] = source, region

    def _through_views(self, call: tir.Call) -> None:
        """Record the accesses of a call with pointers to views: anywhere in the region of each view."""
        for touch in memory_accesses(call):
            view = self._views.get(touch.data)
            if view is None:
                self._expr(touch.data)
                continue
            source, region = view
            inner = [tir.For(tir.Var("i", r.min.dtype), c.const(0, r.min.dtype), r.extent, tir.ForKind.SERIAL, ())
                     for r in region]  # fmt: skip
            self._path += [(loop, next(_fresh_numbers)) for loop in inner]
            indices = tuple(c.add(r.min, loop.var) for r, loop in zip(region, inner, strict=True))
            self._access(source, indices, touch.writes)
            del self._path[len(self._path) - len(inner) :]
        for arg in (n for n in find(call, tir.BufferLoad)):
            self._access(arg.buffer, arg.indices, False)

    def _access(self, buffer: tir.Buffer, indices: tuple[Expr, ...], writes: bool) -> None:
        view = self._views.get(buffer.data)
        if view is not None and len(indices) <= len(view[1]):
            buffer, region = view
            lead = len(region) - len(indices)
            starts = tuple(axis.min for axis in region)
            indices = (*starts[:lead], *(_offset_index(i, s) for i, s in zip(indices, starts[lead:], strict=True)))
        uses = self.uses.get(buffer.data)
        if uses is None:
            return
        if buffer is not uses.allocation.buffer or len(indices) != len(buffer.shape):
            uses.opaque = True
        substituted = tuple(self._substituted(i) for i in indices)
        self._number += 1
        uses.accesses.append(Access(buffer, substituted, writes, tuple(self._guards), tuple(self._path), self._number))


def pointers(call: tir.Call) -> Iterator[tir.Var]:
    """Return the handle variables in a call's arguments."""
    return (n for n in walk(call) if isinstance(n, tir.Var) and n.dtype.is_handle)


def _offset_index(index: Expr, by: Expr) -> Expr:
    if isinstance(index, tir.Ramp):
        return tir.Ramp(index.dtype, c.add(index.base, by), index.stride, index.lanes)
    return c.add(index, by)


def is_pure(value: Node) -> bool:
    """Return True if the value depends on its variables alone: it loads nothing and calls nothing with an effect."""
    if holds(value, tir.BufferLoad):
        return False
    return not any(effect_of(call) > Effect.PURE for call in find(value, tir.Call))


def _layout_exprs(buffer: tir.Buffer) -> tuple[Expr, ...]:
    return (*buffer.shape, *buffer.strides, *(() if buffer.elem_offset is None else (buffer.elem_offset,)))
