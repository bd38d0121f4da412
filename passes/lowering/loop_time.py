"""Estimate how long a parallel loop takes on one thread: the larger of arithmetic and memory traffic (a roofline).

The estimate decides whether a loop is worth waking threads for. What `work` counts, operations one after the other,
decides how a loop is split; for products that is several times the time they take, and for transposes a tenth of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import Node, children, walk
from mlcc.ir.tir import Expr
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.work import Meter, call_weight, weight

PER_BYTE = 16  # picoseconds: more than the last cache takes for a byte, less than memory


def picoseconds(loop: tir.For) -> Expr:
    """The time of a whole loop, as an int64 expression over what is known before it."""
    arithmetic = c.mul(c.cast(INT64, loop.extent), _Throughput({loop.var}).body(loop.body))
    return c.maximum(arithmetic, c.mul(_Traffic(loop).bytes(), PER_BYTE))


class _Throughput(Meter):
    """Statements at the rate of independent iterations: loads and stores overlap with arithmetic, a multiplication and
    an addition are one instruction, and what a statement adds up stays in a register."""

    def store(self, stmt: tir.BufferStore) -> int:
        sums_up = _accumulates(stmt)
        memory = sum(map(_loads, stmt.indices)) + (0 if sums_up else weight(stmt.value, _lanes(stmt.indices)))
        arithmetic = 0
        stack: list[Node] = [stmt.value]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferLoad):
                in_register = sums_up and _same_place(node, stmt)
                memory += sum(map(_loads, node.indices)) + (0 if in_register else weight(node, _lanes(node.indices)))
                continue
            if isinstance(node, tir.Call):
                arithmetic += call_weight(node)
            elif isinstance(node, (tir.BinaryOp, tir.Cast, tir.Select)):
                arithmetic += weight(node)
            stack.extend(_operands(node))
        return max(arithmetic, memory // 2)


def _operands(node: Node) -> Iterator[Node]:
    """What a node computes with. Of a sum with a product, the factors: the two are one multiply-add."""
    for child in children(node):
        if isinstance(node, (tir.Add, tir.Sub)) and isinstance(child, tir.Mul):
            yield from (child.lhs, child.rhs)
        elif isinstance(child, Expr):
            yield child


def _accumulates(stmt: tir.BufferStore) -> bool:
    """Whether the value stored is an operation on the element that is stored to."""
    value = stmt.value
    return isinstance(value, tir.BinaryOp) and any(
        isinstance(operand, tir.BufferLoad) and _same_place(operand, stmt) for operand in (value.lhs, value.rhs)
    )


def _same_place(load: tir.BufferLoad, stmt: tir.BufferStore) -> bool:
    return load.buffer is stmt.buffer and all(map(structural_equal, load.indices, stmt.indices))


def _lanes(indices: tuple[Expr, ...]) -> int:
    return max((1 if isinstance(i, tir.Broadcast) else i.dtype.lanes for i in indices), default=1)


def _loads(index: Expr) -> int:
    """Picoseconds of the loads inside an index."""
    return sum(weight(n) for n in walk(index) if isinstance(n, tir.BufferLoad))


class _Traffic:
    """The memory that a loop reads and writes, each element of a buffer once.

    An access touches as many elements as the loops that its index depends on have iterations; all accesses of a buffer
    together no more than it has.
    """

    def __init__(self, loop: tir.For) -> None:
        self._inner: set[tir.Var] = set()  # what the loop binds itself
        self._meter = Meter(self._inner)
        self._trips: dict[tir.Var, Expr] = {}
        self._behind: dict[tir.Var, frozenset[tir.Var]] = {}  # loop variables that a value is computed from
        self._own: set[tir.Var] = set()  # memory of one iteration: it stays in the first caches
        self._touched: dict[tir.Var, Expr] = {}
        self._sizes: dict[tir.Var, int] = {}
        self._stmt(loop)

    def bytes(self) -> Expr:
        total: Expr = tir.IntImm(INT64, 0)
        for data, touched in self._touched.items():
            if data not in self._own:
                total = c.add(total, c.minimum(touched, self._sizes[data]) if data in self._sizes else touched)
        return total

    def _stmt(self, stmt: tir.Stmt) -> None:
        nested = nested_bodies(stmt)
        inside = {id(s) for body in nested for s in body}
        match stmt:
            case tir.AllocBuffer(buffer=buffer):
                self._own.add(buffer.data)
            case tir.For(var=var, extent=extent):
                self._trips[var] = self._meter.trips(extent)
                self._inner.add(var)
            case tir.Bind(var=var, value=value):
                self._behind[var] = self._loops(value)
                self._inner.add(var)
            case tir.BufferStore():
                self._access(stmt.buffer, stmt.indices)
        for child in children(stmt):
            if id(child) not in inside:
                self._expr(child)
        for body in nested:
            for each in body:
                self._stmt(each)

    def _expr(self, root: Node) -> None:
        for node in walk(root):
            if isinstance(node, tir.Let):
                self._behind[node.var] = self._loops(node.value)
            elif isinstance(node, tir.BufferLoad):
                self._access(node.buffer, node.indices)

    def _access(self, buffer: tir.Buffer, indices: tuple[Expr, ...]) -> None:
        count: Expr = tir.IntImm(INT64, buffer.dtype.bytes * _lanes(indices))
        for var in frozenset().union(*map(self._loops, indices)):
            count = c.mul(count, self._trips[var])
        known = [tir.const_int(extent) for extent in buffer.shape]
        if None not in known:
            size = buffer.dtype.bytes
            for extent in known:
                size *= extent or 0
            self._sizes[buffer.data] = max(size, self._sizes.get(buffer.data, 0))
        before = self._touched.get(buffer.data)
        self._touched[buffer.data] = count if before is None else c.add(before, count)

    def _loops(self, value: Node) -> frozenset[tir.Var]:
        found: set[tir.Var] = set()
        for node in walk(value):
            if isinstance(node, tir.Var):
                found |= {node} if node in self._trips else self._behind.get(node, frozenset())
        return frozenset(found)
