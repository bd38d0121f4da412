"""Kernels that read along one axis and store along another, by way of tiles in shared memory: both ends touch whole
lines of global memory."""

from __future__ import annotations

from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import number_of
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.auto_schedule.transposes import crossing
from mlcc.passes.schedule.handles import BlockRV

TILE = 32  # elements of either side: a warp stores or loads a row of it
ROWS = 8  # of threads


def transposes(kernel: GpuKernel) -> str:
    """The rule: stages that cross their data by tiles, others a thread for each result."""
    for stage in kernel.stages():
        if stage.reduced or not stage.plain:
            not_this(f"block `{stage.block.name}` reduces, or does more than store expressions")
    inline_cheap(kernel)
    crossed = [(block, _crossed(kernel.stage(block))) for block in kernel.blocks()]
    if not any(found for _, found in crossed):
        not_this("no block reads along another axis than it stores")
    for block, found in crossed:
        if found is None:
            kernel.say(thread_nest(kernel, block))
        else:
            _by_tiles(kernel, block, *found)
    return "stores along another axis than it reads"


def _crossed(stage: Stage) -> tuple[int, int, Access] | None:
    """The loop along which a stage stores, another along which it reads, and the access that does; long ones."""
    pair = crossing(stage)
    if pair is None:
        return None
    store, read = pair
    if any((stage.extents[n] or TILE) < TILE for n in pair):
        return None
    steps = zip(stage.steps_by(read), stage.steps_by(store), stage.accesses, strict=True)
    return next(((store, read, a) for along, across, a in steps if along == 1 and across not in (0, 1)), None)


def _by_tiles(kernel: GpuKernel, block: BlockRV, store: int, read: int, access: Access) -> None:
    sch, loops = kernel.sch, kernel.loops(block)
    tile = sch.cache_read(block, number_of(kernel, block, access.buffer), "shared")
    far, column = sch.split(loops[store], [None, TILE])
    strip, row = sch.split(loops[read], [None, TILE])
    outer = [loop for n, loop in enumerate(loops) if n not in (store, read)]
    sch.reorder(*outer, strip, far, row, column)
    place = sch.fuse(*outer, strip, far)
    sch.bind(place, "blockIdx.x")
    sch.compute_at(tile, place)
    _threads(kernel, block, along=-1)
    copy = kernel.stage(tile)
    along = copy.steps_by(len(copy.loops) - 1)
    if copy.extents[-1] != TILE or 1 not in along or len(kernel.loops(tile)) < 3:
        not_this("the tile's loops are not its rows and columns")
    _threads(kernel, tile, along=-1)
    sch.storage_align(tile, 0, -2, TILE, 1)
    kernel.say(f"`{kernel.stage(block).block.name}`: tiles of {TILE} x {TILE} in shared memory")


def _threads(kernel: GpuKernel, block: BlockRV, along: int) -> None:
    """The two innermost loops: a row of threads for the columns, rows of threads for the others."""
    *_, row, column = kernel.loops(block)
    _, rows = kernel.sch.split(row, [None, ROWS])
    kernel.sch.bind(rows, "threadIdx.y")
    kernel.sch.bind(column, "threadIdx.x")
