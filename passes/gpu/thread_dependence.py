"""Prove that two accesses of a buffer conflict only within one thread, so that no barrier is needed.

A GCD and range test over the difference of both index expressions (compare Banerjee's test). The accesses are made by
any two threads of a block, in any iterations of the loops that they do not share; they touch the same element where
their indices are equal. That is a linear equation over the integers: a sum of terms, each a coefficient times a factor
of known range, such as the difference of a variable's values on both sides. Where a coefficient exceeds the range of
the sum of all smaller terms, its factor must be 0: both sides agree in it. The next smaller coefficient follows (a
number has one spelling in digits). If both sides agree in the thread index, they are one thread; if the equation has
no solution, the accesses are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import gcd

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.arith.linear import is_index
from mlcc.arith.proofs import linear_terms
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import holds
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute, used_vars

Pair = tuple[Expr, Expr]


@dataclass(slots=True, eq=False)
class Side:
    """One access: its index, its guards, and the ranges of the variables of the enclosing loops, including thread
    loops.
    """

    index: Expr
    guards: Sequence[Expr]
    ranges: Mapping[tir.Var, tir.Range]


@dataclass(slots=True, eq=False)
class DependenceProblem:
    """A dependence problem between two accesses.

    `other` are the variables that may differ between the two: those of threads, of inner loops, and of the loop that
    carries the dependence. `carried_by` is the variable of that loop, with the dependence distance in iterations (None:
    any distance).
    """

    threads: Sequence[tir.Var]
    other: set[tir.Var]
    carried_by: tuple[tir.Var, int | None] | None = None
    _renamed: dict[tir.Var, tir.Var] = field(default_factory=dict)

    def is_within_thread(self, first: Side, second: Side) -> bool:
        """Return True if no two different threads touch the same element."""
        analyzer = Analyzer()
        self._renamed = {v: tir.Var(f"{v.name}_2", v.dtype) for v in self.other}
        for side in (first, second):
            for var, span in side.ranges.items():
                analyzer.bind(var, span)
                if var in self._renamed:
                    low, extent = (substitute(e, self._renamed) for e in (span.min, span.extent))
                    analyzer.bind(self._renamed[var], tir.Range(low, extent))
        renamed: dict[tir.Var, Expr] = dict(self._renamed)
        if self.carried_by is not None:
            var, by = self.carried_by
            later: Expr = c.const(1, var.dtype)
            if by is None:
                later = tir.Var("later", var.dtype)
                trips = max(analyzer.bound(s.ranges[var].extent).max for s in (first, second) if var in s.ranges)
                analyzer.bind_bound(later, 1, max(trips - 1, 1))
            renamed[var] = c.add(var, later)
        with ExitStack() as known:
            for guard in first.guards:
                known.enter_context(analyzer.constraint(guard))
            for guard in second.guards:
                known.enter_context(analyzer.constraint(substitute(guard, renamed)))
            solver = _Solver(analyzer, renamed)
            pairs = [(first.index, second.index), *_common_equations(first.guards, second.guards, analyzer)]
            return solver.solve(pairs, self.threads)


def _common_equations(first: Iterable[Expr], second: Iterable[Expr], analyzer: Analyzer) -> list[Pair]:
    """Return the equations that guard both sides: `tx == 0` here and there means equal `tx`."""
    pairs: list[Pair] = []
    for guard in first:
        if isinstance(guard, tir.EQ) and any(analyzer.same(guard, g) for g in second):
            difference = c.sub(guard.lhs, guard.rhs)
            pairs.append((difference, difference))
    return pairs


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of the equation: `factor` times a number between `low` and `high`.

    `key` names the expression if the number is its difference between the sides; `nonzero` if this is known not to be
    0.
    """

    factor: int
    low: int
    high: int
    key: int | None
    nonzero: bool = False

    @property
    def reach(self) -> tuple[int, int]:
        ends = sorted((self.factor * self.low, self.factor * self.high))
        return ends[0], ends[1]


