"""Expressions as short text for messages, without dtypes."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm


def format_expr(expr: Expr, depth: int = 6) -> str:
    """Return an integer expression as text for messages, with `...` for parts that have no short form."""
    if depth == 0:
        return "..."
    match expr:
        case IntImm(value=value):
            return str(value)
        case tir.Var(name=name):
            return name
        case tir.Min(lhs=a, rhs=b) | tir.Max(lhs=a, rhs=b):
            return f"{type(expr).__name__.lower()}({format_expr(a, depth - 1)}, {format_expr(b, depth - 1)})"
        case tir.BinaryOp(lhs=a, rhs=b) if expr.symbol:
            left, right = (
                f"({format_expr(x, depth - 1)})" if isinstance(x, tir.BinaryOp) else format_expr(x, depth - 1)
                for x in (a, b)
            )
            return f"{left} {expr.symbol} {right}"
        case tir.Cast(value=value):
            return format_expr(value, depth)
    return "..."
