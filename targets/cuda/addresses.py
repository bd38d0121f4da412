"""Split addresses into a variable base and an offset that is constant once loops are unrolled.

LLVM recognises contiguous accesses by a common base and constant offsets. In an unsplit address the optimiser may turn
the sum into an equivalent bitwise or, which hides the common base.
"""

from __future__ import annotations

from collections.abc import Set

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import find

_OVERFLOW_GUARD = 1 << 62
Term = tuple[tir.Expr, int]  # an expression and its coefficient


def split_index(index: tir.Expr, unrolled: Set[tir.Var]) -> tuple[tir.Expr, tir.Expr] | None:
    """Split a scalar index into a variable int64 base and an int64 offset over `unrolled` variables and constants.

    Return None if it cannot be split.
    """
    variable: list[Term] = []
    constant: list[Term] = []
    for term in _terms(index, 1):
        leaves = find(term[0], tir.Var, tir.BufferLoad, tir.Call)
        (constant if all(n in unrolled for n in leaves) else variable).append(term)
    return (_sum(variable), _sum(constant)) if variable and constant else None


def _terms(node: tir.Expr, factor: int) -> list[Term]:
    """Return the terms of an expression: sums, and products of sums with constants, are expanded."""
    match node:
        case tir.Add():
            return [*_terms(node.lhs, factor), *_terms(node.rhs, factor)]
        case tir.Sub():
            return [*_terms(node.lhs, factor), *_terms(node.rhs, -factor)]
        case tir.Mul(rhs=tir.IntImm(value=times)):
            return _terms(node.lhs, factor * times)
        case tir.Mul(lhs=tir.IntImm(value=times)):
            return _terms(node.rhs, factor * times)
        case tir.Cast(value=value) if node.dtype is INT64 and value.dtype.kind == "int" and value.dtype.bits >= 32:
            return _terms(value, factor)
    return [(node, factor)]


def _sum(terms: list[Term]) -> tir.Expr:
    total: tir.Expr = tir.IntImm(INT64, 0)
    for node, factor in terms:
        if (
            type(node) is type(total) is tir.IntImm
            and abs(node.value * factor) < _OVERFLOW_GUARD
            and abs(total.value) < _OVERFLOW_GUARD
        ):
            # fast path: same result as below
            total = tir.IntImm(INT64, total.value + node.value * factor)
            continue
        total = c.add(total, c.mul(c.cast(INT64, node), factor))
    return total
