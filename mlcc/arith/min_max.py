"""Comparisons of sums with minima or maxima in them, operand by operand.

`c - max(x, y) * 2` is the minimum of `c - x * 2` and `c - y * 2`, and one minimum is at most another one where for each
operand of the latter there is one of the former that is at most that.
"""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, IntImm

_MAX_OPERANDS = 16  # operands of one side
_Kind = type[tir.Min] | type[tir.Max]
_DUAL: dict[_Kind, _Kind] = {tir.Min: tir.Max, tir.Max: tir.Min}


def prove_less_equal(a: Expr, b: Expr, analyzer: Analyzer) -> bool:
    """Prove `a <= b` operand by operand of minima and maxima; False if neither side contains one."""
    if not any(isinstance(node, (tir.Min, tir.Max)) for node in walk((a, b))):
        return False

    def less(x: Expr, y: Expr) -> bool:
        return analyzer.prove(c.less_equal(analyzer.simplify(c.sub(x, y)), IntImm(x.dtype, 0)))

    lower, upper = min_max_operands(a, tir.Min), min_max_operands(b, tir.Min)
    if all(any(less(x, y) for x in lower) for y in upper):
        return True
    lower, upper = min_max_operands(a, tir.Max), min_max_operands(b, tir.Max)
    return all(any(less(x, y) for y in upper) for x in lower)


def min_max_operands(expr: Expr, kind: _Kind) -> list[Expr]:
    """Return expressions whose minimum, or maximum, is `expr`: at most 16, or `expr` itself."""
    parts = _operands_of(expr, kind)
    return parts if parts and len(parts) <= _MAX_OPERANDS else [expr]


def _operands_of(expr: Expr, kind: _Kind) -> list[Expr]:
    match expr:
        case tir.Min(lhs=x, rhs=y) | tir.Max(lhs=x, rhs=y) if isinstance(expr, kind):
            return [*min_max_operands(x, kind), *min_max_operands(y, kind)]
        case tir.Add(lhs=x, rhs=y):
            return [c.add(p, q) for p in min_max_operands(x, kind) for q in min_max_operands(y, kind)]
        case tir.Sub(lhs=x, rhs=y):
            return [c.sub(p, q) for p in min_max_operands(x, kind) for q in min_max_operands(y, _DUAL[kind])]
        case tir.Mul(lhs=x, rhs=IntImm(value=factor) as by):
            return [c.mul(p, by) for p in min_max_operands(x, kind if factor > 0 else _DUAL[kind])]
    return [expr]
