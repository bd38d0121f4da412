"""Kernels that read along one axis and store along another, by way of tiles in shared memory: both ends touch whole
lines of global memory."""

from __future__ import annotations

from mlcc.passes.auto_schedule.gpu.gemm_form import joined_axes
from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import number_of
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.auto_schedule.transposes import alike, crossing
from mlcc.passes.schedule.handles import BlockRV

WARP = 32  # threads that store, or load, a row of a tile
ROWS = 8  # of threads
WORD = 4  # bytes that a thread moves at a time: narrow elements by two or four


def transposes(kernel: GpuKernel) -> str:
    """The rule: stages that cross their data by tiles, others a thread for each result."""
    for stage in kernel.stages():
        if stage.reduced or not stage.plain:
            not_this(f"block `{stage.block.name}` reduces, or does more than store expressions")
    inline_cheap(kernel)
    crossed = [(block, _crossed(kernel.stage(block))) for block in kernel.blocks()]
    if not any(axes for _, axes in crossed):
        not_this("no block reads along another axis than it stores")
    for block, axes in crossed:
        if axes is None:
            kernel.say(thread_nest(kernel, block))
        else:
            _by_tiles(kernel, block, *axes)
    return "stores along another axis than it reads"


def _crossed(stage: Stage) -> tuple[list[int], list[int], Access] | None:
    """The loops along which a stage stores, others along which it reads, and the access that does; long ones."""
    pair = crossing(stage)
    if pair is None:
        return None
    store, read = pair
    stored, loaded = alike(stage, store, read), alike(stage, read, store)
    if any((stage.times(places) or WARP) < WARP for places in (stored, loaded)):
        return None
    steps = zip(stage.steps_by(read), stage.steps_by(store), stage.accesses, strict=True)
    return next(((stored, loaded, a) for along, across, a in steps if along == 1 and across not in (0, 1)), None)


def _lanes(stage: Stage, *groups: list[int]) -> int:
    """Return how many elements a thread moves at a time: a divisor of both sides, each at least a tile long."""
    lanes = max(WORD // stage.element_bytes, 1)
    sides = [stage.times(places) for places in groups]
    while lanes > 1 and any(n is None or n % lanes or n < WARP * lanes for n in sides):
        lanes //= 2
    return lanes


def _by_tiles(kernel: GpuKernel, block: BlockRV, stored: list[int], loaded: list[int], access: Access) -> None:
    sch, stage = kernel.sch, kernel.stage(block)
    lanes = _lanes(stage, stored, loaded)
    size = WARP * lanes
    several = len(stored) + len(loaded) > 2
    if several:
        stored, loaded = _joined(kernel, block, stored, loaded)
    number = number_of(kernel, block, access.buffer)
    if several:  # the tile by the axes of the block: of several axes of the buffer it would be more than is wanted
        tile = sch.reindex(block, ("read", number))
        sch.set_scope(tile, 0, "shared")
    else:
        tile = sch.cache_read(block, number, "shared")
    loops = kernel.loops(block)
    outer = [loop for n, loop in enumerate(loops) if n not in (*stored, *loaded)]
    far, column = sch.split(loops[stored[0]], [None, size])
    strip, row = sch.split(loops[loaded[0]], [None, size])
    sch.reorder(*outer, strip, far, row, column)
    place = kernel.fused([*outer, strip, far])
    sch.bind(place, "blockIdx.x")
    sch.compute_at(tile, place)
    _threads(kernel, block, lanes)
    copy, own = kernel.stage(tile), kernel.loops(tile)
    if several:
        sch.reorder(own[-1], own[-2])  # the axis that is read along is inside
        copy = kernel.stage(tile)
    along = copy.steps_by(len(copy.loops) - 1)
    if copy.extents[-1] != size or 1 not in along or len(own) < 3:
        not_this("the tile's loops are not its rows and columns")
    _threads(kernel, tile, lanes)
    sch.storage_align(tile, 0, -2, size, 1)
    kernel.say(f"`{kernel.stage(block).block.name}`: tiles of {size} x {size} in shared memory")


def _joined(kernel: GpuKernel, block: BlockRV, stored: list[int], loaded: list[int]) -> tuple[list[int], list[int]]:
    """Make one axis of those that a stage stores along, and one of those that it reads along; gives where they are."""
    stage = kernel.stage(block)
    places = {loop.var: n for n, loop in enumerate(stage.loops)}
    given = [places[v] for v in (stage.axes[a.var] for a in stage.block.iter_vars) if v in places]
    extents = {n: extent or 0 for n, extent in enumerate(stage.extents)}
    if len(given) != len(stage.loops) or any(not extents[n] for group in (stored, loaded) for n in group[1:]):
        not_this("axes cannot be put together")
    outer = [[n] for n in given if n not in (*stored, *loaded)]
    kernel.sch.transform_block_layout(block, joined_axes(given, (*outer, loaded, stored), extents))
    return [len(outer) + 1], [len(outer)]


def _threads(kernel: GpuKernel, block: BlockRV, lanes: int) -> None:
    """The two innermost loops: a row of threads for the columns, rows of threads for the others."""
    *_, row, column = kernel.loops(block)
    turn, rows = kernel.sch.split(row, [None, ROWS])
    kernel.sch.unroll(turn)
    kernel.sch.bind(rows, "threadIdx.y")
    if lanes > 1:
        column, lane = kernel.sch.split(column, [None, lanes])
        kernel.sch.vectorize(lane)
    kernel.sch.bind(column, "threadIdx.x")
