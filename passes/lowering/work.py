"""A rough cost model of loop code, accurate enough to decide whether a loop is worth threads.

A scalar operation, or one on a vector register's worth of lanes, counts a fraction of a nanosecond. Cache misses are
not modelled. Extents that are unknown at the loop are guessed.
"""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.intrinsics import Cost, called
from mlcc.ir.node import Node, children, find, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.mutator import Body

# picoseconds
OPERATION = 150
FUNCTION = 3_000  # of the mathematical kind, scalar
NATIVE = 50_000  # an extern or a native kernel
KERNEL = 5_000_000  # a PrimFunc of the module: whoever calls one in a parallel loop means it

_BYTES = 32  # of a vector that counts as one operation
_LARGE = 1 << 62
GUESS = 16  # trips of a loop of unknown extent


def picoseconds(body: Body) -> Expr:
    """Return the work of statements, as an int64 expression over variables known before them."""
    return CostMeter().body(body)


def iteration_picoseconds(loop: tir.For) -> Expr:
    """Return the work of one iteration of a loop, as an int64 expression over variables known before the loop."""
    return CostMeter({loop.var}).body(loop.body)


class CostMeter:
    """Sum up the costs of statements; a loop costs its trip count times its body."""

    def __init__(self, inner: set[tir.Var] | None = None) -> None:
        self._inner = set() if inner is None else inner  # variables that the code binds itself

    def body(self, body: Body) -> Expr:
        total: Expr = tir.IntImm(INT64, 0)
        for stmt in body:
            total = _add(total, self._stmt(stmt))
        return total

    def _stmt(self, stmt: Stmt) -> Expr:
        match stmt:
            case tir.For(var=var, extent=extent, body=body):
                self._inner.add(var)
                once = c.add(self.body(body), OPERATION)
                return c.mul(self.trips(extent), once)
            case tir.While(body=body):
                return c.mul(self.body(body), GUESS)
            case tir.AttrStmt(body=body):
                return self.body(body)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                longer = c.maximum(self.body(then), self.body(other or ()))
                return c.add(longer, _ops(condition))
            case tir.Bind(var=var, value=value):
                self._inner.add(var)
                return tir.IntImm(INT64, 0 if value.dtype.is_int else _ops(value))
            case tir.BufferStore():
                return tir.IntImm(INT64, self.store(stmt))
            case tir.Evaluate(value=value):
                return tir.IntImm(INT64, _ops(value))
        return tir.IntImm(INT64, 0)

    def store(self, stmt: tir.BufferStore) -> int:
        """Return the picoseconds of one store, with its value."""
        lanes = max((i.dtype.lanes for i in stmt.indices), default=1)
        return _ops(stmt.value) + sum(map(_loads, stmt.indices)) + operation_picoseconds(stmt.value, lanes)

    def trips(self, extent: Expr) -> Expr:
        known = tir.const_int(extent)
        if known is not None:
            return tir.IntImm(INT64, max(known, 0))
        if any(v in self._inner or isinstance(v, (tir.BufferLoad, tir.Let)) for v in walk(extent)):
            return tir.IntImm(INT64, GUESS)
        return c.maximum(c.cast(INT64, extent), tir.IntImm(INT64, 0))


def _add(a: Expr, b: Expr) -> Expr:
    """Return `a + b`; the operands are almost always constants."""
    if type(a) is type(b) is tir.IntImm:
        total = a.value + b.value
        if total < _LARGE:
            return tir.IntImm(INT64, total)
    return c.add(a, b)


def operation_picoseconds(value: Expr, lanes: int = 1) -> int:
    """Return the picoseconds of one operation on values of this type, or on `lanes` elements of it."""
    size = value.dtype.bytes * max(lanes, value.dtype.lanes)
    return OPERATION * max(1, -(-size // _BYTES) if max(lanes, value.dtype.lanes) > 1 else 1)


def _ops(value: Expr) -> int:
    """Return the picoseconds of an expression; address arithmetic is free."""
    total = 0
    stack: list[Node] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.BufferLoad):
            total += operation_picoseconds(node, max((i.dtype.lanes for i in node.indices), default=1)) + sum(
                map(_loads, node.indices)
            )
            continue
        if isinstance(node, tir.Call):
            total += call_picoseconds(node)
        elif isinstance(node, (tir.BinaryOp, tir.Cast, tir.Select)):
            total += operation_picoseconds(node)
        stack += children(node)
    return total


def call_picoseconds(node: tir.Call) -> int:
    """Return the picoseconds of a call, without its arguments."""
    if isinstance(node.op, relax.GlobalVar):
        return KERNEL
    intrinsic = called(node)
    if intrinsic.extern:
        return NATIVE
    return operation_picoseconds(node) * (FUNCTION // OPERATION if intrinsic.cost is Cost.FUNCTION else 1)


def _loads(index: Expr) -> int:
    """Return the picoseconds of the loads inside an index."""
    return sum(operation_picoseconds(n) for n in find(index, tir.BufferLoad))
