"""Extents, offsets and integer scalars of the graph level: int64 expressions over the symbols of an entry.

`widen` brings any integer expression to that form, `Dims` simplifies and compares, `as_json` writes one for the
manifest, `emit` computes one, on request noticing overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, Span, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.runtime.manifest import show
from mlcc.targets.llvm.ir_text import FunctionText, Value, integer

_ARITHMETIC: dict[type, str] = {
    tir.Add: "+", tir.Sub: "-", tir.Mul: "*", tir.FloorDiv: "//", tir.FloorMod: "%", tir.Div: "div", tir.Mod: "mod",
    tir.Min: "min", tir.Max: "max",
}  # fmt: skip
_COMPARE: dict[type, str] = {tir.LT: "<", tir.LE: "<=", tir.EQ: "==", tir.NE: "!="}
_MIRROR: dict[type, type] = {tir.GT: tir.LT, tir.GE: tir.LE}
_CALLS = {
    "tir.shift_left": "<<", "tir.shift_right": ">>", "tir.bitwise_and": "&", "tir.bitwise_or": "|",
    "tir.bitwise_xor": "^",
}  # fmt: skip
_CHOICE = ("tir.if_then_else",)


def widen(expr: tir.Expr, symbols: Mapping[tir.Var, tir.Expr]) -> tir.Expr:
    """`expr` in int64 (conditions stay bool) with its variables replaced.

    Raises CompileError for a variable that `symbols` does not have, and for what is no integer arithmetic.
    """
    match expr:
        case tir.IntImm(value=value):
            return tir.IntImm(INT64, value)
        case tir.Var():
            found = symbols.get(expr)
            if found is None:
                raise _refused(f"`{expr.name}` is not known when the function is entered", expr.span)
            return c.not_equal(found, 0) if expr.dtype.is_bool and not found.dtype.is_bool else found
        case tir.Cast(value=value) if (value.dtype.is_int or value.dtype.is_bool) and expr.dtype.is_int:
            inner = widen(value, symbols)
            return as_number(inner)
        case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
            join = c.logical_and if isinstance(expr, tir.And) else c.logical_or
            return join(widen(a, symbols), widen(b, symbols))
        case tir.Not(value=value):
            return c.logical_not(widen(value, symbols))
        case tir.Select(condition=a, true_value=t, false_value=f):
            return choose(widen(a, symbols), widen(t, symbols), widen(f, symbols))
        case tir.Call(op=tir.Op(name=name), args=(a, t, f)) if name in _CHOICE:
            return choose(widen(a, symbols), widen(t, symbols), widen(f, symbols))
        case tir.Call(op=tir.Op(name=name), args=(a, b)) if name in _CALLS:
            return tir.Call(INT64, expr.op, (as_number(widen(a, symbols)), as_number(widen(b, symbols))))
        case tir.Let(var=var, value=value, body=body):
            return widen(body, {**symbols, var: widen(value, symbols)})
        case tir.BinaryOp(lhs=a, rhs=b) if type(expr) in _ARITHMETIC or type(expr) in _COMPARE or type(expr) in _MIRROR:
            if a.dtype.is_int or a.dtype.is_bool:
                left, right = as_number(widen(a, symbols)), as_number(widen(b, symbols))
                if type(expr) in _MIRROR:
                    return _mirrored(expr, left, right)
                made: tir.Expr = type(expr)(INT64 if type(expr) in _ARITHMETIC else expr.dtype, left, right)
                return made
    raise _refused(f"`{expr}` is no integer arithmetic that a shape can be computed by", expr.span)


def _mirrored(expr: tir.BinaryOp, left: tir.Expr, right: tir.Expr) -> tir.Expr:
    """a > b is b < a."""
    made: tir.Expr = _MIRROR[type(expr)](expr.dtype, right, left)
    return made


def _refused(message: str, span: Span | None) -> CompileError:
    return CompileError(error("E0753", message, span))


def as_number(expr: tir.Expr) -> tir.Expr:
    """A condition as 0 or 1; numbers as they are."""
    if not expr.dtype.is_bool:
        return expr
    return choose(expr, tir.IntImm(INT64, 1), tir.IntImm(INT64, 0))


def choose(condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> tir.Expr:
    """true where the condition holds, else false."""
    known = tir.const_int(condition)
    if known is not None:
        return true if known else false
    condition = condition if condition.dtype.is_bool else c.not_equal(condition, 0)
    return tir.Select(INT64, condition, as_number(true), as_number(false))


class Dims:
    """Simplification and proofs about the symbols of one function; extents are known not to be negative."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def extent(self, symbol: tir.Var) -> None:
        """Take it that a symbol is some tensor's extent."""
        self.analyzer.bind_bound(symbol, 0, (1 << 62) - 1)

    def simplify(self, expr: tir.Expr) -> tir.Expr:
        """The expression in canonical form; as it is where that form has constants that overflow."""
        if isinstance(expr, (tir.IntImm, tir.Var)):
            return expr
        try:
            with c.exact_integers():
                return self.analyzer.simplify(expr)
        except OverflowError:
            return expr

    def equal(self, a: tir.Expr, b: tir.Expr) -> bool | None:
        """Whether a == b always or never; None if that depends."""
        try:
            with c.exact_integers():
                if self.analyzer.prove_equal(a, b):
                    return True
                found = self.analyzer.compare(a, b)
        except OverflowError:
            return None
        return False if found.min > 0 or found.max < 0 else None

    def never_negative(self, expr: tir.Expr) -> bool:
        return self.analyzer.prove_at_least(expr, 0)

    def key(self, expr: tir.Expr) -> int:
        """Equal numbers for equal expressions."""
        return self.analyzer.keys.key(expr)


