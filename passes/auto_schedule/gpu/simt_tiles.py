"""Tiles of matrix products without tensor cores, and a cost model that ranks them for a product on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from mlcc.ir.dtypes import DType
from mlcc.machine.gpu_rates import GpuRates
from mlcc.machine.gpu_tables import GpuFacts

PIECE = 4  # rows and columns of a piece of a thread's tile, one 16-byte load
BANKS = 32  # banks of shared memory, 4 bytes wide
SCHEDULERS = 4  # warp schedulers per multiprocessor, one instruction per cycle each
SHARED_LATENCY, GLOBAL_LATENCY = 30, 500  # latency of loads from shared and from global memory, in cycles
ROW_COPY_COST, WINDOW_COPY_COST = 2, 8  # instructions per copied element, including its address
STARTUP = 1500  # clocks before the first products and after the last
MAX_SUMS = 128  # most accumulators of a thread: half of its registers


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` of the result in a block of `y` x `x` threads; each step covers `depth` of the reduction."""

    rows: int
    columns: int
    depth: int
    y: int
    x: int

    @property
    def threads(self) -> int:
        return self.y * self.x

    @property
    def thread_tile(self) -> tuple[int, int]:
        """Rows and columns of a thread's tile."""
        return self.rows // self.y, self.columns // self.x

    def shared(self, versions: int, element: int) -> int:
        """Bytes of shared memory for the strips, with the padding that puts rows into different banks."""
        return versions * self.depth * (self.rows + self.columns + 2 * PIECE) * element

    def registers(self, element: int) -> int:
        """Estimate the registers of a thread: sums, operands of this and the next step, addresses."""
        rows, columns = self.thread_tile
        return (rows * columns + 2 * (rows + columns)) * element // 4 + 40

    def __str__(self) -> str:
        return f"tiles of {self.rows} x {self.columns} in {self.y} x {self.x} threads, {self.depth} deep"


TILES = (
    Tile(128, 128, 8, 16, 8),
    Tile(128, 128, 8, 16, 16),
    Tile(128, 64, 8, 16, 8),
    Tile(64, 128, 8, 8, 16),
    Tile(64, 64, 16, 16, 8),
    Tile(64, 64, 16, 16, 16),
    Tile(32, 64, 16, 8, 16),
    Tile(64, 32, 16, 16, 8),
    Tile(32, 32, 16, 8, 8),
    Tile(16, 64, 16, 4, 16),
)


# the dimensions of a tile, for `choose_tile`
PARTS: tuple[tuple[str, str, Callable[[Tile], int]], ...] = (
    ("rows", "rows of a block's tile", attrgetter("rows")),
    ("columns", "columns of a block's tile", attrgetter("columns")),
    ("threads", "threads of a block", attrgetter("threads")),
)


def fitting_tiles(
    facts: GpuFacts, m: int | None, n: int | None, batches: int | None, element: int, windows: bool = False
) -> list[tuple[float, Tile]]:
    """Return the tiles with the expected times of the whole product, best first.

    Unknown sizes count as large. Operands that are read at `windows` cost more address arithmetic.
    """
    m, n, batches = m or 4096, n or 4096, batches or 16

    def time(tile: Tile) -> float:
        count = -(-m // tile.rows) * -(-n // tile.columns) * batches
        tiles_per_sm = -(-count // facts.sm_count)  # tiles on the busiest multiprocessor
        at_once = facts.blocks_at_once(tile.threads, tile.registers(element), tile.shared(2, element))
        warps = max(min(tiles_per_sm, at_once), 1) * tile.threads / facts.warp
        stall_cycles = SHARED_LATENCY + (0 if facts.has_cp_async else GLOBAL_LATENCY / tile.depth)
        return (
            tiles_per_sm
            * tile.rows
            * tile.columns
            / (_multiply_fraction(tile, windows) * _utilization(warps, tile, stall_cycles))
        )

    max_sums = MAX_SUMS // 2 if windows else MAX_SUMS  # addresses at windows take registers, too
    timed = [(time(t), t) for t in TILES if t.thread_tile[0] * t.thread_tile[1] * element // 4 <= max_sums]
    return sorted(timed, key=lambda pair: pair[0])


def product_seconds(facts: GpuFacts, m: int, n: int, element: int, dtype: DType, depth: int, batches: int) -> float:
    """Return the expected seconds of a product of `m` x `n` results with its best tile.

    `element` is the bytes of the widest element of operands and result, and `dtype` the type of the sums, which must be
    one that `GpuRates.lanes` has a rate for. Each result is a sum of `depth` products; there are `batches` such
    products in one kernel.
    """
    rates = GpuRates.of(facts)
    clocks_of_step = fitting_tiles(facts, m, n, batches, element)[0][0] / rates.lanes[str(dtype)]
    return (clocks_of_step * depth + STARTUP) / rates.hertz


def _multiply_fraction(tile: Tile, windows: bool) -> float:
    """Return the share of multiplications among the instructions of a thread.

    The others load vectors from shared memory for each step, and copy elements there.
    """
    rows, columns = tile.thread_tile
    products = rows * columns
    loads = (rows + columns) / PIECE
    copies = (tile.rows + (tile.columns if windows else tile.columns / PIECE)) / tile.threads
    return products / (products + 2 * loads + copies * (WINDOW_COPY_COST if windows else ROW_COPY_COST))


def _utilization(warps: float, tile: Tile, waits: float) -> float:
    """Estimate the utilization of a multiprocessor with its four schedulers by `warps` warps.

    While one warp of a scheduler waits `waits` cycles for loads in each step, the others have products to compute.
    """
    rows, columns = tile.thread_tile
    ready = warps / SCHEDULERS * rows * columns
    return min(warps / SCHEDULERS, 1) * ready / (ready + waits)
