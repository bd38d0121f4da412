"""Radix sort: stable, by digits of eight bits from the least significant one on (LSD; Knuth, TAOCP 3, 5.2.5)."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir.dtypes import INT64
from mlcc.ops.ordered_bits import stable_key
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements

_DIGIT = 8  # bits
_BINS = 1 << _DIGIT


class RadixSort:
    """Emit statements that sort `count` keys, one at least, and what goes with them.

    `rows` are buffers of shape (2, count), the keys first; their result is in the half that the cell `half` names.
    """

    def __init__(self, count: Any, rows: list[BufferElements], half: BufferElements, descending: bool) -> None:
        self.count = count
        self.keys, self.rows, self.half, self.descending = rows[0], rows, half, descending
        self.digits = self.keys.dtype.bits // _DIGIT
        self.counts = code.scratch("counts", (self.digits, _BINS))
        self.total = code.scratch("total", (1,), scope="local")
        self.place = code.scratch("target", (1,), scope="local")

    @property
    def cells(self) -> tuple[BufferElements, ...]:
        return self.counts, self.total, self.place

    def _digit(self, key: Scalar, number: Scalar) -> Scalar:
        ordered = stable_key(key, self.descending)
        digit: Scalar = ((ordered >> (number * _DIGIT).astype(ordered.dtype)) & (_BINS - 1)).astype(INT64)
        return digit

    def sort(self) -> Any:
        """Count all digits, then move the elements to their places for one digit after the other."""

        def count(k: Scalar) -> Any:
            def one(p: Scalar) -> Any:
                at = self._digit(self.keys[0, k], p)
                return self.counts.set(self.counts[p, at] + 1, p, at)

            return code.loop(self.digits, one, "p")

        def distribute(p: Scalar) -> Any:
            same = self.counts[p, self._digit(self.keys[self.half[0], 0], p)] >= self.count
            move = (self._offsets(p), self._move(p), self.half.set(1 - self.half[0], 0))
            return code.if_then(te.logical_not(same), move)

        return (
            code.grid((self.digits, _BINS), lambda p, d: self.counts.set(0, p, d), "z"),
            code.loop(self.count, count, "k"),
            self.half.set(0, 0),
            code.loop(self.digits, distribute, "p"),
        )

    def _offsets(self, p: Scalar) -> Any:
        """Replace the numbers of elements with each digit by the place of the first of them."""

        def one(d: Scalar) -> Any:
            add = self.total.set(self.total[0] + self.counts[p, d], 0)
            return self.place.set(self.total[0], 0), add, self.counts.set(self.place[0], p, d)

        return self.total.set(0, 0), code.loop(_BINS, one, "d")

    def _move(self, p: Scalar) -> Any:
        def one(k: Scalar) -> Any:
            source = self.half[0]
            digit = self._digit(self.keys[source, k], p)
            moves = [row.set(row[source, k], 1 - source, self.place[0]) for row in self.rows]
            return self.place.set(self.counts[p, digit], 0), self.counts.set(self.place[0] + 1, p, digit), moves

        return code.loop(self.count, one, "k")
