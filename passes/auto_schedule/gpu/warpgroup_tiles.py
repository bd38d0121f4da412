"""Tiles for products by warpgroups, chosen by the cost model of `tensor_tiles`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.tensor_tiles import CORES, L2_BYTES, LATENCY, SHARED_BYTES, STARTUP, GemmSizes

ROWS = 64  # rows of one instruction
DEPTH = 64  # 16-bit elements per 128-byte row, the longest that is swizzled
_PRODUCTS = 2048  # products per clock of a multiprocessor (H100, whitepaper)
GROUP = 128  # threads per warpgroup
_STAGES = 4  # steps whose operands are in shared memory at once, at most
_ALIGNED = 2048  # bytes for barriers and the alignment of operands


@dataclass(frozen=True)
class WarpgroupTile:
    """A tile of `columns` columns and 64 rows for each of `groups` warpgroups."""

    columns: int
    groups: int

    @property
    def rows(self) -> int:
        return ROWS * self.groups

    @property
    def registers(self) -> int:
        """Estimate the registers of a thread: sums and addresses."""
        return ROWS * self.columns // GROUP + 48

    @property
    def step_bytes(self) -> int:
        """The bytes of shared memory that one step of the pipeline takes."""
        return (self.rows + self.columns) * DEPTH * 2


TILES = tuple(WarpgroupTile(columns, groups) for columns in (256, 128, 64) for groups in (2, 1))


@dataclass(frozen=True)
class WarpgroupConfig:
    """A tile with its number of pipeline stages, and the estimated clock cycles of the whole product."""

    tile: WarpgroupTile
    stages: int
    clocks: float

    def __str__(self) -> str:
        t = self.tile
        groups = "a warpgroup" if t.groups == 1 else f"{t.groups} warpgroups"
        return f"tiles of {t.rows} x {t.columns} in {groups}, {DEPTH} deep, {self.stages} in shared memory"


# the dimensions of a tile, for `choose_tile`
PARTS: tuple[tuple[str, str, Callable[[WarpgroupConfig], int]], ...] = (
    ("columns", "columns of a block's tile", attrgetter("tile.columns")),
    ("groups", "warpgroups of a block", attrgetter("tile.groups")),
)


def fitting_choices(facts: GpuFacts, sizes: GemmSizes) -> list[tuple[float, WarpgroupConfig]]:
    """Return the tiles that fit with their estimated clocks, best first."""
    fitting = [choice for tile in TILES if (choice := _fit_tile(facts, sizes, tile))]
    return sorted(((choice.clocks, choice) for choice in fitting), key=lambda pair: pair[0])


def choose(facts: GpuFacts, sizes: GemmSizes) -> WarpgroupConfig | None:
    """Return the tile with the least estimated time; None if none fits."""
    choices = fitting_choices(facts, sizes)
    return choices[0][1] if choices else None


def _fit_tile(facts: GpuFacts, sizes: GemmSizes, tile: WarpgroupTile) -> WarpgroupConfig | None:
    threads, steps = tile.groups * GROUP, -(-sizes.k // DEPTH)
    if tile.registers * threads > facts.registers_per_sm or threads > facts.max_threads:
        return None
    shared = min(facts.shared_per_block, facts.shared_per_sm // 2 - 1024) - _ALIGNED
    if shared < 3 * tile.step_bytes:
        shared = facts.shared_per_block - _ALIGNED
    stages = min(_STAGES, shared // tile.step_bytes, steps)
    if stages < 1:
        return None
    tiles = -(-sizes.m // tile.rows) * -(-sizes.n // tile.columns) * sizes.batches
    tiles_per_sm = max(-(-tiles // facts.sm_count), 1)  # on one multiprocessor
    at_once = facts.blocks_at_once(threads, tile.registers, stages * tile.step_bytes + _ALIGNED)
    concurrent_blocks = min(max(at_once, 1), tiles_per_sm)
    warps = threads // facts.warp * concurrent_blocks
    rate = _PRODUCTS * min(CORES, warps) / CORES
    read_bytes = tile.groups * (ROWS + tile.columns) * DEPTH * 2  # by the products
    copied_bytes = tile.step_bytes
    step_clocks = max(
        tile.rows * tile.columns * DEPTH / rate, (copied_bytes + read_bytes) / SHARED_BYTES, copied_bytes / L2_BYTES
    )
    return WarpgroupConfig(
        tile,
        stages,
        tiles_per_sm * (steps * max(step_clocks, LATENCY / concurrent_blocks) + STARTUP / concurrent_blocks),
    )
