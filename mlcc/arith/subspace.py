"""Dividing an iteration map into an outer part and an inner one over given loops.

Each binding becomes `outer * extent(inner) + inner`, where the inner part uses only the inner loops and the outer part
only the others. That is what makes an inner nest a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_check import digits_of
from mlcc.arith.iter_fuse import Level, with_changes
from mlcc.arith.iter_map import Iters, detect_iter_map
from mlcc.arith.iter_nodes import IterMark, IterSplit, IterSum, IterToExpr, whole_split
from mlcc.arith.iter_rewrite import NotAffine, as_sum
from mlcc.arith.proofs import Proofs, is_one, is_zero
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import TRUE, Expr, IntImm


@dataclass(frozen=True, slots=True)
class Subspaces:
    """The outer and inner iterator of each binding, and the predicates of both. False with a `reason` on failure."""

    pairs: tuple[tuple[IterMark, IterMark], ...] = ()
    outer_predicate: Expr = TRUE
    inner_predicate: Expr = TRUE
    failure: NotAffine | None = None

    def __bool__(self) -> bool:
        return self.failure is None

    @property
    def reason(self) -> str:
        return "" if self.failure is None else str(self.failure)


def subspace_divide(
    bindings: Sequence[Expr], iters: Iters, sub_iters: Iterable[tir.Var], predicate: Expr = TRUE,
    level: Level = "surjective", analyzer: Analyzer | None = None, simplify_trivial: bool = True,
) -> Subspaces:  # fmt: skip
    """Divide the bindings over `iters` into the loops in `sub_iters` and the others."""
    analyzer = analyzer or Analyzer()
    iter_map = detect_iter_map(bindings, iters, predicate, level, analyzer, simplify_trivial)
    if iter_map.failure is not None:
        return Subspaces(failure=iter_map.failure)
    divider = _Divider(Proofs(analyzer), digits_of(iter_map.indices), frozenset(sub_iters))
    try:
        parts = [divider.divide(value, c.const(0)) for value in iter_map.indices]
    except NotAffine as failure:
        return Subspaces(failure=failure)
    pairs = tuple((IterMark(p.outer, p.outer_extent), IterMark(p.inner, p.inner_extent)) for p in parts)
    return Subspaces(pairs, divider.outer_predicate, divider.inner_predicate)


@dataclass(frozen=True, slots=True)
class _DividedBinding:
    """outer * inner_extent + inner. `side` is "outer" or "inner" if the other part is empty."""

    outer: IterSum | IterSplit
    outer_extent: Expr
    inner: IterSum | IterSplit
    inner_extent: Expr
    side: str = "mixed"


def _inner(value: IterSum | IterSplit, extent: Expr) -> _DividedBinding:
    return _DividedBinding(IterSum((), IntImm(extent.dtype, 0)), IntImm(extent.dtype, 1), value, extent, "inner")


def _outer(value: IterSum | IterSplit, extent: Expr) -> _DividedBinding:
    return _DividedBinding(value, extent, IterSum((), IntImm(extent.dtype, 0)), IntImm(extent.dtype, 1), "outer")


class _Divider:
    """Divides sums and digits; raises NotAffine."""

    def __init__(self, proofs: Proofs, digits: dict[IterMark, list[IterSplit]], inner: frozenset[tir.Var]) -> None:
        self._proofs = proofs
        self._spell = IterToExpr(proofs)
        self._digits = digits
        self._inner = inner
        self._divided_digits: dict[IterSplit, _DividedBinding] = {}
        self.outer_predicate: Expr = TRUE
        self.inner_predicate: Expr = TRUE

    def divide(self, value: IterSum, extent: Expr) -> _DividedBinding:
        """Divide a sum of digits that runs over 0 .. extent - 1: outer digits above inner ones."""
        dtype = value.base.dtype
        zero, one = IntImm(dtype, 0), IntImm(dtype, 1)
        if not value.args:
            return _DividedBinding(IterSum((), zero), one, value, one)
        if len(value.args) == 1:
            if not is_one(value.args[0].scale):
                raise self._failure(value, "is scaled")
            part = self._digit(value.args[0])
            return part if is_zero(value.base) else _with_base(part, value.base)
        product: Expr = one
        outer: list[IterSplit] = []
        inner: list[IterSplit] = []
        for digit in reversed(value.args):
            part = self._digit(digit)
            if part.side == "mixed" or (part.side == "inner" and outer):
                raise self._failure(value, "mixes outer and inner loops")
            side, source, length = (
                (inner, part.inner, part.inner_extent)
                if part.side == "inner"
                else (outer, part.outer, part.outer_extent)
            )
            digit_part = source if isinstance(source, IterSplit) else whole_split(IterMark(source, length))
            side.append(digit_part)
            product = c.mul(product, digit_part.extent)
        if not any(is_one(digit.scale) for digit in value.args):
            raise self._failure(value, "is scaled")
        outer_mark, inner_mark = _mark(outer, zero), _mark(inner, value.base)
        if self._proofs.equal(product, extent):
            return _DividedBinding(
                as_sum(outer_mark.source), outer_mark.extent, as_sum(inner_mark.source), inner_mark.extent
            )
        return self._bounded_part(value, outer_mark if not inner else None, inner_mark if not outer else None, extent)

    def _bounded_part(
        self, value: IterSum, outer: IterMark | None, inner: IterMark | None, extent: Expr
    ) -> _DividedBinding:
        """Return the part of a sum bounded by a condition: all outer or all inner, with the condition on that side."""
        if outer is not None:
            self.outer_predicate = c.logical_and(
                self.outer_predicate, c.less(self._spell.expr(as_sum(outer.source)), extent)
            )
            return _outer(as_sum(outer.source), extent)
        if inner is not None:
            self.inner_predicate = c.logical_and(
                self.inner_predicate, c.less(self._spell.expr(as_sum(inner.source)), extent)
            )
            return _inner(as_sum(inner.source), extent)
        raise self._failure(value, "mixes outer and inner loops under a condition")

    def _digit(self, digit: IterSplit) -> _DividedBinding:
        cached = self._divided_digits.get(digit)
        if cached is not None:
            return cached
        mark = digit.source
        splits = self._digits[mark]
        if isinstance(mark.source, IterSum):
            part = self.divide(mark.source, mark.extent)
            if len(splits) == 1:
                return part
            self._divide_digits(splits, part, mark)
        elif isinstance(mark.source, tir.Var):
            make = _inner if mark.source in self._inner else _outer
            for split in splits:
                self._divided_digits[split] = make(split, split.extent)
        else:
            raise self._failure(mark.source, "does not start at 0")
        return self._divided_digits[digit]

    def _divide_digits(self, splits: list[IterSplit], part: _DividedBinding, mark: IterMark) -> None:
        """Divide the digits of `outer * extent(inner) + inner`: those below extent(inner) are inner."""
        outer_mark = IterMark(as_sum(part.outer), part.outer_extent)
        inner_mark = IterMark(as_sum(part.inner), part.inner_extent)
        beyond = part.side == "outer"
        expected: Expr = IntImm(mark.extent.dtype, 1)
        left = list(splits)
        inner: list[IterSplit] = []
        outer: list[IterSplit] = []
        while left:
            digit = next((s for s in left if self._proofs.equal(s.lower_factor, expected)), None)
            if digit is None:
                raise self._failure(mark.source, "is not divided into parts that follow one another")
            left.remove(digit)
            (outer if beyond else inner).append(digit)
            expected = c.mul(expected, digit.extent)
            beyond = beyond or self._proofs.equal(expected, part.inner_extent)
        if not beyond:
            raise self._failure(mark.source, "has a part that is both outer and inner")
        for split in inner:
            rebased = IterSplit(inner_mark, split.lower_factor, split.extent, split.scale)
            self._divided_digits[split] = _inner(rebased, split.extent)
        for split in outer:
            lower = c.floordiv(split.lower_factor, outer[0].lower_factor)
            self._divided_digits[split] = _outer(IterSplit(outer_mark, lower, split.extent, split.scale), split.extent)

    def _failure(self, value: Expr | IterSum | IterSplit, why: str) -> NotAffine:
        return NotAffine("`{}` {}", self._spell.expr(value), why)


def _with_base(part: _DividedBinding, base: Expr) -> _DividedBinding:
    inner = as_sum(part.inner)
    inner = IterSum(inner.args, base if isinstance(part.inner, IterSplit) else c.add(inner.base, base))
    return _DividedBinding(part.outer, part.outer_extent, inner, part.inner_extent, part.side)


def _mark(digits: list[IterSplit], base: Expr) -> IterMark:
    """Return the iterator with these digits, from the lowest."""
    extent: Expr = IntImm(base.dtype, 1)
    scaled = []
    for digit in digits:
        scaled.append(with_changes(digit, scale=extent))
        extent = c.mul(extent, digit.extent)
    return IterMark(IterSum(tuple(reversed(scaled)), base), extent)
