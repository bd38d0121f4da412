"""Attention of a few queries with split keys: blocks share the keys of a head, and a second kernel combines results.

This keeps the device busy where one query reads many keys. Source: Dao and others, "Flash-Decoding for long-context
inference", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, INT64
from mlcc.ir.tir import Expr, Stmt
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.attention.fill import Fill, factor, tiles
from mlcc.passes.attention.spec import Attention
from mlcc.passes.attention.text import Text, read
from mlcc.passes.attention.tiles import Tile

LEAST_TILES = 2  # of keys, that a block goes over
MOST_BLOCKS = 4  # that run on a multiprocessor at once


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """`count` blocks have a head, `most` if it is the only one. `partial` has the results of each block, not divided
    by their sums yet, and behind them the greatest score and the sum."""

    count: Expr
    most: int
    partial: tir.Buffer

    @staticmethod
    def of(what: Attention, tile: Tile, facts: GpuFacts) -> Share:
        most = facts.sm_count * max(1, min(MOST_BLOCKS, facts.shared_per_sm // (tile.shared + 1024)))
        heads = c.maximum(c.const(1, INT64), c.mul(what.batch, what.heads))
        enough = tiles(what.keys, LEAST_TILES * tile.keys)
        count = c.maximum(c.const(1, INT64), c.minimum(c.floordiv(c.const(most, INT64), heads), enough))
        rows = c.minimum(what.queries, c.const(tile.rows, INT64))
        shape = (count, what.batch, what.heads, rows, c.const(what.columns + 2, INT64))
        return Share(count, most, c.make_buffer("partial", shape, FLOAT32))


class Parts(Fill):
    """The kernel of a block's share of the keys."""

    def __init__(self, what: Attention, tile: Tile, share: Share) -> None:
        super().__init__(what, tile)
        self.share = share

    def call_parts(self) -> Expr:
        return self.share.count

    def call_first(self, number: Expr) -> Expr:
        return c.const(0, INT64)

    def _each(self) -> Expr:
        """Tiles of a block."""
        begin, stop = self.range
        return c.floordiv(c.add(c.sub(stop, begin), c.sub(self.share.count, 1)), self.share.count)

    def call_begin(self, number: Expr) -> Expr:
        return c.add(self.range[0], c.mul(number, self._each()))

    def call_stop(self, number: Expr) -> Expr:
        return c.minimum(self.range[1], c.add(self.call_begin(number), self._each()))

    def call_factor(self, total: Expr) -> Expr:
        return c.const(1, FLOAT32)

    def do_state(self, number: Expr, b: Expr, h: Expr, i: Expr, lane: Expr, most: Expr, total: Expr) -> list[Stmt]:
        stores = []
        for n, value in enumerate((most, total)):
            buffer, at = self.place(number, b, h, i, c.const(self.what.columns + n, INT64))
            stores.append(tir.BufferStore(buffer, value, at))
        return [tir.IfThenElse(c.equal(lane, 0), tuple(stores))]

    def place(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        return self.share.partial, (number, b, h, i, column)


class Combine(Text):
    """The kernel that puts shares together. `part(s, b, h, i, column)` is what share `s` has for a query."""

    def __init__(self, what: Attention, share: Share) -> None:
        threads = 32 * min(8, -(-what.columns // 32))
        turns = -(-what.columns // threads)
        text = read("combine", threads=threads, turns=turns, columns=what.columns)
        super().__init__(text, (what.batch, what.heads, what.queries, share.count))
        self.what = what
        self.share = share

    def call_part(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr) -> Expr:
        return c.load(self.share.partial, number, b, h, i, c.cast(INT64, column))

    def call_factor(self, total: Expr) -> Expr:
        return factor(self.what, total)

    def do_result(self, b: Expr, h: Expr, i: Expr, column: Expr, value: Expr) -> list[Stmt]:
        buffer, at = self.what.result(b, h, i, c.cast(INT64, column))
        return [tir.BufferStore(buffer, c.cast(buffer.dtype, value), at)]
