"""One reduction by itself, over axes that end with the data's last: sums of everything, statistics of channels.

Results are few and the data many: partial results of chunks, in the lanes of vectors, run in parallel and are put
together at the end. How the data are divided follows from their sizes alone, so results do not depend on threads.
"""

from __future__ import annotations

from math import prod

from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import owned, reduce_nest, share_out, worth_threads
from mlcc.passes.auto_schedule.rows import partial_results, vectors_of_row
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

CHUNK = 1 << 14  # elements that one partial result comes from
MANY = 64  # results for which there is enough to share out without chunks


def total(kernel: Kernel, block: BlockRV) -> str:
    """Schedule a block that reduces along memory; NotThis for another one, and refusals as they come."""
    sch, stage = kernel.sch, kernel.stage(block)
    if not stage.plain or len(stage.stores) != 1 or stage.block.init is None:
        not_this("no reduction of one expression")
    if not all(owned(stage, n) for n in stage.spatial):
        not_this("results are not proven to be written once")
    inner = _along_memory(stage)
    outer = [n for n in stage.reduced if n not in inner and stage.extents[n] != 1]
    many, name = worth_threads(kernel, stage), stage.block.name
    loops = kernel.loops(block)
    spatial = [n for n in stage.spatial if stage.extents[n] != 1]
    partial = block
    if outer:
        sch.reorder(*(loops[n] for n in stage.spatial), *(loops[n] for n in stage.reduced if n not in inner),
                    *(loops[n] for n in inner))  # fmt: skip
        partial = sch.rfactor(kernel.fused([loops[n] for n in outer]), 0)
    else:
        results = prod(stage.extents[n] or MANY for n in spatial)
        chunk = _chunks(kernel, stage, [loops[n] for n in inner], inner, many and results < MANY, not spatial)
        partial = sch.rfactor(chunk, 0) if chunk is not None else block
    partial_stage = kernel.stage(partial)
    own = kernel.loops(partial)
    rows = [own[n] for n in partial_stage.spatial]
    if not rows:
        not_this("too little to share out")
    if [*partial_stage.spatial, *partial_stage.reduced] != sorted([*partial_stage.spatial, *partial_stage.reduced]):
        sch.reorder(*rows, *(own[n] for n in partial_stage.reduced))
    parts = partial_results(kernel, partial, kernel.stage(partial))
    if len(parts) < 2:
        not_this("too little to be summed up in lanes")
    row = kernel.fused(kernel.loops(parts[-1][0])[: len(rows)])
    for part, _ in reversed(parts[:-1]):
        sch.compute_at(part, row)
    if many:
        share_out(kernel, [row])
    for part, kind in parts:
        vectors_of_row(kernel, part, kind)
    return f"`{name}`: partial results" + (f"; {reduce_nest(kernel, block)}" if partial is not block else "")


def _chunks(
    kernel: Kernel, stage: Stage, loops: list[LoopRV], places: list[int], several: bool, wanted: bool
) -> LoopRV | None:
    """The loop over chunks of loops that go through memory as one: `several` if there are enough of them, or one if
    any is `wanted`. Parts of a size that divide it; else rows, or a rest that contributes nothing."""
    sch, lanes = kernel.sch, kernel.facts.lanes(stage.element_bytes)
    known = [stage.extents[n] for n in places]
    size = None if None in known else prod(n for n in known if n is not None)
    several = several and (size is None or size >= 2 * CHUNK)
    if not several and not wanted:
        return None
    if size is not None:
        near = [size] if not several else [n for n in range(2 * CHUNK, CHUNK // 4, -1) if size % n == 0]
        exact = [n for n in near if n % lanes == 0]
        if exact:
            return sch.split(kernel.fused(loops), [None, exact[0]])[0]
    if len(loops) > 1:
        return kernel.fused(loops[:-1])
    step = CHUNK if several or size is None else -(-size // lanes) * lanes
    sch.pad_reduction(loops[0], step)
    return sch.split(loops[0], [None, step])[0]


def _along_memory(stage: Stage) -> list[int]:
    """The innermost loops that reduce, as far as everything that is read moves along them as along one."""
    inner: list[int] = []
    for place in reversed([n for n in stage.reduced if stage.extents[n] != 1]):
        if inner and not stage.fusable(place, inner[0]):
            break
        if not inner and not set(stage.steps_by(place)) <= {0, 1}:
            break
        inner.insert(0, place)
    if not inner or 1 not in stage.steps_by(inner[-1]):
        not_this("nothing is read along memory")
    return inner
