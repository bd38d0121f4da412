"""Conditions on iterators as bounds: of a variable, which narrow its range, or of a sum of iterators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.proofs import is_zero
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr

Ranges = dict[tir.Var, tir.Range]


@dataclass(frozen=True, slots=True)
class Constraint:
    """Bounds of a value: low <= value < high; None for a missing end."""

    value: Expr
    low: Expr | None
    high: Expr | None

    @property
    def size(self) -> int:
        """The number of nodes of the value: a sum that contains another one is longer."""
        return sum(1 for _ in walk(self.value))


def constraints_of(predicate: Expr, iters: Mapping[tir.Var, tir.Range]) -> tuple[Ranges, list[Constraint]] | None:
    """Return the narrowed ranges of the iterators, and the other bounds; None unless `predicate` is a conjunction.

    Its parts are comparisons. Those without an iterator are left out.
    """
    ranges, constraints = dict(iters), []
    rest: Expr | None = predicate
    while rest is not None:
        comparison_and_rest = _take_comparison(rest)
        if comparison_and_rest is None:
            return None
        comparison, rest = comparison_and_rest
        constraint = _bound_of(comparison, iters)
        if constraint is None:
            continue
        span = ranges.get(constraint.value) if isinstance(constraint.value, tir.Var) else None
        if span is None:
            constraints.append(constraint)
            continue
        low, end = span.min, c.add(span.min, span.extent)
        if constraint.low is not None:
            low = c.maximum(low, constraint.low)
        if constraint.high is not None:
            end = c.minimum(end, constraint.high)
        ranges[constraint.value] = tir.Range(low, end if is_zero(low) else c.sub(end, low))  # type: ignore[index]
    return ranges, sorted(constraints, key=lambda constraint: constraint.size)


def _take_comparison(predicate: Expr) -> tuple[tir.CompareOp, Expr | None] | None:
    """Return one comparison of a conjunction and the rest, in TVM's order: < before <= before > before >=."""
    for kind in (tir.LT, tir.LE, tir.GT, tir.GE):
        if isinstance(predicate, tir.And) and isinstance(predicate.rhs, kind):
            return predicate.rhs, predicate.lhs
        if isinstance(predicate, tir.And) and isinstance(predicate.lhs, kind):
            return predicate.lhs, predicate.rhs
        if isinstance(predicate, kind):
            return predicate, None
    return None


def _bound_of(comparison: tir.CompareOp, iters: Mapping[tir.Var, tir.Range]) -> Constraint | None:
    """Return the bound that a comparison puts on its side with iterators; None if no side has any."""
    a, b = comparison.lhs, comparison.rhs
    if not uses_any(a, iters):
        if not uses_any(b, iters):
            return None
        a, b = b, a
        flipped = True
    else:
        flipped = False
        if uses_any(b, iters):
            a, b = _split_sides(c.sub(a, b), iters)
    greater = isinstance(comparison, (tir.GT, tir.GE)) != flipped
    equal = isinstance(comparison, (tir.LE, tir.GE))
    if greater:
        return Constraint(a, b if equal else c.add(b, 1), None)
    return Constraint(a, None, c.add(b, 1) if equal else b)


def _split_sides(difference: Expr, iters: Mapping[tir.Var, tir.Range]) -> tuple[Expr, Expr]:
    """Return the terms with iterators, and minus those without."""
    left = right = c.const(0)

    def collect(part: Expr, positive: bool) -> None:
        nonlocal left, right
        match part:
            case tir.Add(lhs=a, rhs=b) | tir.Sub(lhs=a, rhs=b):
                collect(a, positive)
                collect(b, positive == isinstance(part, tir.Add))
            case _ if uses_any(part, iters):
                left = c.add(left, part) if positive else c.sub(left, part)
            case _:
                right = c.sub(right, part) if positive else c.add(right, part)

    collect(difference, True)
    analyzer = Analyzer()
    return analyzer.simplify(left), analyzer.simplify(right)


def uses_any(expr: Expr, iters: Mapping[tir.Var, object]) -> bool:
    """Return True if one of the variables occurs in the expression."""
    if isinstance(expr, tir.IntImm):
        return False
    return any(isinstance(node, tir.Var) and node in iters for node in walk(expr))
