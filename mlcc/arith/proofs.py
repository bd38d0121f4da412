"""Proofs about factors and extents of iterators, most of which are constants and never reach the analyzer.

Symbolic ones are compared as polynomials: integer combinations of products of atoms, where an atom is whatever is no
sum or product. An atom `x // k` that is scaled by a multiple of k is bounded by x: x - (k - 1) <= x // k * k <= x.
"""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm

Monomial = tuple[int, ...]  # the keys of its atoms, sorted
Polynomial = dict[Monomial, int]
_ROUNDS = 6  # of replacing quotients by their bounds
_TERMS = 64  # a polynomial with more is not expanded


def is_one(value: object) -> bool:
    return isinstance(value, IntImm) and value.value == 1


def is_zero(value: object) -> bool:
    return isinstance(value, IntImm) and value.value == 0


def factors(value: Expr) -> list[Expr]:
    """Return the leaves of a product, left to right."""
    leaves, stack = [], [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Mul):
            stack += [top.rhs, top.lhs]
        else:
            leaves.append(top)
    return leaves


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b as (symbol * symbol * ...) * constant."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return c.mul(a, b)
    constant, symbols = 1, c.const(1, a.dtype)
    for factor in (*factors(a), *factors(b)):
        if isinstance(factor, IntImm):
            constant *= factor.value
        else:
            symbols = c.mul(symbols, factor)
    return symbols if constant == 1 else c.mul(symbols, c.const(constant, symbols.dtype))


