"""Scalar expansion: turn values and local memory that are live across regions into arrays indexed by thread.

A definition that is only used in its own region is kept. One that is used in other regions is rematerialised there if
it is pure, else stored in an array; local memory that is used in other regions becomes a slice of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Stmt
from mlcc.targets.emulate.split import Region, Splitter, is_pure
from mlcc.targets.emulate.threads import Body
from mlcc.targets.plan.kernel_memory import bodies


@dataclass(slots=True, eq=False)
class _Definition:
    """A definition in the region numbered `region`; `array` holds its value for other regions."""

    stmt: tir.Bind | tir.AllocBuffer | tir.DeclBuffer
    region: int
    order: int
    array: tir.Buffer | None = None


def expand_scalars(splitter: Splitter, body: Body, around: Callable[[Region, Body], Stmt]) -> Body:
    """Expand live values and replace each region by `around(region, body of a thread)`.

    New arrays are added to those of the splitter.
    """
    return _ScalarExpansion(splitter, body, around).body(body)


class _ScalarExpansion:
    def __init__(self, splitter: Splitter, body: Body, around: Callable[[Region, Body], Stmt]) -> None:
        self._splitter = splitter
        self._around = around
        self._region_numbers: dict[int, int] = {}
        self._live_ins: list[set[tir.Var]] = []
        self._definitions: dict[tir.Var, _Definition] = {}
        regions = list(_regions(body))
        for number, region in enumerate(regions):
            self._region_numbers[id(region)] = number
            for stmt in region.body:
                self._define(stmt, number)
        for region in regions:
            self._live_ins.append(self._live_in(region))
        for number, needed in enumerate(self._live_ins):
            for var in needed:
                self._expand_if_live_out(self._definitions[var], number)

    def _define(self, stmt: Stmt, region: int) -> None:
        if isinstance(stmt, (tir.Bind, tir.AllocBuffer, tir.DeclBuffer)):
            self._definitions[_defined_var(stmt)] = _Definition(stmt, region, len(self._definitions))

    def _live_in(self, region: Region) -> set[tir.Var]:
        """Return the live-in definitions of a region, with those needed to rematerialise them."""
        needed: set[tir.Var] = set()
        pending = [v for stmt in region.body for v in _uses(stmt)]
        while pending:
            var = pending.pop()
            known = self._definitions.get(var)
            if known is not None and var not in needed:
                needed.add(var)
                if self._is_rematerialised(known):
                    pending.extend(_uses(known.stmt))
        return needed

    def _is_rematerialised(self, definition: _Definition) -> bool:
        """Return True if a definition is rematerialised in each region that needs it."""
        stmt = definition.stmt
        return isinstance(stmt, tir.DeclBuffer) or (isinstance(stmt, tir.Bind) and is_pure(stmt.value))

    def _expand_if_live_out(self, definition: _Definition, region: int) -> None:
        if definition.region == region or definition.array is not None or self._is_rematerialised(definition):
            return
        stmt, count = definition.stmt, self._splitter.threads.count
        if isinstance(stmt, tir.Bind):
            definition.array = self._splitter.array(stmt.var.name, stmt.var.dtype)
        elif isinstance(stmt, tir.AllocBuffer):
            size = c.mul(c.cast(INT64, count), c.cast(INT64, _element_count(stmt.buffer)))
            definition.array = self._splitter.array(stmt.buffer.name, stmt.buffer.dtype, size)

    # ------------------------------------------------------------ rewriting

    def body(self, statements: Body) -> Body:
        return tuple(self._stmt(s) for s in statements)

    def _stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Region):
            return self._region(stmt)
        if isinstance(stmt, tir.IfThenElse):
            other = None if stmt.else_body is None else self.body(stmt.else_body)
            return replace(stmt, then_body=self.body(stmt.then_body), else_body=other)
        if isinstance(stmt, (tir.For, tir.While, tir.AttrStmt)):
            return replace(stmt, body=self.body(stmt.body))
        return stmt

    def _region(self, region: Region) -> Stmt:
        number = self._region_numbers[id(region)]
        needed = sorted((self._definitions[v] for v in self._live_ins[number]), key=lambda d: d.order)
        body: list[Stmt] = [self._redefine(d) for d in needed if d.region != number]
        for stmt in region.body:
            body.extend(self._define_in_place(stmt))
        return self._around(region, tuple(body))

    def _redefine(self, definition: _Definition) -> Stmt:
        """Return the statement that rematerialises or reloads a definition of another region."""
        stmt, array, number = definition.stmt, definition.array, self._splitter.threads.number
        if array is None:
            return stmt
        if isinstance(stmt, tir.Bind):
            return tir.Bind(stmt.var, c.load(array, number), span=stmt.span)
        return self._slice(stmt.buffer, array)

    def _define_in_place(self, stmt: Stmt) -> Iterator[Stmt]:
        array = None
        if isinstance(stmt, (tir.Bind, tir.AllocBuffer)):
            array = self._definitions[_defined_var(stmt)].array
        if isinstance(stmt, tir.AllocBuffer) and array is not None:
            yield self._slice(stmt.buffer, array)
            return
        yield stmt
        if isinstance(stmt, tir.Bind) and array is not None:
            yield tir.BufferStore(array, stmt.var, (self._splitter.threads.number,))

    def _slice(self, buffer: tir.Buffer, array: tir.Buffer) -> Stmt:
        """Declare a local buffer as the thread's slice of an array."""
        size = c.mul(c.cast(INT64, _element_count(buffer)), buffer.dtype.bytes * buffer.dtype.lanes)
        offset = c.mul(c.cast(INT64, self._splitter.threads.number), size)
        return tir.DeclBuffer(buffer, c.call("handle", "handle_add_byte_offset", array.data, offset))


def _regions(body: Body) -> Iterator[Region]:
    for stmt in body:
        if isinstance(stmt, Region):
            yield stmt
        for nested in bodies(stmt):
            yield from _regions(nested)


def _defined_var(stmt: tir.Bind | tir.AllocBuffer | tir.DeclBuffer) -> tir.Var:
    return stmt.var if isinstance(stmt, tir.Bind) else stmt.buffer.data


def _uses(stmt: Stmt) -> Iterator[tir.Var]:
    for part in walk(stmt):
        if isinstance(part, tir.Var):
            yield part
        elif isinstance(part, tir.Buffer):
            yield part.data


def _element_count(buffer: tir.Buffer) -> tir.Expr:
    size: tir.Expr = c.const(1, INT64)
    for dim in buffer.shape:
        size = c.mul(size, c.cast(INT64, dim))
    return size
