"""Expressions in messages: short, without the dtypes that the text needs."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm


def spell(expr: Expr) -> str:
    """An integer expression as one would say it; `...` for what has no short form."""
    match expr:
        case IntImm(value=value):
            return str(value)
        case tir.Var(name=name):
            return name
        case tir.Min(lhs=a, rhs=b) | tir.Max(lhs=a, rhs=b):
            return f"{type(expr).__name__.lower()}({spell(a)}, {spell(b)})"
        case tir.BinaryOp(lhs=a, rhs=b) if expr.symbol:
            left, right = (f"({spell(x)})" if isinstance(x, tir.BinaryOp) else spell(x) for x in (a, b))
            return f"{left} {expr.symbol} {right}"
        case tir.Cast(value=value):
            return spell(value)
    return "..."
