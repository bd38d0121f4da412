"""Kernels that read along one axis and store along another, by tiles in shared memory.

Loads and stores both touch whole lines of global memory.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.gpu.gemm_form import fused_axes_map
from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.auto_schedule.transposes import fusable_loops, transposed_loops
from mlcc.passes.schedule.handles import BlockRV

WARP = 32  # threads that store or load a row of a tile
ROWS = 8  # rows of threads
WORD = 4  # bytes per access of a thread: two or four narrow elements


def transposes(kernel: GpuKernel) -> str:
    """Schedule stages that transpose their data in tiles, and others with a thread for each result."""
    for stage in kernel.stages():
        if stage.reduced or not stage.plain:
            not_applicable(f"block `{stage.block.name}` reduces, or does more than store expressions")
    inline_cheap(kernel)
    transposed_blocks = [(block, _transposed_access(kernel.stage(block))) for block in kernel.blocks()]
    if not any(axes for _, axes in transposed_blocks):
        not_applicable("no block reads along one axis and stores along another")
    for block, axes in transposed_blocks:
        if axes is None:
            kernel.say(thread_nest(kernel, block))
        else:
            _transpose_by_tiles(kernel, block, *axes)
    return "reads along one axis and stores along another"


def _transposed_access(stage: Stage) -> tuple[list[int], list[int], Access] | None:
    """Return the loops along which a stage stores and loads, and the load; None unless both are long enough."""
    loop_pair = transposed_loops(stage)
    if loop_pair is None:
        return None
    store, read = loop_pair
    stored, loaded = fusable_loops(stage, store, read), fusable_loops(stage, read, store)
    if any((stage.times(positions) or WARP) < WARP for positions in (stored, loaded)):
        return None
    steps = zip(stage.steps_by(read), stage.steps_by(store), stage.accesses, strict=True)
    return next(((stored, loaded, a) for along, across, a in steps if along == 1 and across not in (0, 1)), None)


def _lanes(stage: Stage, *groups: list[int]) -> int:
    """Return how many elements a thread moves at a time: a divisor of both sides, each at least a tile long."""
    lanes = max(WORD // stage.element_bytes, 1)
    extents = [stage.times(positions) for positions in groups]
    while lanes > 1 and any(n is None or n % lanes or n < WARP * lanes for n in extents):
        lanes //= 2
    return lanes


def _transpose_by_tiles(
    kernel: GpuKernel, block: BlockRV, stored: list[int], loaded: list[int], access: Access
) -> None:
    sch, stage = kernel.sch, kernel.stage(block)
    lanes = _lanes(stage, stored, loaded)
    size = WARP * lanes
    has_several_axes = len(stored) + len(loaded) > 2
    if has_several_axes:
        stored, loaded = _fuse_axes(kernel, block, stored, loaded)
    number = read_index(kernel, block, access.buffer)
    if has_several_axes:  # index the tile by block axes: a tile over several buffer axes would be too large
        tile = sch.reindex(block, ("read", number))
        sch.set_scope(tile, 0, "shared")
    else:
        tile = sch.cache_read(block, number, "shared")
    loops = kernel.loops(block)
    outer = [loop for n, loop in enumerate(loops) if n not in (*stored, *loaded)]
    column_block, column = sch.split(loops[stored[0]], [None, size])
    row_block, row = sch.split(loops[loaded[0]], [None, size])
    sch.reorder(*outer, row_block, column_block, row, column)
    block_loop = kernel.fused([*outer, row_block, column_block])
    sch.bind(block_loop, "blockIdx.x")
    sch.compute_at(tile, block_loop)
    _bind_threads(kernel, block, lanes)
    copy, tile_loops = kernel.stage(tile), kernel.loops(tile)
    if has_several_axes:
        sch.reorder(tile_loops[-1], tile_loops[-2])  # make the axis that is read along innermost
        copy = kernel.stage(tile)
    along = copy.steps_by(len(copy.loops) - 1)
    if copy.extents[-1] != size or 1 not in along or len(tile_loops) < 3:
        not_applicable("the tile's loops are not its rows and columns")
    _bind_threads(kernel, tile, lanes)
    sch.storage_align(tile, 0, -2, size, 1)
    kernel.say(f"`{kernel.stage(block).block.name}`: tiles of {size} x {size} in shared memory")


def _fuse_axes(kernel: GpuKernel, block: BlockRV, stored: list[int], loaded: list[int]) -> tuple[list[int], list[int]]:
    """Fuse the axes along which a stage stores, and those along which it loads; return the new positions."""
    stage = kernel.stage(block)
    loop_positions = {loop.var: n for n, loop in enumerate(stage.loops)}
    axes = [loop_positions[v] for v in (stage.axes[a.var] for a in stage.block.iter_vars) if v in loop_positions]
    extents = {n: extent or 0 for n, extent in enumerate(stage.extents)}
    if len(axes) != len(stage.loops) or any(not extents[n] for group in (stored, loaded) for n in group[1:]):
        not_applicable("the axes cannot be fused")
    outer = [[n] for n in axes if n not in (*stored, *loaded)]
    kernel.sch.transform_block_layout(block, fused_axes_map(axes, (*outer, loaded, stored), extents))
    return [len(outer) + 1], [len(outer)]


def _bind_threads(kernel: GpuKernel, block: BlockRV, lanes: int) -> None:
    """Bind the two innermost loops: columns to a row of threads, rows to several such rows."""
    *_, row, column = kernel.loops(block)
    serial, rows = kernel.sch.split(row, [None, ROWS])
    kernel.sch.unroll(serial)
    kernel.sch.bind(rows, "threadIdx.y")
    if lanes > 1:
        column, lane = kernel.sch.split(column, [None, lanes])
        kernel.sch.vectorize(lane)
    kernel.sch.bind(column, "threadIdx.x")
