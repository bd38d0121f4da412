"""Sizes of tiles, from what the GPU has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlcc.gpu_facts import GpuFacts
from mlcc.ir import tir
from mlcc.passes.attention.spec import Attention

PIECE = 4  # elements that a thread loads from shared memory at a time
PAD = 4  # elements after each row of a tile in shared memory: threads that read a column find it in other banks
ACROSS = 16  # threads of a row of queries
SUMS, FEW_SUMS = 64, 32  # results that a thread has registers for; beside long rows of values, which it needs too
WIDE = 8  # columns of a thread from which on rows are long
QUERIES = (64, 32, 16, 8)


@dataclass(frozen=True)
class Tile:
    """`rows` queries by `keys` keys in a block of `ty` x `tx` threads; a thread stores `chunks` times `lanes` columns
    of each of its rows."""

    rows: int
    keys: int
    ty: int
    tx: int
    lanes: int
    chunks: int
    depth: int  # pieces of the width

    @property
    def threads(self) -> int:
        return self.ty * self.tx

    @property
    def pieces(self) -> int:
        """Queries of a thread."""
        return self.rows // self.ty

    @property
    def columns(self) -> int:
        """Columns of values that the threads of a row cover."""
        return self.chunks * self.tx * self.lanes

    @property
    def width(self) -> int:
        """Columns of queries and keys, in whole pieces."""
        return self.depth * PIECE

    @property
    def width_row(self) -> int:
        return self.width + PAD

    @property
    def weight_row(self) -> int:
        return self.keys + PAD

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return 4 * ((self.rows + self.keys) * self.width_row + self.keys * self.columns + self.rows * self.weight_row)

    def values(self) -> Mapping[str, int]:
        """What stands for the placeholders of the text."""
        return {
            "rows": self.rows, "keys": self.keys, "ty": self.ty, "tx": self.tx, "pieces": self.pieces,
            "step": self.keys // self.tx, "chunks": self.chunks, "lanes": self.lanes, "depth": self.depth,
            "width_row": self.width_row, "weight_row": self.weight_row, "result_row": self.columns,
            "rounds": self.tx.bit_length() - 1,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"tiles of {self.rows} queries by {self.keys} keys in {self.ty} x {self.tx} threads"


def tile_for(what: Attention, facts: GpuFacts) -> Tile | None:
    """The largest tile of which two fit a multiprocessor, or one; fewer queries where there are few of them, or too few
    tiles for all multiprocessors. None where not even the smallest has room."""
    found = [t for t in _candidates(what) if t.shared <= facts.shared_per_block]
    if not found:
        return None
    twice = [t for t in found if 2 * (t.shared + 1024) <= facts.shared_per_sm] or found
    return max(twice, key=lambda t: (_busy(what, t, facts), t.rows, t.keys))


def _busy(what: Attention, tile: Tile, facts: GpuFacts) -> float:
    """How large a share of the multiprocessors, and of the tile's rows, has something to do; about."""
    queries, times = tir.const_int(what.queries), 1
    for extent in (what.batch, what.heads):
        times *= tir.const_int(extent) or 4
    if queries is None:
        return 1.0
    tiles = -(-queries // tile.rows)
    return min(1.0, tiles * times / facts.sm_count) * min(1.0, queries / (tiles * tile.rows))


def _candidates(what: Attention) -> Iterator[Tile]:
    depth = -(-what.width // PIECE)
    for tx in (ACROSS, ACROSS // 2):
        lanes = min((4, 2, 1), key=lambda n: (-(-what.columns // (n * tx)) * n, -n))
        chunks = max(-(-what.columns // (lanes * tx)), 1)
        if tx < ACROSS and what.columns > tx:
            continue
        for rows in QUERIES:
            for keys in (64, 32, 16):
                ty = min(8, rows)
                tile = Tile(rows, keys, ty, tx, lanes, chunks, depth)
                if tile.pieces * chunks * lanes <= (SUMS if chunks * lanes <= WIDE else FEW_SUMS):
                    yield tile
