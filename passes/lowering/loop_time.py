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
from mlcc.ir.node import Node, children
from mlcc.ir.tir import Expr
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.work import CostMeter, call_picoseconds, operation_picoseconds

PER_BYTE = 16  # picoseconds: more than the last cache takes for a byte, less than memory


def picoseconds(loop: tir.For) -> Expr:
    """Return the time of a whole loop, as an int64 expression over variables known before it."""
    arithmetic = c.mul(c.cast(INT64, loop.extent), _Throughput({loop.var}).body(loop.body))
    return c.maximum(arithmetic, c.mul(_Traffic(loop).total_bytes(), PER_BYTE))


class _Throughput(CostMeter):
    """Throughput of a statement for independent iterations: memory accesses overlap with arithmetic.

    A multiplication and an addition are one instruction, and an accumulator stays in a register.
    """

    def store(self, stmt: tir.BufferStore) -> int:
        accumulator = _accumulator_load(stmt)
        memory = operation_picoseconds(stmt.value, _lanes(stmt.indices)) if accumulator is None else 0
        arithmetic = 0
        stack: list[Node] = [stmt.value]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferLoad):
                memory += 0 if node is accumulator else operation_picoseconds(node, _lanes(node.indices))
                continue
            if isinstance(node, tir.Call):
                arithmetic += call_picoseconds(node)
            elif isinstance(node, (tir.BinaryOp, tir.Cast, tir.Select)):
                arithmetic += operation_picoseconds(node)
            stack.extend(_operands(node))
        return max(arithmetic, memory // 2)


def _operands(node: Node) -> Iterator[Node]:
    """Yield the operands of a node. A product inside a sum yields its factors: the two are one multiply-add."""
    for child in children(node):
        if isinstance(node, (tir.Add, tir.Sub)) and isinstance(child, tir.Mul):
            yield from (child.lhs, child.rhs)
        elif isinstance(child, Expr):
            yield child


def _accumulator_load(stmt: tir.BufferStore) -> tir.BufferLoad | None:
    """Return the load of the stored element if the value is an operation on it: an accumulator kept in a register."""
    if not isinstance(stmt.value, tir.BinaryOp):
        return None
    for operand in (stmt.value.lhs, stmt.value.rhs):
        if isinstance(operand, tir.BufferLoad) and operand.buffer is stmt.buffer:
            same = (a is b or structural_equal(a, b) for a, b in zip(operand.indices, stmt.indices, strict=True))
            if all(same):
                return operand
    return None


def _lanes(indices: tuple[Expr, ...]) -> int:
    return max((1 if isinstance(i, tir.Broadcast) else i.dtype.lanes for i in indices), default=1)


_Loops = dict[tir.Var, None]  # variables of loops, in order: equal programs have equal estimates


class _Traffic:
    """The memory traffic of a loop, counting each element of a buffer once.

    An access touches as many elements as the loops in its index have iterations. All accesses of a buffer together
    touch at most its size.
    """

    def __init__(self, loop: tir.For) -> None:
        self._inner: set[tir.Var] = set()  # bound by the loop itself
        self._meter = CostMeter(self._inner)
        self._trips: dict[tir.Var, Expr] = {}
        self._loops_of_value: dict[tir.Var, _Loops] = {}  # of values that are bound to names
        self._seen: set[tir.Buffer] = set()
        self._private: set[tir.Var] = set()  # memory of one iteration: it stays in the first caches
        self._touched: dict[tir.Var, Expr] = {}
        self._sizes: dict[tir.Var, int] = {}
        self._stmt(loop)

    def total_bytes(self) -> Expr:
        total: Expr = tir.IntImm(INT64, 0)
        for data, touched in self._touched.items():
            if data not in self._private:
                total = c.add(total, c.minimum(touched, self._sizes[data]) if data in self._sizes else touched)
        return total

    def _stmt(self, stmt: tir.Stmt) -> None:
        match stmt:
            case tir.BufferStore():
                self._access(stmt.buffer, stmt.indices)
                self._expr(stmt.value)
                return
            case tir.Bind(var=var, value=value):
                self._loops_of_value[var] = self._loops(value)
                self._inner.add(var)
                return
            case tir.AllocBuffer(buffer=buffer):
                self._private.add(buffer.data)
            case tir.For(var=var, extent=extent):
                self._trips[var] = self._meter.trips(extent)
                self._inner.add(var)
        nested = nested_bodies(stmt)
        inside = {id(s) for body in nested for s in body}
        for child in children(stmt):
            if id(child) not in inside:
                self._expr(child)
        for body in nested:
            for each in body:
                self._stmt(each)

    def _expr(self, root: Node) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferLoad):
                self._access(node.buffer, node.indices)
                continue
            if isinstance(node, tir.Let):
                self._loops_of_value[node.var] = self._loops(node.value)
            stack.extend(children(node))

    def _access(self, buffer: tir.Buffer, indices: tuple[Expr, ...]) -> _Loops:
        """Record an access and return the loops that its indices depend on."""
        loops: _Loops = {}
        for index in indices:
            loops.update(self._loops(index))
        count: Expr = tir.IntImm(INT64, buffer.dtype.bytes * _lanes(indices))
        for var in loops:
            count = c.mul(count, self._trips[var])
        before = self._touched.get(buffer.data)
        self._touched[buffer.data] = count if before is None else c.add(before, count)
        if buffer not in self._seen:
            self._seen.add(buffer)
            size = _bytes(buffer)
            if size is not None:
                self._sizes[buffer.data] = max(size, self._sizes.get(buffer.data, 0))
        return loops

    def _loops(self, value: Node) -> _Loops:
        """Return the surrounding loops that a value depends on, recording its loads."""
        loops: _Loops = {}
        stack = [value]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.Var):
                if node in self._trips:
                    loops[node] = None
                elif node in self._loops_of_value:
                    loops.update(self._loops_of_value[node])
            elif isinstance(node, tir.BufferLoad):
                loops.update(self._access(node.buffer, node.indices))
            elif not isinstance(node, tir.IntImm):
                stack.extend(children(node))
        return loops


def _bytes(buffer: tir.Buffer) -> int | None:
    """Return the size of a buffer in bytes; None if its shape is symbolic."""
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        known = tir.const_int(extent)
        if known is None:
            return None
        size *= known
    return size
