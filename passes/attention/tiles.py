"""Choice of attention tile sizes by the resources of the GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.attention.spec import Attention

VECTOR = 4  # floats per load from shared memory
THREADS_PER_ROW = 16  # threads per row of queries
# accumulators per thread; fewer if rows of values are long
MAX_SUMS, MAX_SUMS_LONG_ROWS = 64, 32
LONG_ROW_COLUMNS = 8  # columns per thread above which rows are long
QUERIES, KEYS = (64, 32, 16, 8), (64, 32, 16)
MMA_SIZE = 16  # rows, columns and depth of a tensor core instruction
MAX_REGISTER_WIDTH = 128  # largest query width that is kept in registers
SPLIT_TILE_KEYS = 32  # keys per tile where blocks split the keys
_MIN_QUERIES = {"fma": 8, "mma": 16}  # least queries per tile
_MMA_TYPES = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Tile(ABC):
    """A tile of `rows` queries by `keys` keys; `width` and `columns` (of the values) are padded."""

    rows: int
    keys: int
    width: int
    columns: int
    text: ClassVar[str]  # the name of the template
    fast_powers: ClassVar[bool] = False  # powers by the device's approximation, without denormals

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads per block."""

    @property
    @abstractmethod
    def shared(self) -> int:
        """Bytes of shared memory."""

    @abstractmethod
    def placeholders(self) -> Mapping[str, object]:
        """Return the values of the template's placeholders."""


@dataclass(frozen=True)
class FmaTile(Tile):
    """A tile of fused multiply-adds in `ty` x `tx` threads; a thread stores vectors of `lanes` columns."""

    ty: int
    tx: int
    lanes: int
    text: ClassVar[str] = "fma"

    @property
    def threads(self) -> int:
        return self.ty * self.tx

    @property
    def sums_per_row(self) -> int:
        """Results of a thread in each of its rows."""
        return self.columns // self.tx

    @property
    def rows_per_thread(self) -> int:
        """Rows of a thread."""
        return self.rows // self.ty

    @property
    def shared(self) -> int:
        # padding of each row spreads columns over banks
        query_key_elements = (self.rows + self.keys) * (self.width + VECTOR)
        return 4 * (query_key_elements + self.keys * self.columns + self.rows * (self.keys + VECTOR))

    def placeholders(self) -> Mapping[str, object]:
        return {
            "rows": self.rows, "keys": self.keys, "ty": self.ty, "tx": self.tx, "pieces": self.rows_per_thread,
            "step": self.keys // self.tx, "chunks": self.sums_per_row // self.lanes, "lanes": self.lanes,
            "depth": self.width // VECTOR, "width_row": self.width + VECTOR, "weight_row": self.keys + VECTOR,
            "result_row": self.columns, "rounds": self.tx.bit_length() - 1,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"tiles of {self.rows} queries by {self.keys} keys in {self.ty} x {self.tx} threads"


@dataclass(frozen=True)
class MmaTile(Tile):
    """A tile computed on tensor cores, one warp for every 16 queries."""

    dtype: str
    text: ClassVar[str] = "mma"
    fast_powers: ClassVar[bool] = True

    @property
    def warps(self) -> int:
        return self.rows // MMA_SIZE

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def shared(self) -> int:
        return 2 * ((self.rows + self.keys) * (self.width + 8) + self.keys * (self.columns + 8))

    def placeholders(self) -> Mapping[str, object]:
        steps = self.width // MMA_SIZE
        kept_steps = steps if self.width <= MAX_REGISTER_WIDTH else 1
        return {
            "rows": self.rows, "keys": self.keys, "warps": self.warps, "width": self.width, "columns": self.columns,
            # 16 bytes of padding put the rows of a matrix of `ldmatrix` into different banks
            "width_row": self.width + 8, "result_row": self.columns + 8, "dtype": self.dtype,
            "kind": _MMA_TYPES[self.dtype], "kept": kept_steps, "before": steps if kept_steps == steps else 0,
            "again": int(kept_steps < steps),
        }  # fmt: skip

    def __str__(self) -> str:
        return f"tiles of {self.rows} queries by {self.keys} keys on tensor cores, {self.warps} warps"


def tile_for(attention: Attention, facts: GpuFacts) -> Tile | None:
    """Return the largest tile of which two fit a multiprocessor, else one; None if not even the smallest fits.

    Smaller tiles are preferred for few queries, and where larger ones would leave multiprocessors idle.
    """
    candidates = _candidates(attention, facts)
    if not candidates:
        return None
    two_per_sm = [t for t in candidates if 2 * (t.shared + 1024) <= facts.shared_per_sm] or candidates
    return max(two_per_sm, key=lambda t: (_utilization(attention, t, facts), t.rows, t.keys))


def small_tile_for(attention: Attention, facts: GpuFacts) -> Tile | None:
    """Return the tile with the fewest queries, if the problem is small enough to split the keys, else None."""
    candidates = [t for t in _candidates(attention, facts) if t.rows == _MIN_QUERIES[t.text]]
    queries, keys = tir.const_int(attention.queries), tir.const_int(attention.keys)
    if not candidates or queries is not None and queries > candidates[0].rows:
        return None
    tile = min(candidates, key=lambda t: abs(t.keys - SPLIT_TILE_KEYS))
    return None if keys is not None and keys <= 2 * tile.keys else tile


def _candidates(attention: Attention, facts: GpuFacts) -> list[Tile]:
    mma = str(attention.dtype) in _MMA_TYPES and facts.arch.number >= 80
    return [t for t in (_mma_tiles(attention) if mma else _fma_tiles(attention)) if t.shared <= facts.shared_per_block]


def _utilization(attention: Attention, tile: Tile, facts: GpuFacts) -> float:
    """Estimate the utilization of the multiprocessors and of the tile's rows, as a fraction of 1."""
    queries, head_count = tir.const_int(attention.queries), 1
    for extent in (attention.batch, attention.heads):
        head_count *= tir.const_int(extent) or 4
    if queries is None:
        return 1.0
    tile_count = -(-queries // tile.rows)
    return min(1.0, tile_count * head_count / facts.sm_count) * min(1.0, queries / (tile_count * tile.rows))


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _fma_tiles(attention: Attention) -> Iterator[FmaTile]:
    width = _round_up(attention.width, VECTOR)
    tx = THREADS_PER_ROW // 2 if attention.columns <= THREADS_PER_ROW // 2 else THREADS_PER_ROW
    lanes = min((4, 2, 1), key=lambda n: (_round_up(attention.columns, n * tx), -n))
    columns = _round_up(attention.columns, lanes * tx)
    max_sums = MAX_SUMS if columns // tx <= LONG_ROW_COLUMNS else MAX_SUMS_LONG_ROWS
    for rows in QUERIES:
        for keys in KEYS:
            tile = FmaTile(rows, keys, width, columns, min(8, rows), tx, lanes)
            if tile.rows_per_thread * tile.sums_per_row <= max_sums:
                yield tile


def _mma_tiles(attention: Attention) -> Iterator[MmaTile]:
    width, columns = _round_up(attention.width, MMA_SIZE), _round_up(attention.columns, MMA_SIZE)
    for rows in QUERIES[:-1]:
        # registers: keys of scores, and columns of results
        for keys in KEYS if columns <= MAX_REGISTER_WIDTH else KEYS[1:]:
            yield MmaTile(rows, keys, width, columns, str(attention.dtype))
