"""The canonical form of index arithmetic: sums of scaled, divided and reduced terms.

A term is `((index % upper) // lower) * scale`, a sum is terms plus a constant. Every integer expression of +, -,
constant *, // and % over opaque subexpressions has such a form; like terms are collected in it, and terms that are
the quotient and remainder of one division are joined again. Terms print in descending order of scale, which fixes one
spelling for many.

The laws used hold for mathematical integers; index arithmetic (int32 and int64) is assumed not to overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.arith.structural_keys import StructuralKeys
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr

UNBOUNDED = 1 << 200  # the `upper` of a term that is not reduced


def is_index(dtype: DType) -> bool:
    """Return True for the types whose arithmetic is rewritten: scalar int32 and int64."""
    return dtype.kind == "int" and dtype.bits >= 32 and dtype.lanes == 1


@dataclass(slots=True, eq=False)  # not frozen, which triples the time of making one
class Term:
    """`((index % upper) // lower) * scale`; `lower` divides `upper`. `floor`: // and % round down, else toward zero.

    Immutable by convention.
    """

    index: Expr
    lower: int = 1
    upper: int = UNBOUNDED
    scale: int = 1
    floor: bool = False

    @property
    def plain(self) -> bool:
        """True if there is no division and no remainder, so that both rounding modes agree."""
        return self.lower == 1 and self.upper == UNBOUNDED

    def with_scale(self, scale: int) -> Term:
        """Return the same quotient with another scale."""
        return Term(self.index, self.lower, self.upper, scale, self.floor)

    def expr(self, sign: int = 1) -> Expr:
        """Return the term as an expression, multiplied by `sign`."""
        value = self.index
        dtype = value.dtype
        if self.scale == 0:
            return c.const(0, dtype)
        if self.upper != UNBOUNDED:
            value = (c.floormod if self.floor else c.truncmod)(value, _const(self.upper, dtype))
        if self.lower != 1:
            value = (c.floordiv if self.floor else c.div)(value, _const(self.lower, dtype))
        scale = self.scale * sign
        return value if scale == 1 else c.mul(value, _const(scale, dtype))


def _const(value: int, dtype: DType) -> Expr:
    return tir.IntImm(dtype, c.wrap(value, dtype))


@dataclass(slots=True, eq=False)
class Sum:
    """Terms plus `base`. Terms of one index are adjacent, in descending order of `lower`."""

    dtype: DType
    keys: StructuralKeys
    terms: list[Term] = field(default_factory=list)
    base: int = 0

    def copy(self) -> Sum:
        return Sum(self.dtype, self.keys, list(self.terms), self.base)

    @property
    def is_zero(self) -> bool:
        return self.base == 0 and not self.terms

    def add_term(self, term: Term, sign: int = 1) -> None:
        """Add `term * sign`, collecting it with a like one."""
        if term.scale == 0:
            return
        if sign != 1:
            term = term.with_scale(term.scale * sign)
        key = self.keys.key(term.index)
        at = 0
        while at < len(self.terms) and self.keys.key(self.terms[at].index) != key:
            at += 1
        for j in range(at, len(self.terms)):
            old = self.terms[j]
            if self.keys.key(old.index) != key or term.lower > old.lower:
                self.terms.insert(j, term)
                return
            if old.lower == term.lower and old.upper == term.upper and compatible(old, term):
                self.terms[j] = old.with_scale(old.scale + term.scale)
                return
        self.terms.append(term)

    def add(self, other: Sum, sign: int = 1) -> None:
        for term in other.terms:
            self.add_term(term, sign)
        self.base += other.base * sign

    def scaled(self, factor: int) -> Sum:
        return Sum(self.dtype, self.keys, [t.with_scale(t.scale * factor) for t in self.terms], self.base * factor)

    def split(self, divisor: int) -> tuple[Sum, Sum]:
        """Return the part that `divisor` divides, term by term, and the rest."""
        even, rest = Sum(self.dtype, self.keys), Sum(self.dtype, self.keys)
        (even if self.base % divisor == 0 else rest).base = self.base
        for term in self.terms:
            if term.scale:
                (even if term.scale % divisor == 0 else rest).terms.append(term)
        return even, rest

    def divided(self, divisor: int) -> Sum:
        """Return the sum divided by `divisor`, which divides every scale."""
        terms = [t.with_scale(t.scale // divisor) for t in self.terms]
        return Sum(self.dtype, self.keys, terms, self.base // divisor)

    def joined(self) -> list[Term]:
        """Return the terms with quotients and remainders joined, in descending order of scale."""
        terms = list(self.terms)
        for i, high in enumerate(terms):
            for j in range(i + 1, len(terms)):
                low = terms[j]
                if self.keys.key(high.index) != self.keys.key(low.index) or high.upper < low.lower:
                    break
                if not high.scale or not low.scale or not compatible(high, low):
                    continue
                if high.upper == low.upper and high.lower == low.lower:
                    terms[j], high = low.with_scale(low.scale + high.scale), high.with_scale(0)
                elif (
                    high.lower == low.upper
                    and high.scale % low.scale == 0
                    and high.lower == high.scale // low.scale * low.lower
                ):
                    # (x % u // l) * (l // m) + x % l // m == x % u // m, times the common scale
                    terms[j] = Term(low.index, low.lower, high.upper, low.scale, high.floor)
                    high = high.with_scale(0)
                    break
            terms[i] = high
        terms = [t for t in terms if t.scale]
        terms.sort(key=lambda t: (-t.scale, -t.lower, -t.upper, not t.floor))
        return terms

    def expr(self) -> Expr:
        """Return the sum as an expression: positive terms, positive constant, then the subtracted parts."""
        terms = self.joined()
        if len(terms) == 1 and not self.base and terms[0].scale != -1:  # x * -1 as a sum is 0 - x
            return terms[0].expr()
        total: Expr = tir.IntImm(self.dtype, 0)
        for term in terms:
            if term.scale > 0:
                total = c.add(total, term.expr())
        if self.base > 0:
            total = c.add(total, _const(self.base, self.dtype))
        for term in terms:
            if term.scale < 0:
                total = c.sub(total, term.expr(-1))
        if self.base < 0:
            total = c.sub(total, _const(-self.base, self.dtype))
        return total


def compatible(a: Term, b: Term) -> bool:
    """Return True if two terms can be joined: one rounding mode, or one of them without division."""
    return a.floor == b.floor or a.plain or b.plain


Linear = Expr | Term | Sum


def to_expr(value: Linear) -> Expr:
    """Return any of the three forms as an expression."""
    return value if isinstance(value, Expr) else value.expr()


def to_term(value: Linear) -> Term:
    """Return the value as one term; a sum of several becomes its index."""
    if isinstance(value, Term):
        return value
    if isinstance(value, Sum):
        if value.base == 0 and len(value.terms) == 1 and value.terms[0].scale != -1:
            return value.terms[0]
        value = value.expr()
    return Term(value)


def to_sum(value: Linear, keys: StructuralKeys) -> Sum:
    """Return the value as a sum that the caller may mutate."""
    if isinstance(value, Sum):
        return value.copy()
    if isinstance(value, tir.IntImm):
        return Sum(value.dtype, keys, [], value.value)
    term = to_term(value)
    return Sum(term.index.dtype, keys, [term] if term.scale else [], 0)


def with_mode(term: Term, floor: bool) -> Term:
    """Return the same value in the given rounding mode."""
    if term.floor == floor:
        return term
    return Term(term.index, scale=term.scale, floor=floor) if term.plain else Term(term.expr(), floor=floor)
