"""Checks that the digits used by an iterator map are independent and cover the iterators."""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.arith.iter_fuse import Level
from mlcc.arith.iter_nodes import IterMark, IterSplit, IterSum
from mlcc.arith.iter_rewrite import IterMapRewriter
from mlcc.arith.proofs import Proofs, is_one
from mlcc.ir import construct as c
from mlcc.ir.tir import Expr


def digits_of(indices: Iterable[IterSum]) -> dict[IterMark, list[IterSplit]]:
    """Return the digits taken of every iterator that the sums use, including iterators inside fused ones."""
    digits: dict[IterMark, list[IterSplit]] = {}
    for value in indices:
        _collect(value, digits)
    return digits


def _collect(value: IterSum, digits: dict[IterMark, list[IterSplit]]) -> None:
    for split in value.args:
        mark = split.source
        if mark in digits:
            digits[mark].append(split)
            continue
        digits[mark] = [split]
        if isinstance(mark.source, IterSum):
            _collect(mark.source, digits)


def map_violation(indices: list[IterSum], rewriter: IterMapRewriter, level: Level) -> tuple[str, Expr | None] | None:
    """Return the reason why the map does not satisfy `level`, with the iterator concerned; None if it does."""
    digits = digits_of(indices)
    for mark, splits in digits.items():
        reason = _digits_problem(mark, splits, rewriter, level)
        if reason is not None:
            return reason, rewriter.converter.expr(mark.source)
    if level != "none" and not rewriter.lenient:
        flat = rewriter.fuser.partially_used(digits)
        if flat is not None:
            return "`{}` is bounded, but its parts are used separately", rewriter.converter.expr(flat)
    if level == "bijective":
        for mark in rewriter.marks:
            if mark not in digits and not is_one(mark.extent):
                return "`{}` is not used, so several iterations have the same values", rewriter.converter.expr(
                    mark.source
                )
    return None


def _digits_problem(mark: IterMark, splits: list[IterSplit], rewriter: IterMapRewriter, level: Level) -> str | None:
    """Return the message if the digits of one iterator overlap, leave a gap or do not fit its extent; else None."""
    first = splits[0]
    if len(splits) == 1 and first.extent is mark.extent and is_one(first.lower_factor) and not rewriter.unpadded:
        return None  # all of an iterator, as nearly always
    proofs = rewriter.proofs
    expected: Expr = c.const(1, mark.extent.dtype)
    left = list(splits)
    while left:
        digit = next((s for s in left if proofs.equal(s.lower_factor, expected)), None)
        if digit is None and level != "bijective":
            digit = _lowest_above_gap(left, expected, proofs)
        if digit is None:
            return "the parts of `{}` that are used overlap or leave a gap"
        left.remove(digit)
        expected = c.mul(digit.lower_factor, digit.extent)
    full = proofs.equal(expected, mark.extent)
    divides = full or proofs.divisible(mark.extent, expected)
    original = rewriter.original(mark)
    if level == "bijective":
        if original is not None:
            return "`{}` must be padded, so that some values have no iteration"
        return None if full else "the parts of `{}` that are used do not cover it"
    if original is None:
        return None if divides else "the extent of `{}` is not a multiple of the parts that are used"
    if level == "surjective":
        if not divides:
            return "the extent of `{}` is not a multiple of the parts that are used"
        if full:
            if len(splits) != 1:
                return "`{}` must be padded, and the parts of it depend on one another"
            if not rewriter.lenient and not _reaches_ends(mark, original, splits[0], proofs):
                return "`{}` must be padded, so that some values have no iteration"
        elif not proofs.at_least(original.extent, expected):
            return "`{}` has fewer iterations than the parts that are used have values"
    return None


def _lowest_above_gap(left: list[IterSplit], expected: Expr, proofs: Proofs) -> IterSplit | None:
    """Return the lowest digit above a gap; None unless the gap divides the lower factor of each remaining digit."""
    lowest = None
    for split in left:
        if not proofs.divisible(split.lower_factor, expected):
            return None
        if lowest is None or proofs.divisible(lowest.lower_factor, split.lower_factor):
            lowest = split
    return lowest


def _reaches_ends(mark: IterMark, original: IterMark, digit: IterSplit, proofs: Proofs) -> bool:
    """Return True if iterations reach the first and the last value of the highest digit of a padded iterator."""
    assert isinstance(mark.source, IterSum)
    left, lower = mark.source.base, digit.lower_factor
    first_of_last = c.mul(lower, c.sub(digit.extent, 1))
    return proofs.at_least(c.sub(lower, 1), left) and proofs.at_least(
        c.sub(c.add(left, original.extent), 1), first_of_last
    )