class Proofs:
    """Cached proofs of one analysis."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._divides: dict[tuple[object, object], bool] = {}
        self._multiples: dict[object, Expr] = {}
        self._polynomials: dict[object, Polynomial] = {}

    def key(self, value: Expr) -> object:
        """Return a key that is equal for structurally equal factors."""
        return value.value if isinstance(value, IntImm) else (self.analyzer.keys.key(value),)

    def equal(self, a: Expr, b: Expr) -> bool:
        """Return True if a == b is proved."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        if a is b or self.polynomial(a) == self.polynomial(b):
            return True
        return self.analyzer.prove_equal(a, b)

    def divisible(self, a: Expr, b: Expr) -> bool:
        """Return True if b is proved to divide a."""
        if isinstance(b, IntImm) and b.value == 0:
            return False
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value % b.value == 0
        pair = (self.key(a), self.key(b))
        divides = self._divides.get(pair)
        if divides is None:
            divides = self._divides[pair] = self._divisible(a, b)
        return divides

    def assume_multiple(self, a: Expr, factor: Expr) -> None:
        """Assume that `factor` divides a, which was rounded up to a multiple of it."""
        if not isinstance(a, IntImm):
            self._multiples[self.key(a)] = factor
            self._divides.clear()

    def padded(self, a: Expr, by: Expr) -> bool:
        """Return True if a was rounded up to a multiple of `by`."""
        known = self._multiples.get(self.key(a))
        return known is not None and self.divisible(known, by)

    def _divisible(self, a: Expr, b: Expr) -> bool:
        if self.equal(a, b) or self.padded(a, b):
            return True
        divisor = self.polynomial(b)
        if len(divisor) == 1:
            ((symbols, constant),) = divisor.items()
            if all(k % constant == 0 and _contains(m, symbols) for m, k in self.polynomial(a).items()):
                return True
        elif self._factors_divide(b, a):
            return True
        return self.analyzer.prove(c.equal(c.floormod(a, b), 0))

    def _factors_divide(self, b: Expr, a: Expr) -> bool:
        """Return True if the factors of b are a sub-multiset of the factors of a."""
        left = [self.polynomial(factor) for factor in factors(a)]
        for factor in factors(b):
            wanted = self.polynomial(factor)
            if wanted not in left:
                return False
            left.remove(wanted)
        return True

    def quotient(self, a: Expr, b: Expr) -> Expr:
        """Return a // b, simplified; if b divides a product, the product without the factors of b."""
        quotient = self.analyzer.simplify(c.floordiv(a, b))
        if isinstance(b, IntImm) or not isinstance(quotient, tir.FloorDiv):
            return quotient
        return self._cancel_factors(a, b) or self._cancel_factors(self.analyzer.simplify(a), b) or quotient

    def _cancel_factors(self, a: Expr, b: Expr) -> Expr | None:
        """Return the product a without the factors of b; None unless a has them all."""
        constant, left = 1, []
        for factor in factors(a):
            if isinstance(factor, IntImm):
                constant *= factor.value
            else:
                left.append(factor)
        for factor in factors(b):
            if isinstance(factor, IntImm):
                if constant % factor.value:
                    return None
                constant //= factor.value
                continue
            same = next((x for x in left if self.equal(x, factor)), None)
            if same is None:
                return None
            left.remove(same)
        exact: Expr = c.const(1, a.dtype)
        for factor in left:
            exact = c.mul(exact, factor)
        return c.mul(exact, c.const(constant, a.dtype))

    def at_least(self, a: Expr, b: Expr) -> bool:
        """Return True if a >= b is proved."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value >= b.value
        return self.analyzer.prove(c.greater_equal(a, b)) or self._lower_bound(c.sub(a, b)) >= 0

    def _lower_bound(self, value: Expr) -> int:
        """Return a lower bound, replacing quotients by their lower bounds."""
        for _ in range(_ROUNDS):
            least = self.analyzer.bound(self.analyzer.simplify(value)).min
            if least >= 0:
                return least
            smaller = self._without_quotient(value)
            if smaller is None:
                break
            value = smaller
        return -INF

    def _without_quotient(self, value: Expr) -> Expr | None:
        """Return a lower bound of `value` with one quotient eliminated; None if none can be."""
        terms = linear_terms(value)
        for i, (atom, scale) in enumerate(terms):
            match atom:
                case tir.FloorDiv(lhs=x, rhs=IntImm(value=k)) if k > 1 and scale:
                    key = self.analyzer.keys.key(atom)
                    total = sum(s for a, s in terms if isinstance(a, tir.FloorDiv) and self.analyzer.keys.key(a) == key)
                    if total == 0 or total % k:
                        continue
                    inner = c.sub(x, k - 1) if total > 0 else x
                    smaller = c.mul(inner, total // k)
                    for j, (other, factor) in enumerate(terms):
                        if j != i and not (isinstance(other, tir.FloorDiv) and self.analyzer.keys.key(other) == key):
                            smaller = c.add(smaller, c.mul(other, factor))
                    return smaller
        return None

    # ------------------------------------------------------------ polynomials

    def polynomial(self, value: Expr) -> Polynomial:
        """Return the polynomial of an expression, without zero terms."""
        key = self.key(value)
        polynomial = self._polynomials.get(key)
        if polynomial is None:
            polynomial = self._polynomials[key] = self._expanded(value)
        return polynomial

    def _expanded(self, value: Expr) -> Polynomial:
        match value:
            case IntImm(value=number):
                return {(): number} if number else {}
            case tir.Add(lhs=a, rhs=b) | tir.Sub(lhs=a, rhs=b):
                terms = dict(self.polynomial(a))
                sign = 1 if isinstance(value, tir.Add) else -1
                for monomial, scale in self.polynomial(b).items():
                    terms[monomial] = terms.get(monomial, 0) + sign * scale
                return {m: s for m, s in terms.items() if s}
            case tir.Mul(lhs=a, rhs=b):
                one, two = self.polynomial(a), self.polynomial(b)
                if len(one) * len(two) <= _TERMS:
                    terms = {}
                    for m, s in one.items():
                        for n, t in two.items():
                            monomial = tuple(sorted(m + n))
                            terms[monomial] = terms.get(monomial, 0) + s * t
                    return {m: s for m, s in terms.items() if s}
                return self._atom(value)
            case tir.Var():
                return self._atom(value)
        simple = self.analyzer.simplify(value)
        if (
            isinstance(simple, (IntImm, tir.Add, tir.Sub, tir.Mul))
            and simple is not value
            and type(simple) is not type(value)
        ):
            return self.polynomial(simple)
        return self._atom(simple)

    def _atom(self, value: Expr) -> Polynomial:
        return {(self.analyzer.keys.key(value),): 1}


def _contains(monomial: Monomial, part: Monomial) -> bool:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return False
        left.remove(atom)
    return True


def linear_terms(value: Expr) -> list[tuple[Expr, int]]:
    """Return the terms and their integer factors; the constant is a term."""
    terms: list[tuple[Expr, int]] = []
    stack = [(value, 1)]
    while stack:
        top, scale = stack.pop()
        match top:
            case tir.Add(lhs=a, rhs=b):
                stack += [(b, scale), (a, scale)]
            case tir.Sub(lhs=a, rhs=b):
                stack += [(b, -scale), (a, scale)]
            case tir.Mul(lhs=a, rhs=IntImm(value=k)) | tir.Mul(lhs=IntImm(value=k), rhs=a):
                stack.append((a, scale * k))
            case _:
                terms.append((top, scale))
    return terms
