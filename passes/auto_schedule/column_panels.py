"""Reductions of large arrays across long rows: sums, means, maxima and argmax over outer axes.

A tile of a few vectors, as in `columns`, would read a few cache lines of each row: every row is another page, and
prefetchers stop at its end. Here results are computed in panels that fit L1, and rows are read some at a time along the
whole panel: unroll-and-jam of the loop over rows.
"""

from __future__ import annotations

from math import prod

from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import (
    is_worth_parallelizing,
    parallelize_outer,
    stores_disjointly,
    vectorizable_loop,
)
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

PANEL_BYTES = 4096  # of the results of a panel
ROWS = 8  # rows at a time
SHORTEST_RUN = 4096  # bytes of a row below which neighbouring rows share pages


def column_panels(kernel: Kernel) -> str:
    """Reduce rows into panels of results in L1; a stage after the reduction finishes each panel."""
    inline_cheap(kernel)
    stages = kernel.stages()
    if not stages or not stages[0].reduced or len(stages) > 2 or any(s.reduced for s in stages[1:]):
        not_applicable("it is not one reduction, perhaps with a stage after it")
    stage, block = stages[0], kernel.blocks()[0]
    along = _long_axis(kernel, stage)
    size = max(a.buffer.dtype.bits // 8 for a in stage.accesses)
    lanes = kernel.facts.lanes(size)
    if len(stages) == 1:
        if len(stage.stores) != 1:
            not_applicable("there are several outputs")
        last = kernel.sch.cache_write(block, 0, "local")
        last_stage, position = kernel.stage(last), list(stage.spatial).index(along)
    else:
        last, last_stage, position = kernel.blocks()[1], stages[1], list(stage.spatial).index(along)
        if not _walks_results(kernel, stage, last_stage):
            not_applicable(f"block `{last_stage.block.name}` does not run over the results")
    parallel = is_worth_parallelizing(kernel, stage)
    vectors = kernel.choose("vectors", "vectors of a panel", [PANEL_BYTES // (size * lanes) * n for n in (1, 2, 4)])
    rows = kernel.choose("rows", "rows at a time", [ROWS, 2 * ROWS, ROWS // 2])
    loops = kernel.loops(last)
    panel, vector, lane = kernel.sch.split(loops[position], [None, vectors, lanes])
    outer = [loops[n] for n in range(len(loops)) if n != position]
    kernel.sch.reorder(*outer, panel, vector, lane)
    kernel.sch.vectorize(lane)
    kernel.sch.compute_at(block, panel)
    first = _reduce_into_panel(kernel, block, len(last_stage.loops), lanes, rows)
    if parallel:
        parallelize_outer(kernel, [*outer, panel])
    kernel.sch.decompose_reduction(block, first)
    return f"`{stage.block.name}`: panels of {vectors} vectors of {lanes}, {rows} rows at a time"


def _long_axis(kernel: Kernel, stage: Stage) -> int:
    """Return the loop along the rows of a reduction of at least several long rows that do not fit L2."""
    name = f"block `{stage.block.name}`"
    if not stage.straight or stage.block.init is None:
        not_applicable(f"{name} does more than reduce expressions")
    along = vectorizable_loop(stage, [n for n in stage.spatial if stores_disjointly(stage, n)])
    if along is None or not set(stage.steps_by(along)) <= {0, 1}:
        not_applicable(f"{name} stores no axis contiguously")
    size = max(a.buffer.dtype.bits // 8 for a in stage.accesses)
    extent, rows = stage.extents[along], [stage.extents[n] for n in stage.reduced]
    if extent is None or extent * size < SHORTEST_RUN or None in rows:
        not_applicable(f"{name} has no long rows")
    if rows[-1] is None or rows[-1] < 2 * ROWS:
        not_applicable(f"{name} has few rows")
    loaded = [a for a in stage.accesses if not a.stored]
    for position in stage.reduced:
        steps = (s for s, a in zip(stage.steps_by(position), stage.accesses, strict=True) if a in loaded)
        if not all(s is not None and (s == 0 or s >= extent) for s in steps):
            not_applicable(f"{name} reads rows that overlap")
    iterations = stage.iterations
    if iterations is None or iterations * size <= kernel.facts.l2_bytes:
        not_applicable(f"{name} reads no more than fits L2")
    return along


def _walks_results(kernel: Kernel, stage: Stage, after: Stage) -> bool:
    """Return True if a stage stores an element for each result of a reduction, in the same order of axes."""
    if not after.plain or len(after.stores) != 1 or not kernel.is_output(after):
        return False
    mine, its = [stage.extents[n] for n in stage.spatial], list(after.extents)
    return mine == its and prod(n or 0 for n in mine) > 0 and stores_disjointly(after, len(its) - 1)


def _reduce_into_panel(kernel: Kernel, block: BlockRV, outer_count: int, lanes: int, rows: int) -> LoopRV:
    """Order the loops of a reduction inside a panel: groups of rows, vectors, rows of a group, lanes.

    Returns the first of them.
    """
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    reduced = [n for n in stage.reduced if n >= outer_count]
    spatial = [n for n in range(outer_count, len(loops)) if n not in reduced and stage.extents[n] != 1]
    vector, lane = sch.split(loops[spatial[-1]], [None, lanes])
    group, row = sch.split(loops[reduced[-1]], [None, rows])
    first = loops[reduced[0]] if len(reduced) > 1 else group
    sch.reorder(*(loops[n] for n in reduced[:-1]), group, vector, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    return first
