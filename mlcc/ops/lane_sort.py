"""Sorting networks over many rows at once, one row in each lane of a vector.

Rows of a batch lie side by side in scratch memory, as ordered integers: element k of all of them is a vector. Blocks of
BLOCK vectors are sorted in registers, then merged by bitonic merges in the form where all comparators point the same
way (Knuth, TAOCP 3, 5.3.4), so that elements behind the end, which would be the largest, need not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ops.ordered_bits import is_special, ordered_bits, raw_bits, word_of
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements

BLOCK = 16  # vectors that are sorted in registers
MAX_LENGTH = 1024  # of a row; the cells of a batch should fit the second level of cache

Place = Callable[[Any, Any], tuple[Any, ...]]  # the indices of element k of a row


def lanes_of(dtype: DType) -> int:
    """Return the number of rows that are sorted at once."""
    return 8 if dtype.bits == 64 else 16


class LaneSort:
    """Emit statements that sort `lanes_of(dtype)` rows of `count` elements, at least BLOCK.

    `special[0]` is nonzero if there are -0.0 or NaN: their order among equals is not kept.
    """

    def __init__(self, count: int, dtype: DType, descending: bool) -> None:
        self.count, self.dtype, self.descending = count, dtype, descending
        self.lanes = lanes_of(dtype)
        self.padded = -(-count // BLOCK) * BLOCK
        self.word = word_of(dtype)
        self.cells = code.scratch("cells", (self.padded, self.lanes), self.word)
        self.registers = code.scratch("registers", (BLOCK, self.lanes), self.word, "local")
        self.least = code.scratch("least", (self.lanes,), self.word, "local")
        self.most = code.scratch("most", (self.lanes,), self.word, "local")
        self.found = code.scratch("found", (self.lanes,), self.word, "local")
        self.special = code.scratch("special", (1,), self.word, "local")
        self.width, self.distance = (code.scratch(n, (1,), scope="local") for n in ("run", "distance"))

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        used = (self.cells, self.registers, self.least, self.most, self.found, self.special, self.width, self.distance)
        return tuple(c.buffer for c in used)

    def _vector(self, body: Callable[[Scalar], Any]) -> tir.For:
        return code.loop(self.lanes, body, "lane", kind=tir.ForKind.VECTORIZED)

    # ---------------------------------------------------------------- rows to lanes and back

    def load(self, value: Callable[[Scalar, Scalar], Scalar], rows_apart: bool) -> Any:
        """Fill the cells with `value(lane, k)`; `rows_apart` if neighbouring lanes are not neighbours in memory."""

        def column(k: Scalar) -> Any:
            def one(lane: Scalar) -> Any:
                return self.cells.set(Scalar(calls.reinterpret(self.word, value(lane, k).expr)), k, lane)

            return self._vector(one)

        fill = self._blocks(column) if rows_apart else code.loop(self.count, column, "k")
        rest = code.loop(
            self.padded - self.count,
            lambda k: self._vector(lambda lane: self.cells.set(te.max_value(self.word), self.count + k, lane)), "k",
        )  # fmt: skip
        return fill, rest, self._order()

    def store(self, put: Callable[[Scalar, Scalar, Scalar], Any], rows_apart: bool) -> Any:
        """Emit `put(value, lane, k)` for every element."""

        def one(lane: Scalar, k: Scalar) -> Any:
            return put(Scalar(calls.reinterpret(self.dtype, self.cells[k, lane].expr)), lane, k)

        def column(k: Scalar) -> Any:
            return self._vector(lambda lane: one(lane, k))

        def piece(start: Scalar) -> Any:
            def row(lane: Scalar) -> Any:
                return code.loop(BLOCK, lambda k: one(lane, start + k), "k", kind=tir.ForKind.VECTORIZED)

            return code.loop(self.lanes, row, "lane", kind=tir.ForKind.UNROLLED)

        back = self._each(self.count, lambda cell: raw_bits(cell, self.dtype, self.descending))
        return back, (self._starts(piece) if rows_apart else code.loop(self.count, column, "k"))

    def _starts(self, body: Callable[[Scalar], Any]) -> Any:
        """Emit `body(start)` for pieces of BLOCK elements, the last of which may overlap the one before."""
        last = self.count - BLOCK
        return code.loop(self.padded // BLOCK, lambda b: body(te.min(b * BLOCK, last)), "block")

    def _blocks(self, column: Callable[[Scalar], Any]) -> Any:
        return self._starts(lambda k: code.loop(BLOCK, lambda u: column(k + u), "u", kind=tir.ForKind.UNROLLED))

    def _each(self, count: int, value: Callable[[Scalar], Scalar]) -> tir.For:
        """Replace the cells of `count` elements by `value(cell)`."""

        def column(k: Scalar) -> Any:
            return self._vector(lambda lane: self.cells.set(value(self.cells[k, lane]), k, lane))

        return code.loop(count, column, "k")

    def _order(self) -> Any:
        """Make ordered integers of the values, and note special ones."""

        def ordered(cell: Scalar) -> Scalar:
            return ordered_bits(cell, self.dtype, self.descending)

        if not self.dtype.is_float:
            return self._each(self.count, ordered), self.special.set(0, 0)

        def one(k: Scalar) -> Any:
            def at(lane: Scalar) -> Any:
                cell = self.cells[k, lane]
                seen = self.found[lane] | is_special(cell, self.dtype)
                return self.found.set(seen, lane), self.cells.set(ordered(cell), k, lane)

            return self._vector(at)

        return (
            self._vector(lambda lane: self.found.set(0, lane)),
            code.loop(self.count, one, "k"),
            self.special.set(0, 0),
            code.loop(self.lanes, lambda lane: self.special.set(self.special[0] | self.found[lane], 0), "lane"),
        )

    # ---------------------------------------------------------------- the network

    def sort(self) -> Any:
        """Sort blocks in registers, then merge neighbouring runs until one is left."""
        stages, size = [], 2
        while size <= BLOCK:
            stages += [self._reversed(size), *self._halves(size // 4)]
            size *= 2
        near = self._in_registers(self._halves(BLOCK // 2))
        merge = (self._fold(), self._far(), near, self.width.set(self.width[0] * 2, 0))
        return (
            self._in_registers(stages),
            self.width.set(BLOCK, 0),
            code.while_loop(self.width[0] < self.padded, merge),
        )

    def _exchange(self, rows: BufferElements, low: Scalar, high: Scalar) -> Any:
        """Put the lesser elements at `low`, the greater ones at `high`."""

        def compare(lane: Scalar) -> Any:
            a, b = rows[low, lane], rows[high, lane]
            return self.least.set(te.min(a, b), lane), self.most.set(te.max(a, b), lane)

        return (
            self._vector(compare),
            self._vector(lambda lane: rows.set(self.least[lane], low, lane)),
            self._vector(lambda lane: rows.set(self.most[lane], high, lane)),
        )

    def _in_registers(self, stages: list[Any]) -> Any:
        """Run stages on the registers for every block of cells."""

        def one(block: Scalar) -> Any:
            at = block * BLOCK

            def take(u: Scalar) -> Any:
                return self._vector(lambda lane: self.registers.set(self.cells[at + u, lane], u, lane))

            def put(u: Scalar) -> Any:
                return self._vector(lambda lane: self.cells.set(self.registers[u, lane], at + u, lane))

            return _unrolled(BLOCK, take), stages, _unrolled(BLOCK, put)

        return code.loop(self.padded // BLOCK, one, "block")

    def _reversed(self, size: int) -> Any:
        """Compare the halves of runs of `size`, the second one backwards."""
        half = size // 2

        def one(t: Scalar) -> Any:
            begin = t // half * size
            return self._exchange(self.registers, begin + t % half, begin + (size - 1) - t % half)

        return _unrolled(BLOCK // 2, one)

    def _halves(self, distance: int) -> list[Any]:
        """Compare elements a distance apart, and half of it, down to neighbours."""
        if distance == 0:
            return []

        def one(t: Scalar) -> Any:
            low = t // distance * (2 * distance) + t % distance
            return self._exchange(self.registers, low, low + distance)

        return [_unrolled(BLOCK // 2, one), *self._halves(distance // 2)]

    def _fold(self) -> Any:
        """Compare the elements of neighbouring runs of `width`, the second one backwards."""
        size = self.width[0] * 2

        def pair(number: Scalar) -> Any:
            begin = number * size
            first = te.max(begin + size - self.padded, construct.const(0, INT64))
            many = te.max(self.width[0] - first, construct.const(0, INT64))
            return code.loop(many, lambda t: self._exchange(self.cells, begin + t, begin + size - 1 - t), "t", first)

        return code.loop((self.padded + size - 1) // size, pair, "pair")

    def _far(self) -> Any:
        """Compare elements at distances of `width` / 2 and less, down to BLOCK."""
        distance = self.distance[0]

        def pair(number: Scalar) -> Any:
            begin = number * distance * 2
            many = te.max(te.min(distance, self.padded - begin - distance), construct.const(0, INT64))
            return code.loop(many, lambda t: self._exchange(self.cells, begin + t, begin + t + distance), "t")

        step = code.loop((self.padded + distance * 2 - 1) // (distance * 2), pair, "pair")
        halve = self.distance.set(distance // 2, 0)
        return self.distance.set(self.width[0] // 2, 0), code.while_loop(distance >= BLOCK, (step, halve))


def _unrolled(extent: int, body: Callable[[Scalar], Any]) -> tir.For:
    return code.loop(extent, body, "t", kind=tir.ForKind.UNROLLED)