class _Solver:
    def __init__(self, analyzer: Analyzer, renamed: Mapping[tir.Var, Expr]) -> None:
        self._analyzer = analyzer
        self._renamed = renamed
        self._equal_keys: set[int] = set()  # keys of the expressions that are equal on both sides
        self._seen: dict[int, Expr] = {}

    def solve(self, pairs: list[Pair], threads: Sequence[tir.Var]) -> bool:
        """Return True if the pairs are never all equal, or only where both sides have the same thread indices."""
        equations = list(pairs)
        while True:
            before = len(self._equal_keys)
            for pair in equations:
                if self._is_infeasible(*pair):
                    return True
            if all(self._analyzer.keys.key(v) in self._equal_keys for v in threads):
                return True
            if len(self._equal_keys) == before:
                return False
            equations += self._equal_dividends()

    def _equal_dividends(self) -> list[Pair]:
        """Return the dividends whose quotient and remainder are both equal on the two sides: they are equal, too."""
        pairs: list[Pair] = []
        known = [self._seen[key] for key in self._equal_keys if key in self._seen]
        quotients = [e for e in known if isinstance(e, tir.FloorDiv)]
        for rest in known:
            if isinstance(rest, tir.FloorMod) and any(
                self._analyzer.same(q.lhs, rest.lhs) and self._analyzer.same(q.rhs, rest.rhs) for q in quotients
            ):
                pairs.append((rest.lhs, rest.lhs))
        return pairs

    def _is_infeasible(self, first: Expr, second: Expr) -> bool:
        """Return True if `first` never equals `second` (of the other side); else record the terms they agree in."""
        terms, constant = self._terms(first, second)
        terms.sort(key=lambda t: -abs(t.factor))
        reaches = [t.reach for t in terms]
        low, high = constant + sum(r[0] for r in reaches), constant + sum(r[1] for r in reaches)
        if low > 0 or high < 0:
            return True
        shared = gcd(*(t.factor for t in terms))
        if constant if not shared else constant % shared:
            return True
        for term, (least, most) in zip(terms, reaches, strict=True):
            low, high = low - least, high - most  # of the smaller ones
            if -abs(term.factor) >= low or high >= abs(term.factor):
                return False
            if term.low > 0 or term.high < 0 or term.nonzero:
                return True
            if term.key is not None:
                self._equal_keys.add(term.key)
        return False

    def _terms(self, first: Expr, second: Expr) -> tuple[list[_Term], int]:
        """Return the terms and the constant of `first - second`, where `second` is on the other side."""
        mine, constant = self._linear(first)
        theirs, other = self._linear(second)
        terms = self._versioned_terms(mine, theirs)
        for key in dict.fromkeys((*mine, *theirs)):
            a, b = mine.get(key, 0), theirs.get(key, 0)
            atom = self._seen[key]
            if _is_opaque(atom):  # the contents of memory are unknown
                terms += [_Term(factor, -INF, INF, None) for factor in (a, b) if factor]
                continue
            moved = used_vars(atom) & self._renamed.keys()
            if key in self._equal_keys or not moved:
                if a != b:
                    bound = self._analyzer.bound(atom)
                    terms.append(_Term(a - b, bound.min, bound.max, None))
                continue
            there = substitute(atom, self._renamed)
            if a == b:
                difference = self._analyzer.bound(self._analyzer.simplify(c.sub(atom, there)))
                one, two = self._analyzer.bound(atom), self._analyzer.bound(there)
                low, high = max(difference.min, one.min - two.max), min(difference.max, one.max - two.min)
                terms.append(_Term(a, low, high, key, self._differ_modulo(atom, there)))
                continue
            for factor, value in ((a, atom), (-b, there)):
                if factor:
                    bound = self._analyzer.bound(value)
                    terms.append(_Term(factor, bound.min, bound.max, None))
        return terms, constant - other

    def _versioned_terms(self, mine: dict[int, int], theirs: dict[int, int]) -> list[_Term]:
        """Return terms for pairs of remainders, one of each side, that have the same factor and always differ; remove
        them from both sides."""
        terms: list[_Term] = []
        for key, factor in list(mine.items()):
            for other, same in list(theirs.items()):
                if factor != same or key == other or key in theirs or other in mine:
                    continue
                here, there = self._seen[key], substitute(self._seen[other], self._renamed)
                if self._differ_modulo(here, there):
                    one, two = self._analyzer.bound(here), self._analyzer.bound(there)
                    terms.append(_Term(factor, one.min - two.max, one.max - two.min, None, True))
                    del mine[key], theirs[other]
                    break
        return terms

    def _differ_modulo(self, here: Expr, there: Expr) -> bool:
        """Return True if two remainders always differ: `k % 2` and `(k + 1) % 2`."""
        match here, there:
            case tir.FloorMod(lhs=a, rhs=tir.IntImm(value=by)), tir.FloorMod(lhs=b):
                difference = tir.const_int(self._analyzer.simplify(c.sub(b, a)))
                return by > 0 and difference is not None and difference % by != 0
        return False

    def _linear(self, value: Expr) -> tuple[dict[int, int], int]:
        """Return the linear form of a value: factors by the keys of their atoms, and a constant."""
        factors: dict[int, int] = {}
        constant = 0
        for atom, factor in linear_terms(self._analyzer.simplify(_plain(value))):
            if isinstance(atom, tir.IntImm):
                constant += atom.value * factor
                continue
            key = self._analyzer.keys.key(atom)
            self._seen[key] = atom
            factors[key] = factors.get(key, 0) + factor
        return {k: f for k, f in factors.items() if f}, constant


def _plain(value: Expr) -> Expr:
    """Strip casts between index types: indices do not wrap."""
    match value:
        case tir.Cast(dtype=to, value=inner) if is_index(to) and is_index(inner.dtype):
            return _plain(inner)
        case tir.Add(lhs=a, rhs=b):
            return c.add(*_same_type(_plain(a), _plain(b)))
        case tir.Sub(lhs=a, rhs=b):
            return c.sub(*_same_type(_plain(a), _plain(b)))
        case tir.Mul(lhs=a, rhs=b):
            return c.mul(*_same_type(_plain(a), _plain(b)))
    return value


def _is_opaque(atom: Expr) -> bool:
    return holds(atom, tir.BufferLoad, tir.Let, tir.Call)


def _same_type(a: Expr, b: Expr) -> Pair:
    if a.dtype is b.dtype:
        return a, b
    return (c.cast(b.dtype, a), b) if a.dtype.bits < b.dtype.bits else (a, c.cast(a.dtype, b))
