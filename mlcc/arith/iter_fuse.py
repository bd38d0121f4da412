"""Fusing: a sum of digits as one digit of a new iterator.

`i * 12 + j * 4 + k` with j in 0..2 and k in 0..3 is one iterator over i, j, k in mixed radix: the smallest scale is the
base, and each next digit must be scaled by the extent and the scale of the one before. A constraint `j * 4 + k < 10`
makes the two one iterator of extent 10, and then the digit above it is expected at 10.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from mlcc.arith.iter_nodes import IterMark, IterSplit, IterSum, whole_split
from mlcc.arith.proofs import Proofs, factors, is_one, is_zero, product
from mlcc.ir import construct as c
from mlcc.ir.tir import Expr, IntImm

Level = Literal["bijective", "surjective", "none"]


@dataclass(frozen=True, slots=True)
class Fused:
    """The iterator that a flat sum became, whose values start at `offset`, and the sum of its (grouped) digits."""

    mark: IterMark
    offset: Expr


def with_changes(split: IterSplit, *, extent: Expr | None = None, scale: Expr | None = None) -> IterSplit:
    """Return a copy with another extent or scale."""
    return IterSplit(
        split.source, split.lower_factor, split.extent if extent is None else extent,
        split.scale if scale is None else scale,
    )  # fmt: skip


class Fuser:
    """Fuses sums and caches the results, so that equal sums become one iterator."""

    def __init__(self, proofs: Proofs, level: Level) -> None:
        self.proofs = proofs
        self.level = level
        self._fused: dict[object, Fused] = {}  # by flat sum
        self._flat: dict[object, IterSum] = {}  # by structured sum
        self.constraints: list[IterSum] = []  # flat sums that conditions bound

    # ------------------------------------------------------------ identity of digits

    def _digit_key(self, split: IterSplit) -> tuple[object, ...]:
        key = self.proofs.key
        return (split.source, key(split.lower_factor), key(split.extent))

    def _key(self, value: IterSum) -> object:
        key = self.proofs.key
        return (key(value.base), *((*self._digit_key(s), key(s.scale)) for s in value.args))

    # ------------------------------------------------------------ constraints

    def constrain(self, value: IterSum, low: Expr | None, high: Expr | None) -> bool:
        """Record low <= value < high; False if the value is not one iterator."""
        if not is_zero(value.base):
            low = None if low is None else c.sub(low, value.base)
            high = None if high is None else c.sub(high, value.base)
            value = IterSum(value.args, IntImm(value.base.dtype, 0))
        fused = self.fuse(value, early=False)
        if fused is None or not is_one(fused.args[0].scale):
            return False
        structured = fused.args[0].source.source
        assert isinstance(structured, IterSum)
        flat = self._flat[self._key(structured)]
        old = self._fused[self._key(flat)]
        first, end = old.offset, c.add(old.offset, old.mark.extent)
        if low is not None:
            first = c.maximum(low, old.offset)
            delta = c.sub(first, old.offset)
            if not is_zero(delta):
                del self._flat[self._key(structured)]
                structured = IterSum(structured.args, c.sub(structured.base, delta))
                self._flat[self._key(structured)] = flat
        if high is not None:
            # a condition is there because it limits something: prefer its bound
            end = high if self.proofs.at_least(end, high) else c.minimum(high, end)
        self._fused[self._key(flat)] = Fused(IterMark(structured, c.sub(end, first)), first)
        self.constraints.append(flat)
        return True

    def consistent(self) -> bool:
        """Return True if any two constrained sums are nested or disjoint."""
        digits = [{(*self._digit_key(s), self.proofs.key(s.scale)) for s in flat.args} for flat in self.constraints]
        return all(
            a <= b or not a & b for i, a in enumerate(digits) for b in digits[i + 1 :]
        )  # shorter ones come first

    def partially_used(self, used: Container[IterMark]) -> IterSum | None:
        """Return a bounded sum that the map uses only in parts, which are then dependent; None if there is none.

        A bound that cuts less than one step of the outermost digit comes from a split: every part still takes all its
        values. It is ignored, as in TVM.
        """
        for flat in self.constraints:
            mark, top = self._mark(flat), flat.args[0]
            if mark in used or not any(digit.source in used for digit in flat.args):
                continue
            if len(flat.args) > 1 and not self.proofs.at_least(
                c.sub(mark.extent, 1), c.mul(top.scale, c.sub(top.extent, 1))
            ):
                return flat
        return None

    def _mark(self, flat: IterSum) -> IterMark:
        return self._fused[self._key(flat)].mark

    # ------------------------------------------------------------ search

    def _find_smallest_scale(
        self, args: tuple[IterSplit, ...], used: list[bool], source: IterMark | None, last: int
    ) -> int:
        """Return the position of the smallest unused scale, searching from the right; -1 if all are used."""
        best, least = -1, 0
        candidates = [i for i in range(last, -1, -1) if not used[i] and (source is None or args[i].source is source)]
        for i in candidates:
            scale = args[i].scale
            if isinstance(scale, IntImm):
                if best == -1 or scale.value < least:
                    best, least = i, scale.value
                elif scale.value == least and is_one(args[i].extent) and not is_one(args[best].extent):
                    best = i
        if best != -1:
            return best
        return min(candidates, key=lambda i: len(factors(args[i].scale)), default=-1)

    def _find_scale(
        self, args: tuple[IterSplit, ...], used: list[bool], scale: Expr, source: IterMark | None, last: int, unit: int
    ) -> int:
        """Return the rightmost unused position with this scale, preferring digits of extent 1; -1 if there is none."""
        best = -1
        for i in range(last, -1, -1):
            if used[i] or (source is not None and args[i].source is not source):
                continue
            if self.proofs.equal(args[i].scale, scale):
                if is_one(args[i].extent):
                    return i
                if best == -1:
                    best = i
                if i <= unit:
                    break
        return best

    def _find_scale_at_most(self, args: tuple[IterSplit, ...], used: list[bool], scale: Expr) -> int:
        """Return the unused position of the greatest scale that is at most `scale`; -1 if there is none."""
        best = -1
        for i in range(len(args) - 1, -1, -1):
            mine = args[i].scale
            if used[i] or not self.proofs.at_least(scale, mine) or not self.proofs.at_least(mine, c.const(0)):
                continue
            if best == -1 or self._is_less(args[best].scale, mine):
                best = i
        return best

    def _is_less(self, a: Expr, b: Expr) -> bool:
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value < b.value
        return self.proofs.analyzer.prove(c.less(a, b))

    # ------------------------------------------------------------ joining and fusing

    def join(self, value: IterSum) -> IterSum | None:
        """Join adjacent digits of one iterator; None if no iterator occurs twice.

        (x // (l * e)) % m * (e * s) + (x // l) % e * s == (x // l) % (m * e) * s
        """
        args = value.args
        counts: dict[IterMark, int] = {}
        for split in args:
            counts[split.source] = counts.get(split.source, 0) + 1
        if len(counts) == len(args):
            return None
        used, digits, unit = [False] * len(args), [], _first_unit(args)
        for last in range(len(args) - 1, -1, -1):
            while not used[last]:
                if counts[args[last].source] == 1:
                    used[last] = True
                    digits.append(args[last])
                else:
                    digits.append(self._joined(args, used, last, unit))
        return IterSum(tuple(reversed(digits)), value.base)

    def _joined(self, args: tuple[IterSplit, ...], used: list[bool], last: int, unit: int) -> IterSplit:
        at = self._find_smallest_scale(args, used, args[last].source, last)
        used[at] = True
        low = args[at]
        while True:
            scale = product(low.extent, low.scale)
            at = self._find_scale(args, used, scale, low.source, last, unit)
            if at == -1 or not self.proofs.equal(args[at].lower_factor, product(low.lower_factor, low.extent)):
                return low
            used[at] = True
            low = with_changes(low, extent=product(args[at].extent, low.extent))

    def fuse(self, value: IterSum, early: bool = True) -> IterSum | None:
        """Return the sum as one digit plus a base; None if scales do not fit. `early`: stop at an existing digit."""
        joined = self.join(value) if len(value.args) > 1 else None
        if joined is not None:
            value = joined
            if len(value.args) <= 1 and early:
                return value
        args, dtype = value.args, value.base.dtype
        if len(args) == 1 and is_one(args[0].scale) and not self.constraints:  # the usual case: nothing to search
            (digit,), one = args, args[0].scale
            return self._cached_digit(value, [digit], [digit], one, IntImm(dtype, 0), product(digit.extent, one))
        used, unit = [False] * len(args), _first_unit(args)
        at = self._find_smallest_scale(args, used, None, len(args) - 1)
        if at == -1:
            return None
        base_scale = expected = args[at].scale
        flat: list[IterSplit] = []
        grouped: list[IterSplit] = []
        offset: Expr = IntImm(dtype, 0)
        tail: Expr = IntImm(dtype, 0)
        while len(flat) < len(args):
            if flat:
                at = self._find_scale(args, used, expected, None, len(args) - 1, unit)
            scale = expected
            if at == -1:
                if self.level != "bijective" and is_one(base_scale):
                    at = self._find_scale_at_most(args, used, expected)
                if at == -1:
                    return None
                scale = args[at].scale
                tail = c.add(tail, c.sub(expected, scale))
            constraint = self._constraint(args[at])
            if constraint is None:
                used[at] = True
                digit = with_changes(args[at], scale=self._quotient(args[at].scale, base_scale))
                flat.append(digit)
                grouped.append(digit)
                expected = product(digit.extent, scale)
                continue
            digits = self._take_digits(constraint, args, used, scale)
            if digits is None:
                return None
            flat += digits
            known = self._fused[self._key(constraint)]
            grouped.append(whole_split(known.mark, c.floordiv(scale, base_scale)))
            offset = c.add(offset, c.mul(known.offset, scale))
            expected = product(known.mark.extent, scale)
        extent = c.add(c.div(expected, base_scale), tail)
        return self._cached_digit(value, flat, grouped, base_scale, offset, extent)

    def _quotient(self, scale: Expr, base: Expr) -> Expr:
        if is_one(base):
            return scale if isinstance(scale, IntImm) else self.proofs.analyzer.simplify(scale)
        return self.proofs.analyzer.simplify(c.floordiv(scale, base))

    def _constraint(self, digit: IterSplit) -> IterSum | None:
        """Return the longest constrained sum that ends with this digit, or None."""
        longest = None
        if self.constraints:
            key = self._digit_key(digit)
            for flat in self.constraints:
                if self._digit_key(flat.args[-1]) == key and (longest is None or len(longest.args) < len(flat.args)):
                    longest = flat
        return longest

    def _take_digits(
        self, constraint: IterSum, args: tuple[IterSplit, ...], used: list[bool], scale: Expr
    ) -> list[IterSplit] | None:
        """Take the digits of a constrained sum, times `scale`, out of `args` from the last; None if one is missing."""
        digits = []
        for wanted in reversed(constraint.args):
            key, expected = self._digit_key(wanted), c.mul(wanted.scale, scale)
            for k, split in enumerate(args):
                if not used[k] and self._digit_key(split) == key and self.proofs.equal(expected, split.scale):
                    used[k] = True
                    digits.append(split)
                    break
            else:
                return None
        return digits

    def _cached_digit(
        self, value: IterSum, flat: list[IterSplit], grouped: list[IterSplit], scale: Expr, offset: Expr, extent: Expr
    ) -> IterSum | None:
        """Return the digit of the cached or new iterator for `flat`."""
        zero = IntImm(value.base.dtype, 0)
        flattened = IterSum(tuple(reversed(flat)), zero)
        key = self._key(flattened)
        known = self._fused.get(key)
        if known is None:
            structured = IterSum(tuple(reversed(grouped)), zero)
            known = self._fused[key] = Fused(IterMark(structured, extent), offset)
            self._flat[self._key(structured)] = flattened
        elif not self.proofs.equal(offset, c.mul(known.offset, scale)):
            return None
        return IterSum((whole_split(known.mark, scale),), c.add(value.base, offset))


def _first_unit(args: tuple[IterSplit, ...]) -> int:
    """Return the position of the first digit of extent 1, or the length if there is none."""
    return next((i for i, split in enumerate(args) if is_one(split.extent)), len(args))


def with_scale(value: IterSum, factor: Expr) -> IterSum:
    """Return the sum times a factor."""
    args = tuple(with_changes(s, scale=c.mul(s.scale, factor)) for s in value.args)
    return IterSum(args, c.mul(value.base, factor))
