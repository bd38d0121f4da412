"""Terms in the stores of a block that can be precomputed: candidates, their counts, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import children, walk
from mlcc.ir.tir import Expr


class TermEquality:
    """Terms compared by their simplified form."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._known: dict[int, tuple[Expr, Expr]] = {}

    def same(self, a: Expr, b: Expr) -> bool:
        return a is b or (a.dtype == b.dtype and self._analyzer.same(self._normal(a), self._normal(b)))

    def _normal(self, term: Expr) -> Expr:
        entry = self._known.get(id(term))
        if entry is None:
            entry = self._known[id(term)] = (term, self._analyzer.simplify(term))
        return entry[1]


@dataclass(slots=True)
class TermCount:
    """A term, and how often it is computed."""

    term: Expr
    times: int


def size(term: Expr) -> int:
    """The number of expressions in a term."""
    return sum(isinstance(n, Expr) for n in walk(term))


def repeated_terms(stores: list[tir.BufferStore], threshold: int, terms: TermEquality) -> list[Expr]:
    """Return the terms that the stores compute at least `threshold` times, larger ones first.

    A term that comes up less often gives way to its parts.
    """
    repeated: list[Expr] = []
    for store in stores:
        counted: list[TermCount] = []
        for term in _maximal_terms((store.value, *store.indices)):
            _count(counted, term, 1, terms, ordered=False)
        at = 0
        while at < len(counted):  # grows on the way
            entry = counted[at]
            if entry.times < threshold:
                for part in _maximal_terms(tuple(children(entry.term))):
                    _count(counted, part, entry.times, terms, ordered=True)
            at += 1
        for expr in _post_order(store.value):
            for candidate in counted:
                new = candidate.times >= threshold and not any(candidate.term is m for m in repeated)
                if new and terms.same(expr, candidate.term):
                    repeated.append(candidate.term)
        repeated.sort(key=size, reverse=True)
    return repeated


def _count(counted: list[TermCount], term: Expr, times: int, terms: TermEquality, ordered: bool) -> None:
    for known in counted:
        if terms.same(known.term, term):
            known.times += times
            return
    at = len(counted)
    if ordered:  # after all terms of the same size, by binary search
        low, high = 0, at
        while low < high:
            middle = (low + high) // 2
            if size(counted[middle].term) >= size(term):
                low = middle + 1
            else:
                high = middle
        at = low
    counted.insert(at, TermCount(term, times))


def _maximal_terms(roots: tuple[Any, ...]) -> Iterator[Expr]:
    """Return the largest terms below a node that can be precomputed, from left to right."""
    stack = [r for r in reversed(roots) if isinstance(r, Expr)]
    while stack:
        term = stack.pop()
        if is_computable_ahead(term):
            yield term
        else:
            stack += [n for n in reversed(list(children(term))) if isinstance(n, Expr)]


def is_computable_ahead(expr: Expr) -> bool:
    """A computation on scalars that has no effect and reads no memory."""
    if isinstance(expr, (tir.Ramp, tir.Broadcast)) or size(expr) < 2:
        return False
    return not any(
        isinstance(n, tir.BufferLoad) or (isinstance(n, tir.Call) and effect_of(n) is not Effect.PURE)
        for n in walk(expr)
    )


def _post_order(root: Expr) -> Iterator[Expr]:
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif id(node) not in seen and isinstance(node, Expr):
            seen.add(id(node))
            stack.append((node, True))
            stack += [(n, False) for n in reversed(list(children(node)))]


def vars_in_order(expr: Expr) -> list[tir.Var]:
    """The variables, in the order in which they come up."""
    return list(dict.fromkeys(n for n in walk(expr) if isinstance(n, tir.Var)))
