"""Products of floats with weights of few bits in fixed point, as the pass `fixed-point-products` makes them.

Chunk by chunk of a panel of columns, dot-product instructions add up digits times weights in registers; the sums are
scaled and added to the panel's results, which stay in registers too. The packed weights are read from start to end.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.fallback import schedule_alone
from mlcc.passes.auto_schedule.inlining import inline_all_but
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer
from mlcc.passes.auto_schedule.products import elementwise_consumer
from mlcc.passes.schedule.handles import BlockRV, LoopRV

FIXED_POINT = "mlcc.fixed_point"  # annotation of the block that multiplies digits and weights: the columns of a panel


def fixed_point(kernel: Kernel) -> str:
    """Schedule a product in fixed point panel by panel; see the module."""
    block = next((b for b in kernel.blocks() if FIXED_POINT in kernel.sch.get(b).annotations), None)
    if block is None:
        not_applicable("it is no product in fixed point")
    (scaled,) = kernel.sch.get_consumers(block)
    (result,) = kernel.sch.get_consumers(scaled)
    inline_all_but(kernel, result)
    sch, stage, lanes = kernel.sch, kernel.stage(block), kernel.facts.lanes(4)
    parallel = is_worth_parallelizing(kernel, stage)
    epilogue = elementwise_consumer(kernel, result)
    own = [sch.get(b) for b in (block, scaled, result, epilogue) if b is not None]
    others = [b for b in kernel.blocks() if all(sch.get(b) is not one for one in own)]
    columns = int(stage.block.annotations[FIXED_POINT])
    *rows, column = kernel.loops(result)
    panel, vector, lane = sch.split(column, [None, columns // lanes, lanes])
    sch.reorder(panel, *rows, vector, lane)
    row = [panel, *rows][-1]
    sch.vectorize(lane)
    if epilogue is not None:
        sch.reverse_compute_at(epilogue, row, preserve_unit_loops=True)
        sch.set_scope(result, 0, "local")
        sch.vectorize(sch.split(kernel.loops(epilogue)[-1], [None, lanes])[1])
    chunk, word = _schedule_sums(kernel, block, scaled, row, lanes)
    if parallel:
        parallelize_outer(kernel, [panel])
    sch.decompose_reduction(block, word)
    sch.decompose_reduction(scaled, chunk)
    for other in others:
        if kernel.exists(other):
            schedule_alone(kernel, other)
    kernel.say(f"panels of {columns} columns, sums of 4 products at a time")
    return f"`{stage.block.name}` multiplies in fixed point"


def _schedule_sums(kernel: Kernel, block: BlockRV, scaled: BlockRV, row: LoopRV, lanes: int) -> tuple[LoopRV, LoopRV]:
    """Schedule the sums of chunks for a row of a panel; return the loops over chunks and over the words of a chunk."""
    sch = kernel.sch
    sch.compute_at(scaled, row, preserve_unit_loops=True)
    sch.set_scope(scaled, 0, "local")
    column, chunk = kernel.loops(scaled)[-2:]
    vector, lane = sch.split(column, [None, lanes])
    sch.reorder(chunk, vector, lane)
    sch.unroll(vector)
    sch.vectorize(lane)
    sch.compute_at(block, chunk, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    place, column, word, field, member = kernel.loops(block)[-5:]
    vector, lane = sch.split(column, [None, lanes])
    sch.reorder(word, field, vector, place, lane, member)
    for loop in (field, vector, place, member):
        sch.unroll(loop)
    sch.vectorize(lane)
    return chunk, word
