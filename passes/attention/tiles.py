"""The choice of tile sizes by the resources of the GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.attention.spec import Attention

PIECE = 4  # floats that a thread loads from shared memory at a time
ACROSS = 16  # threads of a row of queries
SUMS, FEW_SUMS = 64, 32  # results that a thread has registers for; beside long rows of values, which it needs too
WIDE = 8  # columns of a thread from which on rows are long
QUERIES, KEYS = (64, 32, 16, 8), (64, 32, 16)
MMA = 16  # rows, columns and depth of a step of tensor cores
KEPT = 128  # columns of a query of which a thread keeps its part in registers
SHARED_OUT = 32  # keys of a tile where blocks share them out
_FEWEST = {"fma": 8, "mma": 16}  # queries of a tile
_KINDS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Tile(ABC):
    """`rows` queries by `keys` keys, `width` wide, and the keys' values of `columns`: both padded."""

    rows: int
    keys: int
    width: int
    columns: int
    text: ClassVar[str]  # the kernel's

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of a block."""

    @property
    @abstractmethod
    def shared(self) -> int:
        """Bytes of shared memory."""

    @abstractmethod
    def values(self) -> Mapping[str, object]:
        """Return the values of the placeholders in the text."""


@dataclass(frozen=True)
class FmaTile(Tile):
    """In a block of `ty` x `tx` threads; a thread stores `chunks` times `lanes` columns of each of its rows."""

    ty: int
    tx: int
    lanes: int
    text: ClassVar[str] = "fma"

    @property
    def threads(self) -> int:
        return self.ty * self.tx

    @property
    def sums(self) -> int:
        """Results of a thread in a row."""
        return self.columns // self.tx

    @property
    def pieces(self) -> int:
        """Rows of a thread."""
        return self.rows // self.ty

    @property
    def shared(self) -> int:
        wide = (self.rows + self.keys) * (self.width + PIECE)  # the piece behind each row spreads columns over banks
        return 4 * (wide + self.keys * self.columns + self.rows * (self.keys + PIECE))

    def values(self) -> Mapping[str, object]:
        return {
            "rows": self.rows, "keys": self.keys, "ty": self.ty, "tx": self.tx, "pieces": self.pieces,
            "step": self.keys // self.tx, "chunks": self.sums // self.lanes, "lanes": self.lanes,
            "depth": self.width // PIECE, "width_row": self.width + PIECE, "weight_row": self.keys + PIECE,
            "result_row": self.columns, "rounds": self.tx.bit_length() - 1,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"tiles of {self.rows} queries by {self.keys} keys in {self.ty} x {self.tx} threads"


@dataclass(frozen=True)
class MmaTile(Tile):
    """On tensor cores, a warp for each 16 queries."""

    dtype: str
    text: ClassVar[str] = "mma"

    @property
    def warps(self) -> int:
        return self.rows // MMA

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def shared(self) -> int:
        return 2 * ((self.rows + self.keys) * (self.width + 8) + self.keys * (self.columns + 8))

    def values(self) -> Mapping[str, object]:
        steps = self.width // MMA
        kept = steps if self.width <= KEPT else 1
        return {
            "rows": self.rows, "keys": self.keys, "warps": self.warps, "width": self.width, "columns": self.columns,
            # 16 bytes behind each row put the rows of a matrix of `ldmatrix` into different banks
            "width_row": self.width + 8, "result_row": self.columns + 8, "dtype": self.dtype,
            "kind": _KINDS[self.dtype], "kept": kept, "before": steps if kept == steps else 0,
            "again": int(kept < steps),
        }  # fmt: skip

    def __str__(self) -> str:
        return f"tiles of {self.rows} queries by {self.keys} keys on tensor cores, {self.warps} warps"


def tile_for(what: Attention, facts: GpuFacts) -> Tile | None:
    """Return the largest tile of which two fit a multiprocessor, else one; None if not even the smallest fits.

    Tiles have fewer queries if there are few queries, or too few tiles for all multiprocessors.
    """
    candidates = _possible(what, facts)
    if not candidates:
        return None
    twice = [t for t in candidates if 2 * (t.shared + 1024) <= facts.shared_per_sm] or candidates
    return max(twice, key=lambda t: (_busy(what, t, facts), t.rows, t.keys))


def small_tile_for(what: Attention, facts: GpuFacts) -> Tile | None:
    """Return the tile with the fewest queries, for problems with so few that blocks can split the keys; else None."""
    candidates = [t for t in _possible(what, facts) if t.rows == _FEWEST[t.text]]
    queries, keys = tir.const_int(what.queries), tir.const_int(what.keys)
    if not candidates or queries is not None and queries > candidates[0].rows:
        return None
    tile = min(candidates, key=lambda t: abs(t.keys - SHARED_OUT))
    return None if keys is not None and keys <= 2 * tile.keys else tile


def _possible(what: Attention, facts: GpuFacts) -> list[Tile]:
    mma = str(what.dtype) in _KINDS and facts.arch.number >= 80
    return [t for t in (_mma(what) if mma else _fma(what)) if t.shared <= facts.shared_per_block]


def _busy(what: Attention, tile: Tile, facts: GpuFacts) -> float:
    """Estimate the utilization of the multiprocessors and of the tile's rows, as a fraction of 1."""
    queries, times = tir.const_int(what.queries), 1
    for extent in (what.batch, what.heads):
        times *= tir.const_int(extent) or 4
    if queries is None:
        return 1.0
    tiles = -(-queries // tile.rows)
    return min(1.0, tiles * times / facts.sm_count) * min(1.0, queries / (tiles * tile.rows))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _fma(what: Attention) -> Iterator[FmaTile]:
    width = _up(what.width, PIECE)
    tx = ACROSS // 2 if what.columns <= ACROSS // 2 else ACROSS
    lanes = min((4, 2, 1), key=lambda n: (_up(what.columns, n * tx), -n))
    columns = _up(what.columns, lanes * tx)
    most = SUMS if columns // tx <= WIDE else FEW_SUMS
    for rows in QUERIES:
        for keys in KEYS:
            tile = FmaTile(rows, keys, width, columns, min(8, rows), tx, lanes)
            if tile.pieces * tile.sums <= most:
                yield tile


def _mma(what: Attention) -> Iterator[MmaTile]:
    width, columns = _up(what.width, MMA), _up(what.columns, MMA)
    for rows in QUERIES[:-1]:
        for keys in KEYS if columns <= KEPT else KEYS[1:]:  # registers: keys of scores, and columns of results
            yield MmaTile(rows, keys, width, columns, str(what.dtype))
