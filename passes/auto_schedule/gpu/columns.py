"""Reductions along another axis than the contiguous one: neighbouring lanes of a warp compute neighbouring results.

Rows of threads split the reduction of these results, and blocks do where there are few results.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.nests import owned, vector_place
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV

NARROW = 8  # results side by side that fill a sector
EACH = 4  # elements that a thread asks for at a time
MOST = 512  # threads of a block
PART = 64  # elements of a result that are worth a block of their own


def column_place(stage: Stage) -> int | None:
    """Return the loop along which data and results are contiguous, if reduced data are not; else None."""
    place = vector_place(stage, [n for n in stage.spatial if owned(stage, n)])
    if place is None or (stage.extents[place] or 0) < NARROW:
        return None
    steps = [s for s, a in zip(stage.steps_by(place), stage.accesses, strict=True) if not a.stored]
    along = [s for s, a in zip(stage.steps_by(stage.reduced[-1]), stage.accesses, strict=True) if not a.stored]
    return place if set(steps) <= {0, 1} and 1 in steps and 1 not in along else None


def column_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """Schedule the loops of such a stage.

    Partial results come first if multiprocessors would be without work otherwise.
    """
    stage = kernel.stage(block)
    place = column_place(stage)
    assert place is not None
    length, results = stage.times(stage.reduced), stage.times(stage.spatial)
    parts = 1
    if length is not None and results is not None and stage.plain:
        blocks = -(-results // _lanes(kernel, stage, place))
        parts = min(2 * kernel.facts.sm_count // max(blocks, 1), length // PART)
    said = f"`{stage.block.name}`: results side by side"
    if parts > 1 and length is not None:
        loops = [kernel.loops(block)[n] for n in stage.reduced]
        fused = kernel.sch.fuse(*loops) if len(loops) > 1 else loops[0]
        size = _dividing(length, -(-length // parts))
        if length % size:
            kernel.sch.pad_reduction(fused, size)
        _share_out(kernel, kernel.sch.rfactor(kernel.sch.split(fused, [None, size])[0], 0))
        said += f", from partial results of {size} elements each"
    _share_out(kernel, block)
    return said


def _dividing(length: int, near: int) -> int:
    """Return the first divisor of `length` from `near` up to half as large again, or `near` if there is none."""
    return next((n for n in range(near, near + near // 2) if length % n == 0), near)


def _lanes(kernel: GpuKernel, stage: Stage, place: int) -> int:
    return min(kernel.facts.warp, 1 << ((stage.extents[place] or kernel.facts.warp) - 1).bit_length())


def _share_out(kernel: GpuKernel, block: BlockRV) -> None:
    sch, stage = kernel.sch, kernel.stage(block)
    place = column_place(stage)
    if place is None:
        not_this(f"block `{stage.block.name}` does not lie side by side")
    loops, lanes = kernel.loops(block), _lanes(kernel, stage, place)
    others = [n for n in stage.spatial if n != place]
    order = [*others, place, *stage.reduced]
    if order != sorted(order):
        sch.reorder(*(loops[n] for n in order))
    reduced = kernel.fused([loops[n] for n in stage.reduced])
    far, column = sch.split(loops[place], [None, lanes])
    sch.bind(kernel.fused([*(loops[n] for n in others), far]), "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    length = stage.times(stage.reduced)
    rows = max(kernel.facts.warp // lanes, 1)
    while rows * lanes < MOST and (length is None or 2 * EACH * rows <= length):
        rows *= 2
    if length is not None and length % (EACH * rows) == 0:
        _, turn, row = sch.split(reduced, [None, EACH, rows])
        sch.unroll(turn)
    else:
        _, row = sch.split(reduced, [None, rows])
    sch.bind(row, "threadIdx.y")
