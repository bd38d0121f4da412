"""The mapping of one stage's loops to the threads of a grid, which all GPU rules end with."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.nests import owned, vector_place
from mlcc.passes.auto_schedule.offers import around, halves
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.analysis.reducers import reduction_parts
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.refusal import Refusal

THREADS = 256  # of a block, where nothing else decides: enough to fill a multiprocessor, few enough to balance
VECTOR_BYTES = 16  # the widest access of a thread
ON_THE_WAY = 32  # bytes of one operand that a thread has asked for and waits for
MOST_TURNS = 4
MOST_OPERATIONS = 64  # of a thread, beyond which it need not ask for more at a time


def thread_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """Run a stage with one thread for each result, or for some vectors of results; a thread computes its sums alone.

    Return a few words on what was done.
    """
    sch, stage = kernel.sch, kernel.stage(block)
    if not stage.spatial:
        sch.bind(sch.add_unit_loop(block if not stage.loops else kernel.loops(block)[0]), "threadIdx.x")
        return f"`{stage.block.name}`: one thread"
    if stage.plain and not stage.reduced:
        return map_nest(kernel, block)
    loops = kernel.loops(block)
    order = [*stage.spatial, *stage.reduced]
    if order != sorted(order):
        sch.reorder(*(loops[n] for n in order))
    spread(kernel, [loops[n] for n in stage.spatial], stage.times(stage.spatial))
    return f"`{stage.block.name}`: a thread for each result"


def map_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """A stage that only stores expressions: vectors along what it stores, and in large ones several turns of a thread,
    so that enough is on its way from memory. Loops that run through memory alike become one."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    free = [n for n in stage.spatial if owned(stage, n)]
    last = vector_place(stage, free)
    order = list(stage.spatial) if last is None else [*(n for n in stage.spatial if n != last), last]
    if order != sorted(order):
        sch.reorder(*(loops[n] for n in order))
    together = 1
    while (
        last is not None and together < len(order) and stage.fusable(*order[-together - 1 : len(order) - together + 1])
    ):
        together += 1
    inner, outer = order[-together:], order[:-together]
    lanes = 1 if last is None else _lanes(kernel, stage, inner)
    about = f"`{stage.block.name}` that a thread"
    if lanes > 1:
        lanes = kernel.choose("lanes", f"results of {about} computes side by side", halves(lanes))
    turns = _turns(kernel, stage, lanes)
    turns = kernel.choose("turns", f"vectors of {about} computes in turn", around(turns, (1, 2, MOST_TURNS)))
    if outer and stage.times(inner) is None:  # an index is taken apart once for a whole piece of what lies alike
        rows = sch.fuse(*(loops[n] for n in outer)) if len(outer) > 1 else loops[outer[0]]
        row = sch.fuse(*(loops[n] for n in inner)) if len(inner) > 1 else loops[inner[0]]
        piece, turn, thread = sch.split(row, [None, turns, THREADS // 2])
        sch.bind(sch.fuse(rows, piece), "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.unroll(turn)
        return f"`{stage.block.name}`: blocks for pieces of {turns * THREADS // 2} results that lie alike"
    spread(kernel, [loops[n] for n in order], stage.times(order), lanes, turns)
    each = f"{lanes} results each" if lanes > 1 else "a thread for each result"
    return f"`{stage.block.name}`: {each}" + (f", {turns} times" if turns > 1 else "")


def combinable(stage: Stage) -> bool:
    """Return True if the combiner of a reduction is known, so that partial results can be combined."""
    try:
        reduction_parts(stage.block)
    except Refusal:
        return False
    return True


def stores_only(stage: Stage) -> bool:
    """Return True if the body only stores expressions, tuples included."""
    return all(isinstance(stmt, (tir.BufferStore, tir.Bind)) for stmt in stage.block.body)


def spread(kernel: GpuKernel, loops: list[LoopRV], times: int | None, lanes: int = 1, turns: int = 1) -> None:
    """Run nested loops (`times` iterations in all), given outermost first, on threads: `lanes` iterations side by side
    on each, as a vector, and as many again after all threads of the block, in `turns`."""
    sch = kernel.sch
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if lanes > 1:
        fused, lane = sch.split(fused, [None, lanes])
        sch.vectorize(lane)
    threads = block_threads(kernel, None if times is None else times // (lanes * turns))
    if turns > 1:
        outer, turn, inner = sch.split(fused, [None, turns, threads])
        sch.unroll(turn)
    else:
        outer, inner = sch.split(fused, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")


def block_threads(kernel: GpuKernel, times: int | None) -> int:
    """Choose the number of threads in a block, for `times` threads in all.

    Blocks get smaller where every multiprocessor would not have one otherwise.
    """
    threads = min(THREADS, kernel.facts.max_threads)
    while times is not None and threads > kernel.facts.warp and times < threads * kernel.facts.sm_count:
        threads //= 2
    others = (n for n in (32, 64, 128, 256, 512) if kernel.facts.warp <= n <= kernel.facts.max_threads)
    return kernel.choose("threads", "threads of a block", around(threads, others))


def _lanes(kernel: GpuKernel, stage: Stage, places: list[int]) -> int:
    """Return how many adjacent results a thread computes: those of the widest access that fits.

    1 unless every access is contiguous or a broadcast. The number divides the extent, and leaves a warp for each
    multiprocessor.
    """
    times, length = stage.times(stage.spatial), stage.times(places)
    if any(s not in (0, 1) for s in stage.steps_by(places[-1])):
        return 1
    known = length if length is not None else stage.extents[places[-1]]
    if known is None:
        return 1
    lanes = max(VECTOR_BYTES // stage.element_bytes, 1)
    least = kernel.facts.sm_count * kernel.facts.warp
    while lanes > 1 and (known % lanes or (times is not None and times // lanes < least)):
        lanes //= 2
    return lanes


def _turns(kernel: GpuKernel, stage: Stage, lanes: int) -> int:
    """Return how many times a thread repeats its part, so that enough bytes are in flight.

    Fewer where multiprocessors would not be full, or where the arithmetic already hides the latency of loads.
    """
    facts, times = kernel.facts, stage.times(stage.spatial)
    turns = MOST_TURNS
    full = facts.sm_count * facts.threads_per_sm
    while turns > 1 and (
        turns * lanes * stage.element_bytes > ON_THE_WAY
        or turns * lanes * stage.operations > MOST_OPERATIONS
        or (times is not None and times < turns * lanes * full)
    ):
        turns //= 2
    return turns
