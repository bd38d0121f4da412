"""Code that computes extents, offsets and integer scalars of the graph level (`mlcc.targets.plan.dims`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mlcc.ir import tir
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer
from mlcc.targets.plan.dims import CALLS, Dims


class DimCode:
    """Computes expressions in one function, each once. With `overflow` (a stack slot of i1) it notes overflow there.

    Everything is computed where it is first asked for: ask in a block that the later uses come after.
    """

    def __init__(self, fn: FunctionText, dims: Dims, symbols: Mapping[tir.Var, Value], overflow: bool = False) -> None:
        self.fn = fn
        self.dims = dims
        self.symbols = dict(symbols)
        self.failed: Value | None = integer("i1", 0) if overflow else None
        self._done: dict[int, Value] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end which values were computed inside: that code does not dominate the code after it."""
        done = dict(self._done)
        try:
            yield
        finally:
            self._done = done

    def value(self, expr: tir.Expr) -> Value:
        """The i64 (for a condition the i1) of an expression."""
        if isinstance(expr, tir.IntImm):
            return integer("i1" if expr.dtype.is_bool else "i64", expr.value)
        if isinstance(expr, tir.Var):
            return self.symbols[expr]
        key = self.dims.key(expr)
        value = self._done.get(key)
        if value is None:
            value = self._done[key] = self._compute(expr)
        return value

    def _compute(self, expr: Any) -> Value:
        fn = self.fn
        match expr:
            case tir.Select(condition=a, true_value=t, false_value=f):
                return fn.select(self._flag(a), self.value(t), self.value(f))
            case tir.And(lhs=a, rhs=b):
                return fn.binary("and", self._flag(a), self._flag(b))
            case tir.Or(lhs=a, rhs=b):
                return fn.binary("or", self._flag(a), self._flag(b))
            case tir.Not(value=a):
                return fn.binary("xor", self._flag(a), integer("i1", 1))
        left, right = (expr.lhs, expr.rhs) if isinstance(expr, tir.BinaryOp) else expr.args
        x, y = self.value(left), self.value(right)
        match expr:
            case tir.CompareOp():
                return fn.icmp(_PREDICATES[type(expr)], x, y)
            case tir.Add():
                return self._arithmetic("add", x, y)
            case tir.Sub():
                return self._arithmetic("sub", x, y)
            case tir.Mul():
                return self._arithmetic("mul", x, y)
            case tir.Min():
                return fn.select(fn.icmp("slt", x, y), x, y)
            case tir.Max():
                return fn.select(fn.icmp("sgt", x, y), x, y)
            case tir.Call(op=tir.Op(name=name)):
                return self._bitwise(CALLS[name], x, y)
        return self._divide(expr, x, y)

    def _flag(self, expr: tir.Expr) -> Value:
        value = self.value(expr)
        return value if value.type == "i1" else self.fn.icmp("ne", value, integer("i64", 0))

    def _arithmetic(self, op: str, a: Value, b: Value) -> Value:
        fn = self.fn
        if self.failed is None:
            return fn.binary(op, a, b)
        name = fn.module.declare(f"llvm.s{op}.with.overflow.i64", "{ i64, i1 }", ["i64", "i64"])
        pair = fn.call("{ i64, i1 }", name, [a, b])
        self.failed = fn.binary("or", self.failed, fn.extract_value("i1", pair, 1))
        return fn.extract_value("i64", pair, 0)

    def _bitwise(self, op: str, a: Value, b: Value) -> Value:
        fn = self.fn
        if op in ("<<", ">>"):  # a count outside the width shifts everything out
            inside = fn.icmp("ult", b, integer("i64", 64))
            count = fn.select(inside, b, integer("i64", 63))
            moved = fn.binary("shl" if op == "<<" else "ashr", a, count)
            return moved if op == ">>" else fn.select(inside, moved, integer("i64", 0))
        return fn.binary({"&": "and", "|": "or", "^": "xor"}[op], a, b)

    def _divide(self, expr: tir.BinaryOp, a: Value, b: Value) -> Value:
        """Division and remainder, rounding as the node says; by 0 both are 0, and the least number by -1 wraps."""
        fn = self.fn
        zero, one = integer("i64", 0), integer("i64", 1)
        special = fn.icmp("ult", fn.binary("add", b, one), integer("i64", 2))  # 0 and -1
        safe = fn.select(special, one, b)
        remainder = fn.binary("srem", a, safe)
        if isinstance(expr, (tir.Div, tir.FloorDiv)):
            result = fn.select(special, fn.binary("mul", a, b), fn.binary("sdiv", a, safe))
        else:
            result = remainder
        if isinstance(expr, (tir.Div, tir.Mod)):
            return result
        signs = fn.icmp("slt", fn.binary("xor", remainder, b), zero)
        below = fn.binary("and", signs, fn.icmp("ne", remainder, zero))
        if isinstance(expr, tir.FloorDiv):
            return fn.binary("sub", result, fn.convert("zext", below, "i64"))
        return fn.select(below, fn.binary("add", result, b), result)


_PREDICATES: dict[type, str] = {
    tir.LT: "slt", tir.LE: "sle", tir.GT: "sgt", tir.GE: "sge", tir.EQ: "eq", tir.NE: "ne",
}  # fmt: skip
