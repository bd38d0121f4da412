"""Reductions along a non-contiguous axis: neighbouring lanes of a warp compute neighbouring results.

Rows of threads split the reduction of each result; blocks do, too, where there are few results.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.nests import stores_disjointly, vectorizable_loop
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV

MIN_COLUMNS = 8  # adjacent results that fill a memory sector
LOADS_IN_FLIGHT = 4  # loads in flight per thread
MAX_THREADS = 512  # threads per block
MIN_PART = 64  # least elements of a result per block


def contiguous_result_loop(stage: Stage) -> int | None:
    """Return the loop along which data and results are contiguous, or None if the reduced axis is contiguous."""
    position = vectorizable_loop(stage, [n for n in stage.spatial if stores_disjointly(stage, n)])
    if position is None or (stage.extents[position] or 0) < MIN_COLUMNS:
        return None
    steps = [s for s, a in zip(stage.steps_by(position), stage.accesses, strict=True) if not a.stored]
    along = [s for s, a in zip(stage.steps_by(stage.reduced[-1]), stage.accesses, strict=True) if not a.stored]
    return position if set(steps) <= {0, 1} and 1 in steps and 1 not in along else None


def column_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """Schedule the loops of such a stage, with partial results first where multiprocessors would be idle otherwise."""
    stage = kernel.stage(block)
    position = contiguous_result_loop(stage)
    assert position is not None
    length, results = stage.times(stage.reduced), stage.times(stage.spatial)
    part_count = 1
    if length is not None and results is not None and stage.plain:
        blocks = -(-results // _lanes(kernel, stage, position))
        part_count = min(2 * kernel.facts.sm_count // max(blocks, 1), length // MIN_PART)
    note = f"`{stage.block.name}`: contiguous results"
    if part_count > 1 and length is not None:
        loops = [kernel.loops(block)[n] for n in stage.reduced]
        fused = kernel.sch.fuse(*loops) if len(loops) > 1 else loops[0]
        size = _nearby_divisor(length, -(-length // part_count))
        if length % size:
            kernel.sch.pad_reduction(fused, size)
        _bind_loops(kernel, kernel.sch.rfactor(kernel.sch.split(fused, [None, size])[0], 0))
        note += f", from partial results of {size} elements each"
    _bind_loops(kernel, block)
    return note


def _nearby_divisor(length: int, target: int) -> int:
    """Return the first divisor of `length` from `target` up to 1.5 times as much, or `target` if there is none."""
    return next((n for n in range(target, target + target // 2) if length % n == 0), target)


def _lanes(kernel: GpuKernel, stage: Stage, position: int) -> int:
    return min(kernel.facts.warp, 1 << ((stage.extents[position] or kernel.facts.warp) - 1).bit_length())


def _bind_loops(kernel: GpuKernel, block: BlockRV) -> None:
    sch, stage = kernel.sch, kernel.stage(block)
    position = contiguous_result_loop(stage)
    if position is None:
        not_applicable(f"block `{stage.block.name}` is not contiguous along its results")
    loops, lanes = kernel.loops(block), _lanes(kernel, stage, position)
    others = [n for n in stage.spatial if n != position]
    order = [*others, position, *stage.reduced]
    if order != sorted(order):
        sch.reorder(*(loops[n] for n in order))
    reduced = kernel.fused([loops[n] for n in stage.reduced])
    column_block, column = sch.split(loops[position], [None, lanes])
    sch.bind(kernel.fused([*(loops[n] for n in others), column_block]), "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    length = stage.times(stage.reduced)
    rows = max(kernel.facts.warp // lanes, 1)
    while rows * lanes < MAX_THREADS and (length is None or 2 * LOADS_IN_FLIGHT * rows <= length):
        rows *= 2
    if length is not None and length % (LOADS_IN_FLIGHT * rows) == 0:
        _, unrolled, row = sch.split(reduced, [None, LOADS_IN_FLIGHT, rows])
        sch.unroll(unrolled)
    else:
        _, row = sch.split(reduced, [None, rows])
    sch.bind(row, "threadIdx.y")
