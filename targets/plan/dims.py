"""Extents, offsets and integer scalars of the graph level: int64 expressions over the symbols known at entry.

`widen` rewrites an integer expression to that form, `Dims` simplifies and compares, `as_json` serialises for the
manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, Span, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.runtime.manifest import show

ARITHMETIC: dict[type, str] = {
    tir.Add: "+", tir.Sub: "-", tir.Mul: "*", tir.FloorDiv: "//", tir.FloorMod: "%", tir.Div: "div", tir.Mod: "mod",
    tir.Min: "min", tir.Max: "max",
}  # fmt: skip
COMPARE: dict[type, str] = {tir.LT: "<", tir.LE: "<=", tir.EQ: "==", tir.NE: "!="}
MIRROR: dict[type, type] = {tir.GT: tir.LT, tir.GE: tir.LE}
CALLS = {
    "tir.shift_left": "<<", "tir.shift_right": ">>", "tir.bitwise_and": "&", "tir.bitwise_or": "|",
    "tir.bitwise_xor": "^",
}  # fmt: skip
_SELECT_CALLS = ("tir.if_then_else",)


def widen(expr: tir.Expr, symbols: Mapping[tir.Var, tir.Expr]) -> tir.Expr:
    """Rewrite `expr` in int64 (conditions stay bool) and substitute its variables.

    Raises CompileError E0753 for a variable that is not in `symbols`, and for anything but integer arithmetic.
    """
    match expr:
        case tir.IntImm(value=value):
            return tir.IntImm(INT64, value)
        case tir.Var():
            replacement = symbols.get(expr)
            if replacement is None:
                raise _not_computable(f"`{expr.name}` is unknown when the function is entered", expr.span)
            return c.not_equal(replacement, 0) if expr.dtype.is_bool and not replacement.dtype.is_bool else replacement
        case tir.Cast(value=value) if (value.dtype.is_int or value.dtype.is_bool) and expr.dtype.is_int:
            inner = widen(value, symbols)
            return as_int(inner)
        case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
            join = c.logical_and if isinstance(expr, tir.And) else c.logical_or
            return join(widen(a, symbols), widen(b, symbols))
        case tir.Not(value=value):
            return c.logical_not(widen(value, symbols))
        case tir.Select(condition=a, true_value=t, false_value=f):
            return choose(widen(a, symbols), widen(t, symbols), widen(f, symbols))
        case tir.Call(op=tir.Op(name=name), args=(a, t, f)) if name in _SELECT_CALLS:
            return choose(widen(a, symbols), widen(t, symbols), widen(f, symbols))
        case tir.Call(op=tir.Op(name=name), args=(a, b)) if name in CALLS:
            return tir.Call(INT64, expr.op, (as_int(widen(a, symbols)), as_int(widen(b, symbols))))
        case tir.Let(var=var, value=value, body=body):
            return widen(body, {**symbols, var: widen(value, symbols)})
        case tir.BinaryOp(lhs=a, rhs=b) if type(expr) in ARITHMETIC or type(expr) in COMPARE or type(expr) in MIRROR:
            if a.dtype.is_int or a.dtype.is_bool:
                left, right = as_int(widen(a, symbols)), as_int(widen(b, symbols))
                if type(expr) in MIRROR:
                    return _mirrored(expr, left, right)
                wide: tir.Expr = type(expr)(INT64 if type(expr) in ARITHMETIC else expr.dtype, left, right)
                return wide
    raise _not_computable(f"`{expr}` is not integer arithmetic, so a shape cannot be computed from it", expr.span)


def _mirrored(expr: tir.BinaryOp, left: tir.Expr, right: tir.Expr) -> tir.Expr:
    """Rewrite a > b as b < a, and a >= b as b <= a."""
    mirrored: tir.Expr = MIRROR[type(expr)](expr.dtype, right, left)
    return mirrored


def _not_computable(message: str, span: Span | None) -> CompileError:
    return CompileError(error("E0753", message, span))


def as_int(expr: tir.Expr) -> tir.Expr:
    """Convert a condition to 0 or 1; return numbers unchanged."""
    if not expr.dtype.is_bool:
        return expr
    return choose(expr, tir.IntImm(INT64, 1), tir.IntImm(INT64, 0))


def choose(condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> tir.Expr:
    """Select `true` if the condition holds, else `false`; a constant condition is folded."""
    known = tir.const_int(condition)
    if known is not None:
        return true if known else false
    condition = condition if condition.dtype.is_bool else c.not_equal(condition, 0)
    return tir.Select(INT64, condition, as_int(true), as_int(false))


class Dims:
    """Simplification and proofs over the symbols of one function; extents are assumed not to be negative."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def extent(self, symbol: tir.Var) -> None:
        """Assume that a symbol is the extent of a tensor."""
        self.analyzer.bind_bound(symbol, 0, (1 << 62) - 1)

    def simplify(self, expr: tir.Expr) -> tir.Expr:
        """Return the canonical form of an expression, or the expression itself if constants of that form overflow."""
        if isinstance(expr, (tir.IntImm, tir.Var)):
            return expr
        try:
            with c.exact_integers():
                return self.analyzer.simplify(expr)
        except OverflowError:
            return expr

    def equal(self, a: tir.Expr, b: tir.Expr) -> bool | None:
        """Return True if a == b always, False if never, None if that depends on the symbols or is unknown."""
        try:
            with c.exact_integers():
                if self.analyzer.prove_equal(a, b):
                    return True
                difference = self.analyzer.compare(a, b)
        except OverflowError:
            return None
        return False if difference.min > 0 or difference.max < 0 else None

    def never_negative(self, expr: tir.Expr) -> bool:
        return self.analyzer.prove_at_least(expr, 0)

    def key(self, expr: tir.Expr) -> int:
        """Return a number that is the same for equal expressions."""
        return self.analyzer.keys.key(expr)


def as_json(expr: tir.Expr, names: Mapping[tir.Var, str]) -> Any:
    """Serialise an expression for the manifest: a number, a symbol's name, or a list [operator, operands...]."""
    match expr:
        case tir.IntImm(value=value):
            return value
        case tir.Var():
            return names[expr]
        case tir.Select(condition=a, true_value=t, false_value=f):
            return ["select", as_json(a, names), as_json(t, names), as_json(f, names)]
        case tir.Call(op=tir.Op(name=name), args=(a, b)) if name in CALLS:
            return [CALLS[name], as_json(a, names), as_json(b, names)]
        case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
            word = "min" if isinstance(expr, tir.And) else "max"
            return [word, as_json(a, names), as_json(b, names)]
        case tir.Not(value=a):
            return ["-", 1, as_json(a, names)]
        case tir.BinaryOp(lhs=a, rhs=b):
            if type(expr) in MIRROR:
                a, b = b, a
            kind = MIRROR.get(type(expr), type(expr))
            word = ARITHMETIC.get(kind) or COMPARE[kind]
            return [word, as_json(a, names), as_json(b, names)]
    raise AssertionError(f"{type(expr).__name__} is not widened")


def format_dim(expr: tir.Expr) -> str:
    """Format an expression for messages: `n * 2`, without dtypes."""
    return show(_tuples(as_json(expr, {n: n.name for n in walk(expr) if isinstance(n, tir.Var)})))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
