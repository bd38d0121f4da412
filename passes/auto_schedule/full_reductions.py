"""One reduction by itself, over axes that include the innermost of the data: full sums, statistics of channels.

The results are few and the data many: chunks of the data are reduced in parallel, in the lanes of vectors, and the
partial results are combined at the end. The chunks depend on the sizes alone, so that results do not depend on the
number of threads.
"""

from __future__ import annotations

from math import prod

from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer, reduce_nest, stores_disjointly
from mlcc.passes.auto_schedule.rows import ACCUMULATORS, accumulator_counts, schedule_row_stage, split_reduction
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

CHUNK_ELEMENTS = 1 << 14  # elements per partial result
ENOUGH_RESULTS = 64  # results that are enough work for all cores without chunks


def full_reduction_nest(kernel: Kernel, block: BlockRV) -> str:
    """Schedule a block that reduces contiguous memory; raise RuleNotApplicable for any other block.

    Steps may be refused with a CompileError.
    """
    sch, stage = kernel.sch, kernel.stage(block)
    if not stage.straight or not stage.stores or stage.block.init is None:
        not_applicable("the block does more than reduce expressions")
    if not all(stores_disjointly(stage, n) for n in stage.spatial):
        not_applicable("results are not proven to be written only once")
    inner = _contiguous_reduce_loops(stage)
    outer = [n for n in stage.reduced if n not in inner and stage.extents[n] != 1]
    parallel, name = is_worth_parallelizing(kernel, stage), stage.block.name
    loops = kernel.loops(block)
    spatial = [n for n in stage.spatial if stage.extents[n] != 1]
    partial = block
    if outer:
        sch.reorder(*(loops[n] for n in stage.spatial), *(loops[n] for n in stage.reduced if n not in inner),
                    *(loops[n] for n in inner))  # fmt: skip
        partial = sch.rfactor(kernel.fused([loops[n] for n in outer]), 0)
    else:
        results = prod(stage.extents[n] or ENOUGH_RESULTS for n in spatial)
        chunk = _split_chunks(
            kernel, stage, [loops[n] for n in inner], inner, parallel and results < ENOUGH_RESULTS, not spatial
        )
        partial = sch.rfactor(chunk, 0) if chunk is not None else block
    partial_stage = kernel.stage(partial)
    partial_loops = kernel.loops(partial)
    rows = [partial_loops[n] for n in partial_stage.spatial]
    if not rows:
        not_applicable("there is nothing to run in parallel")
    if [*partial_stage.spatial, *partial_stage.reduced] != sorted([*partial_stage.spatial, *partial_stage.reduced]):
        sch.reorder(*rows, *(partial_loops[n] for n in partial_stage.reduced))
    parts = split_reduction(kernel, partial, kernel.stage(partial))
    if len(parts) < 2:
        not_applicable("the reduction is too short for vector lanes")
    row = kernel.fused(kernel.loops(parts[-1][0])[: len(rows)])
    for part, _ in reversed(parts[:-1]):
        sch.compute_at(part, row)
    if parallel:
        parallelize_outer(kernel, [row])
    for part, kind in parts:
        schedule_row_stage(kernel, part, kind)
    return f"`{name}`: partial results" + (f"; {reduce_nest(kernel, block)}" if partial is not block else "")


def _split_chunks(
    kernel: Kernel, stage: Stage, loops: list[LoopRV], positions: list[int], split_many: bool, required: bool
) -> LoopRV | None:
    """Return the loop over chunks of reduction loops that are contiguous together, or None if chunks do not pay.

    There are several chunks with `split_many` and enough elements, or a single one if a chunk is `required`. The chunk
    size divides the extent if possible; otherwise chunks are rows, or the tail is padded with neutral elements.
    """
    sch, lanes = kernel.sch, kernel.facts.lanes(stage.element_bytes)
    known = [stage.extents[n] for n in positions]
    size = None if None in known else prod(n for n in known if n is not None)
    split_many = split_many and (size is None or size >= 2 * CHUNK_ELEMENTS)
    if not split_many and not required:
        return None
    if size is not None:
        candidates = (
            [size]
            if not split_many
            else [n for n in range(2 * CHUNK_ELEMENTS, CHUNK_ELEMENTS // 4, -1) if size % n == 0]
        )
        for vectors in (*accumulator_counts(ACCUMULATORS), 1):
            divisible = [n for n in candidates if n % (vectors * lanes) == 0]
            if divisible:
                return sch.split(kernel.fused(loops), [None, divisible[0]])[0]
    if len(loops) > 1:
        return kernel.fused(loops[:-1])
    step = CHUNK_ELEMENTS if split_many or size is None else -(-size // lanes) * lanes
    sch.pad_reduction(loops[0], step)
    return sch.split(loops[0], [None, step])[0]


def _contiguous_reduce_loops(stage: Stage) -> list[int]:
    """Return the innermost reduction loops that every load traverses like a single loop."""
    inner: list[int] = []
    for position in reversed([n for n in stage.reduced if stage.extents[n] != 1]):
        if inner and not stage.fusable(position, inner[0]):
            break
        if not inner and not set(stage.steps_by(position)) <= {0, 1}:
            break
        inner.insert(0, position)
    if not inner or 1 not in stage.steps_by(inner[-1]):
        not_applicable("no load is contiguous along the reduction")
    return inner
