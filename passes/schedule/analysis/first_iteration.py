"""Conditions for the first iteration of reduction loops."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import vars_of


def first_iteration_condition(part: tir.Expr, start: Mapping[tir.Var, tir.Expr], analyzer: Analyzer) -> tir.Expr | None:
    """Return `part` with the loops of `start` at their first iteration; None if it may become true in a later one.

    The condition is TRUE where it is known to hold. `analyzer` knows the ranges of the loops.
    """
    at_start = analyzer.simplify(substitute(part, start)) if vars_of(part) & start.keys() else part
    if analyzer.prove(at_start):
        return tir.TRUE
    return at_start if at_start is part or _never_turns_true(part, at_start, analyzer) else None


def _never_turns_true(part: tir.Expr, at_start: tir.Expr, analyzer: Analyzer) -> bool:
    """Return True if the comparison `part` holds only if it holds at the start: it never turns from false to true."""
    if not isinstance(part, tir.CompareOp) or type(part) is not type(at_start):
        return False
    assert isinstance(at_start, tir.CompareOp)
    growth = c.sub(c.sub(part.lhs, part.rhs), c.sub(at_start.lhs, at_start.rhs))
    if isinstance(part, (tir.LT, tir.LE)):
        return analyzer.prove_at_least(growth, 0)
    return isinstance(part, (tir.GT, tir.GE)) and analyzer.prove_at_least(analyzer.simplify(c.negate(growth)), 0)
