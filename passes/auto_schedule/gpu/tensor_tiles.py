"""Tiles for products on tensor cores, chosen by their bottleneck: products, shared memory or the L2 cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from mlcc.machine.gpu_rates import GpuRates
from mlcc.machine.gpu_tables import GpuFacts

# bytes or products per clock of a multiprocessor (A100, whitepaper); only their ratios matter
PRODUCTS = 1024  # 16-bit products
SHARED_BYTES = 128
L2_BYTES = 64
LATENCY = 250  # clocks from the copies of a step to its products
STARTUP = 1500  # clocks before the first products and after the last
PAD = 16  # padding bytes per row, so that eight rows lie in different banks
CORES = 4  # tensor cores per multiprocessor; a warp uses one


@dataclass(frozen=True)
class WarpTile:
    """`rows` x `columns` of the result in a block of `y` x `x` warps; a step covers `depth` 16-bit elements."""

    rows: int
    columns: int
    depth: int
    y: int
    x: int

    @property
    def warps(self) -> int:
        return self.y * self.x

    @property
    def registers(self) -> int:
        """Estimate the registers of a thread: sums, fragments of both operands, and addresses."""
        rows, columns = self.rows // self.y, self.columns // self.x
        return rows * columns // 32 + (rows + columns) // 4 + 48


TILES = (
    WarpTile(128, 256, 32, 2, 4),
    WarpTile(256, 128, 32, 4, 2),
    WarpTile(128, 128, 32, 2, 2),
    WarpTile(128, 64, 32, 2, 2),
    WarpTile(64, 128, 32, 2, 2),
    WarpTile(64, 64, 64, 2, 2),
    WarpTile(32, 128, 64, 1, 4),
    WarpTile(128, 32, 64, 4, 1),
    WarpTile(32, 64, 64, 1, 2),
    WarpTile(32, 32, 64, 1, 2),
    WarpTile(16, 128, 64, 1, 4),
    WarpTile(16, 64, 64, 1, 2),
    WarpTile(16, 32, 64, 1, 2),
)
STAGES = 4  # steps whose operands are in shared memory at once, at most


@dataclass(frozen=True)
class TileConfig:
    """A tile with its depth in elements, and the number of pipeline stages in shared memory."""

    tile: WarpTile
    depth: int
    stages: int

    def __str__(self) -> str:
        t = self.tile
        return (
            f"tiles of {t.rows} x {t.columns} in {t.y} x {t.x} warps, {self.depth} deep, {self.stages} in shared memory"
        )


@dataclass(frozen=True)
class GemmSizes:
    """A batched GEMM: `batches` times m x n results of depth k; each operand's elements take `bytes` bytes."""

    m: int
    n: int
    k: int
    batches: int
    bytes: int


# the dimensions of a tile, for `choose_tile`
PARTS: tuple[tuple[str, str, Callable[[TileConfig], int]], ...] = (
    ("rows", "rows of a block's tile", attrgetter("tile.rows")),
    ("columns", "columns of a block's tile", attrgetter("tile.columns")),
    ("warps", "warps of a block", attrgetter("tile.warps")),
)


def fitting_choices(facts: GpuFacts, sizes: GemmSizes, least_depth: int) -> list[tuple[float, TileConfig]]:
    """Return the tiles that fit, with their estimated clocks, best first.

    `least_depth`: the depth of one instruction.
    """
    timed = [
        (clocks(facts, sizes, choice), choice)
        for tile in TILES
        if (choice := _fit_tile(facts, sizes, tile, least_depth))
    ]
    return sorted(timed, key=lambda pair: pair[0])


def choose(facts: GpuFacts, sizes: GemmSizes, least_depth: int) -> TileConfig | None:
    """Return the tile with the least estimated time; None if none fits."""
    choices = fitting_choices(facts, sizes, least_depth)
    return choices[0][1] if choices else None


def product_seconds(facts: GpuFacts, sizes: GemmSizes, least_depth: int, depth: int, batches: int) -> float:
    """Return the expected seconds of a product with its best tile, at another depth and number of batches; infinity if
    no tile fits."""
    sizes = replace(sizes, k=depth, batches=batches)
    choices = fitting_choices(facts, sizes, least_depth)
    return choices[0][0] / GpuRates.of(facts).hertz if choices else inf


def _fit_tile(facts: GpuFacts, sizes: GemmSizes, tile: WarpTile, least_depth: int) -> TileConfig | None:
    """Return the tile with as many pipeline stages as fit shared memory, or None if none fits.

    Two blocks share a multiprocessor if each has room for at least three stages.
    """
    depth = min(tile.depth * 2 // sizes.bytes, -(-sizes.k // least_depth) * least_depth)
    step = _step_bytes(tile, depth, sizes.bytes)
    shared = min(facts.shared_per_block, facts.shared_per_sm // 2 - 1024)
    if shared < 3 * step or tile.registers * tile.warps * facts.warp * 2 > facts.registers_per_sm:
        shared = facts.shared_per_block
    stages = min(STAGES, shared // step, -(-sizes.k // depth))
    if stages < 1 or tile.registers > facts.registers_per_thread or tile.warps * facts.warp > facts.max_threads:
        return None
    return TileConfig(tile, depth, stages)


def _step_bytes(tile: WarpTile, depth: int, size: int) -> int:
    """Return the most bytes that one step takes in shared memory: strips are stored along their depth or across."""
    return sum(max(n * (depth * size + PAD), depth * (n * size + PAD)) for n in (tile.rows, tile.columns))


def clocks(facts: GpuFacts, sizes: GemmSizes, choice: TileConfig) -> float:
    """Estimate the clock cycles of the whole product."""
    tile, depth = choice.tile, choice.depth
    tiles = -(-sizes.m // tile.rows) * -(-sizes.n // tile.columns) * sizes.batches
    tiles_per_sm = max(-(-tiles // facts.sm_count), 1)  # on one multiprocessor
    shared = choice.stages * _step_bytes(tile, depth, sizes.bytes)
    concurrent_blocks = min(max(facts.blocks_at_once(tile.warps * facts.warp, tile.registers, shared), 1), tiles_per_sm)
    rate = PRODUCTS * 2 / sizes.bytes * min(CORES, tile.warps * concurrent_blocks) / CORES
    copied_bytes = (tile.rows + tile.columns) * depth * sizes.bytes
    read_bytes = (tile.rows * tile.x + tile.columns * tile.y) * depth * sizes.bytes
    step_clocks = max(
        tile.rows * tile.columns * depth / rate, (copied_bytes + read_bytes) / SHARED_BYTES, copied_bytes / L2_BYTES
    )
    steps = -(-sizes.k // depth)
    return tiles_per_sm * (steps * max(step_clocks, LATENCY / concurrent_blocks) + STARTUP / concurrent_blocks)