def as_json(expr: tir.Expr, names: Mapping[tir.Var, str]) -> Any:
    """The manifest's form of an expression: a number, a symbol's name, or a list."""
    match expr:
        case tir.IntImm(value=value):
            return value
        case tir.Var():
            return names[expr]
        case tir.Select(condition=a, true_value=t, false_value=f):
            return ["select", as_json(a, names), as_json(t, names), as_json(f, names)]
        case tir.Call(op=tir.Op(name=name), args=(a, b)) if name in _CALLS:
            return [_CALLS[name], as_json(a, names), as_json(b, names)]
        case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
            word = "min" if isinstance(expr, tir.And) else "max"
            return [word, as_json(a, names), as_json(b, names)]
        case tir.Not(value=a):
            return ["-", 1, as_json(a, names)]
        case tir.BinaryOp(lhs=a, rhs=b):
            if type(expr) in _MIRROR:
                a, b = b, a
            kind = _MIRROR.get(type(expr), type(expr))
            word = _ARITHMETIC.get(kind) or _COMPARE[kind]
            return [word, as_json(a, names), as_json(b, names)]
    raise AssertionError(f"{type(expr).__name__} is not widened")


def plain(expr: tir.Expr) -> str:
    """An expression for messages: `n * 2`, without dtypes."""
    return show(_tuples(as_json(expr, {n: n.name for n in walk(expr) if isinstance(n, tir.Var)})))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


# ---------------------------------------------------------------- code


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
        """What is computed inside is forgotten at the end: the code after it does not come by there."""
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
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = self._compute(expr)
        return found

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
                return self._bitwise(_CALLS[name], x, y)
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
            made = fn.select(special, fn.binary("mul", a, b), fn.binary("sdiv", a, safe))
        else:
            made = remainder
        if isinstance(expr, (tir.Div, tir.Mod)):
            return made
        signs = fn.icmp("slt", fn.binary("xor", remainder, b), zero)
        below = fn.binary("and", signs, fn.icmp("ne", remainder, zero))
        if isinstance(expr, tir.FloorDiv):
            return fn.binary("sub", made, fn.convert("zext", below, "i64"))
        return fn.select(below, fn.binary("add", made, b), made)


_PREDICATES: dict[type, str] = {
    tir.LT: "slt", tir.LE: "sle", tir.GT: "sgt", tir.GE: "sge", tir.EQ: "eq", tir.NE: "ne",
}  # fmt: skip
