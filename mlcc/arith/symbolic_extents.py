"""Quotients and remainders by sizes that are not known: `(i * m + j) // m` is `i` where `j` runs from 0 to m.

A span is a product of a constant and sizes, as `4 * m * n`: an expression has the span `s` if it lies in 0 ... s - 1.
Spans of variables are those of their loops; sums, multiples, quotients and remainders have theirs from their operands.
Sizes are at least 0; a divisor is none of 0, so that its sizes are at least 1. A sum of sizes and positive constants,
as the length of a concatenation, counts as a size of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from mlcc.arith.proofs import factors
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import map_children
from mlcc.ir.tir import Expr, IntImm
from mlcc.ir.visit import substitute


@dataclass(frozen=True)
class SymbolicExtent:
    """A positive constant times sizes with multiplicities."""

    constant: int
    sizes: frozenset[tuple[tir.Var, int]] = frozenset()

    def times(self, other: SymbolicExtent) -> SymbolicExtent:
        return SymbolicExtent(
            self.constant * other.constant, frozenset((Counter(dict(self.sizes)) + Counter(dict(other.sizes))).items())
        )

    def over(self, other: SymbolicExtent) -> SymbolicExtent | None:
        """Return the quotient if there is no remainder, else None."""
        mine, theirs = Counter(dict(self.sizes)), Counter(dict(other.sizes))
        if self.constant % other.constant or theirs - mine:
            return None
        return SymbolicExtent(self.constant // other.constant, frozenset((mine - theirs).items()))

    def fits(self, other: SymbolicExtent) -> bool:
        """Return True if this span is at most the other for all sizes, provided that the other is not 0."""
        return self.constant <= other.constant and not Counter(dict(self.sizes)) - Counter(dict(other.sizes))

    def expr(self, dtype: DType) -> Expr:
        product: Expr = c.const(1, dtype)
        for size, count in sorted(self.sizes, key=lambda pair: pair[0].name):
            for _ in range(count):
                product = c.mul(product, c.cast(dtype, size))
        return c.mul(product, c.const(self.constant, dtype))


class SymbolicExtents:
    """Spans of variables; `sizes` are the variables known to be non-negative."""

    def __init__(self, sizes: Collection[tir.Var]) -> None:
        self._sizes = set(sizes)
        self._of: dict[tir.Var, SymbolicExtent] = {}
        self._sums: dict[tir.Var, Expr] = {}  # variables that stand for sums of sizes

    def bind(self, var: tir.Var, extent: Expr) -> None:
        """Assume 0 <= `var` < `extent`."""
        span = self.product(self._without_sums(extent))
        if span is not None and var not in self._sizes:
            self._of[var] = span

    def product(self, expr: Expr) -> SymbolicExtent | None:
        """Return the span of a product of a positive constant and sizes; None for another expression."""
        constant, sizes = 1, Counter[tir.Var]()
        for factor in factors(expr):
            while isinstance(factor, tir.Cast):
                factor = factor.value
            if isinstance(factor, IntImm) and factor.value > 0:
                constant *= factor.value
            elif isinstance(factor, tir.Var) and factor in self._sizes:
                sizes[factor] += 1
            else:
                return None
        return SymbolicExtent(constant, frozenset(sizes.items()))

    def simplify(self, expr: Expr) -> Expr:
        """Return the expression without the quotients and remainders that spans decide."""
        simplified = self._simplify(self._without_sums(expr))
        return substitute(simplified, self._sums) if self._sums else simplified

    def _without_sums(self, expr: Expr) -> Expr:
        """Return the expression with a variable for each sum of sizes."""
        if not isinstance(expr, tir.Add) or not self._is_sum_of_sizes(expr):
            return map_children(expr, lambda n: self._without_sums(n) if isinstance(n, Expr) else n)
        for var, total in self._sums.items():
            if same_expr(total, expr):
                return var
        var = tir.Var(f"size{len(self._sums)}", expr.dtype)  # products are ordered by the names of their factors
        self._sums[var] = expr
        self._sizes.add(var)
        return var

    def _is_sum_of_sizes(self, expr: Expr) -> bool:
        if isinstance(expr, tir.Add):
            return self._is_sum_of_sizes(expr.lhs) and self._is_sum_of_sizes(expr.rhs)
        return self.product(expr) is not None

    def _simplify(self, expr: Expr) -> Expr:
        expr = map_children(expr, lambda n: self._simplify(n) if isinstance(n, Expr) else n)
        if isinstance(expr, (tir.FloorDiv, tir.FloorMod)):
            by = self.product(expr.rhs)
            parts = None if by is None else self._divided(expr.lhs, by)
            if parts is not None:
                return parts[isinstance(expr, tir.FloorMod)]
        return expr

    def _divided(self, expr: Expr, by: SymbolicExtent) -> tuple[Expr, Expr] | None:
        """Return quotient and remainder of a sum of multiples of `by` and a part smaller than `by`."""
        quotient_sum: Expr = c.const(0, expr.dtype)
        rest: Expr = c.const(0, expr.dtype)
        left = []
        for term in _terms(expr):
            quotient = self._exact_quotient(term, by)
            if quotient is not None:
                quotient_sum = c.add(quotient_sum, quotient)
            else:
                left.append(term)
                rest = c.add(rest, term)
        span = self._sum(left)
        return (quotient_sum, rest) if span is not None and span.fits(by) else None

    def _exact_quotient(self, term: Expr, by: SymbolicExtent) -> Expr | None:
        """Return a term divided by `by`; None unless it is a multiple of it."""
        own, others = self._split_sizes(term)
        quotient = own.over(by)
        if quotient is None:
            return None
        divided = quotient.expr(term.dtype)
        for factor in others:
            divided = c.mul(factor, divided)
        return divided

    def _split_sizes(self, term: Expr) -> tuple[SymbolicExtent, list[Expr]]:
        """Return the constants and sizes of a product, and its other factors."""
        own, others = SymbolicExtent(1), []
        for factor in factors(term):
            span = self.product(factor)
            if span is None:
                others.append(factor)
            else:
                own = own.times(span)
        return own, others

    def _span(self, term: Expr) -> SymbolicExtent | None:
        """Return the span of an expression that is not a sum."""
        match term:
            case tir.Var():
                return self._of.get(term)
            case IntImm(value=value):
                return SymbolicExtent(value + 1) if value >= 0 else None
            case tir.Cast(value=value):
                return self._sum(_terms(value))
            case tir.Mul():
                own, others = self._split_sizes(term)
                inner = self._span(others[0]) if len(others) == 1 else None
                return None if inner is None else inner.times(own)
            case tir.Add():
                return self._sum(_terms(term))
            case tir.FloorDiv(lhs=value, rhs=divisor):
                inner, by = self._sum(_terms(value)), self.product(divisor)
                return None if inner is None or by is None else inner.over(by)
            case tir.FloorMod(rhs=divisor):
                return self.product(divisor)
        return None

    def _sum(self, terms: list[Expr]) -> SymbolicExtent | None:
        """Return the span of a sum: of one term, or of multiples of the span of one of them."""
        if not terms:
            return SymbolicExtent(1)
        if len(terms) == 1:
            return self._span(terms[0])
        for at, term in enumerate(terms):
            least = self._span(term)
            if least is None:
                return None
            others = [self._exact_quotient(other, least) for n, other in enumerate(terms) if n != at]
            if all(other is not None for other in others):
                rest = self._sum([other for other in others if other is not None])
                if rest is not None:
                    return rest.times(least)
        return None


def _terms(expr: Expr) -> list[Expr]:
    """Return the nonzero terms of a sum; products with sums are expanded."""
    if isinstance(expr, tir.Add):
        return [*_terms(expr.lhs), *_terms(expr.rhs)]
    if isinstance(expr, tir.Mul):
        one, other = (expr.lhs, expr.rhs) if isinstance(expr.lhs, tir.Add) else (expr.rhs, expr.lhs)
        if isinstance(one, tir.Add):
            return [c.mul(term, other) for term in _terms(one)]
    return [] if isinstance(expr, IntImm) and expr.value == 0 else [expr]
