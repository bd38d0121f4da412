"""Attention of few queries with split keys: blocks share the keys of a head, and a second kernel combines the results.

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
from mlcc.passes.attention.attention_kernel import (
    AttentionKernel,
    binary_scale,
    normalization_factor,
    power,
    tile_count,
)
from mlcc.passes.attention.spec import Attention
from mlcc.passes.attention.template import KernelTemplate, load_template
from mlcc.passes.attention.tiles import Tile

MIN_TILES_PER_BLOCK = 2  # least key tiles per block
MAX_BLOCKS_PER_SM = 4  # blocks that run on a multiprocessor at once


@dataclass(frozen=True, slots=True, eq=False)
class KeySplit:
    """The split of a head's keys among blocks, and the buffer of their partial results.

    A head has `count` blocks, `max_count` if it is the only one. `partial` holds the unnormalized results of each
    block, followed by the maximum of its scores and the sum of its weights.
    """

    count: Expr
    max_count: int
    partial: tir.Buffer

    @staticmethod
    def of(attention: Attention, tile: Tile, facts: GpuFacts) -> KeySplit:
        max_blocks = facts.sm_count * max(1, min(MAX_BLOCKS_PER_SM, facts.shared_per_sm // (tile.shared + 1024)))
        heads = c.maximum(c.const(1, INT64), c.mul(attention.batch, attention.heads))
        useful_blocks = tile_count(attention.keys, MIN_TILES_PER_BLOCK * tile.keys)
        count = c.maximum(c.const(1, INT64), c.minimum(c.floordiv(c.const(max_blocks, INT64), heads), useful_blocks))
        rows = c.minimum(attention.queries, c.const(tile.rows, INT64))
        shape = (count, attention.batch, attention.heads, rows, c.const(attention.columns + 2, INT64))
        return KeySplit(count, max_blocks, c.make_buffer("partial", shape, FLOAT32))


class SplitKeysKernel(AttentionKernel):
    """The kernel that computes partial results over one block's share of the keys."""

    def __init__(self, attention: Attention, tile: Tile, share: KeySplit) -> None:
        super().__init__(attention, tile)
        self.share = share

    def call_parts(self) -> Expr:
        return self.share.count

    def call_first(self, number: Expr) -> Expr:
        return c.const(0, INT64)

    def _tiles_per_block(self) -> Expr:
        """Return the number of key tiles per block."""
        begin, stop = self.key_tiles
        return c.floordiv(c.add(c.sub(stop, begin), c.sub(self.share.count, 1)), self.share.count)

    def call_begin(self, number: Expr) -> Expr:
        return c.add(self.key_tiles[0], c.mul(number, self._tiles_per_block()))

    def call_stop(self, number: Expr) -> Expr:
        return c.minimum(self.key_tiles[1], c.add(self.call_begin(number), self._tiles_per_block()))

    def call_factor(self, total: Expr) -> Expr:
        return c.const(1, FLOAT32)

    def do_state(self, number: Expr, b: Expr, h: Expr, i: Expr, lane: Expr, most: Expr, total: Expr) -> list[Stmt]:
        stores = []
        for n, value in enumerate((most, total)):
            buffer, at = self.result_location(number, b, h, i, c.const(self.attention.columns + n, INT64))
            stores.append(tir.BufferStore(buffer, value, at))
        return [tir.IfThenElse(c.equal(lane, 0), tuple(stores))]

    def result_location(
        self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr
    ) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        return self.share.partial, (number, b, h, i, column)


class CombineKernel(KernelTemplate):
    """The kernel that combines partial results; `part(s, b, h, i, column)` is that of split `s` for a query."""

    def __init__(self, attention: Attention, share: KeySplit) -> None:
        threads = 32 * min(8, -(-attention.columns // 32))
        rounds = -(-attention.columns // threads)
        text = load_template("combine", threads=threads, turns=rounds, columns=attention.columns)
        super().__init__(text, (attention.batch, attention.heads, attention.queries, share.count))
        self.attention = attention
        self.share = share

    def call_part(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr) -> Expr:
        return c.load(self.share.partial, number, b, h, i, c.cast(INT64, column))

    def call_power(self, x: Expr) -> Expr:
        return power(binary_scale(self.attention), x)

    def call_factor(self, total: Expr) -> Expr:
        return normalization_factor(self.attention, total)

    def do_result(self, b: Expr, h: Expr, i: Expr, column: Expr, value: Expr) -> list[Stmt]:
        buffer, at = self.attention.result(b, h, i, c.cast(INT64, column))
        return [tir.BufferStore(buffer, c.cast(buffer.dtype, value), at)]
