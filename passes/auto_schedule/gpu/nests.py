"""The mapping of one stage's loops to a grid of threads, shared by all GPU rules."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.nests import stores_disjointly, vectorizable_loop
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.auto_schedule.tuning_choices import descending_powers_of_two, nearest_first
from mlcc.passes.schedule.analysis.reducers import reduction_parts
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.refusal import Refusal

THREADS = 256  # default threads per block: enough to fill a multiprocessor, few enough to balance load
VECTOR_BYTES = 16  # the widest access of a thread
BYTES_IN_FLIGHT = 32  # most bytes of one operand in flight per thread
MAX_TURNS = 4
MAX_OPERATIONS = 64  # operations per thread above which latency is hidden anyway


def thread_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """Run a stage with one thread for each result, or for some vectors of results; return a short description.

    Each thread computes its reductions alone.
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
    bind_to_grid(kernel, [loops[n] for n in stage.spatial], stage.times(stage.spatial))
    return f"`{stage.block.name}`: a thread for each result"


def map_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """Schedule a stage that only stores expressions; return a short description.

    It is vectorized along the axis that it stores contiguously; in large stages a thread takes several turns, to keep
    enough bytes in flight. Loops that traverse memory contiguously are fused.
    """
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    disjoint = [n for n in stage.spatial if stores_disjointly(stage, n)]
    vector_loop = vectorizable_loop(stage, disjoint)
    order = (
        list(stage.spatial) if vector_loop is None else [*(n for n in stage.spatial if n != vector_loop), vector_loop]
    )
    if order != sorted(order):
        sch.reorder(*(loops[n] for n in order))
    fused_count = 1
    while (
        vector_loop is not None
        and fused_count < len(order)
        and stage.fusable(*order[-fused_count - 1 : len(order) - fused_count + 1])
    ):
        fused_count += 1
    inner, outer = order[-fused_count:], order[:-fused_count]
    lanes = 1 if vector_loop is None else _lanes(kernel, stage, inner)
    about = f"`{stage.block.name}` that a thread"
    if lanes > 1:
        lanes = kernel.choose("lanes", f"results of {about} computes as a vector", descending_powers_of_two(lanes))
    turns = _turns(kernel, stage, lanes)
    turns = kernel.choose("turns", f"vectors of {about} computes in turn", nearest_first(turns, (1, 2, MAX_TURNS)))
    if outer and stage.times(inner) is None:  # divide an index only once for each contiguous piece
        rows = sch.fuse(*(loops[n] for n in outer)) if len(outer) > 1 else loops[outer[0]]
        row = sch.fuse(*(loops[n] for n in inner)) if len(inner) > 1 else loops[inner[0]]
        piece, turn, thread = sch.split(row, [None, turns, THREADS // 2])
        sch.bind(sch.fuse(rows, piece), "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.unroll(turn)
        return f"`{stage.block.name}`: blocks of {turns * THREADS // 2} contiguous results"
    bind_to_grid(kernel, [loops[n] for n in order], stage.times(order), lanes, turns)
    per_thread = f"{lanes} results each" if lanes > 1 else "a thread for each result"
    return f"`{stage.block.name}`: {per_thread}" + (f", {turns} times" if turns > 1 else "")


def has_known_combiner(stage: Stage) -> bool:
    """Return True if the combiner of a reduction is known, so that partial results can be combined."""
    try:
        reduction_parts(stage.block)
    except Refusal:
        return False
    return True


def stores_only(stage: Stage) -> bool:
    """Return True if the body only stores expressions, tuples included."""
    return all(isinstance(stmt, (tir.BufferStore, tir.Bind)) for stmt in stage.block.body)


def bind_to_grid(
    kernel: GpuKernel, loops: list[LoopRV], iterations: int | None, lanes: int = 1, turns: int = 1
) -> None:
    """Bind nested loops, outermost first, to a grid of threads; together they run `iterations` iterations.

    Each thread computes a vector of `lanes` adjacent iterations, and repeats that for `turns` vectors, each a block's
    width apart.
    """
    sch = kernel.sch
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if lanes > 1:
        fused, lane = sch.split(fused, [None, lanes])
        sch.vectorize(lane)
    threads = block_threads(kernel, None if iterations is None else iterations // (lanes * turns))
    if turns > 1:
        outer, turn, inner = sch.split(fused, [None, turns, threads])
        sch.unroll(turn)
    else:
        outer, inner = sch.split(fused, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")


def block_threads(kernel: GpuKernel, times: int | None) -> int:
    """Choose the number of threads in a block, for `times` threads in all.

    Blocks are smaller where some multiprocessors would have none otherwise.
    """
    threads = min(THREADS, kernel.facts.max_threads)
    while times is not None and threads > kernel.facts.warp and times < threads * kernel.facts.sm_count:
        threads //= 2
    others = (n for n in (32, 64, 128, 256, 512) if kernel.facts.warp <= n <= kernel.facts.max_threads)
    return kernel.choose("threads", "threads of a block", nearest_first(threads, others))


def _lanes(kernel: GpuKernel, stage: Stage, positions: list[int]) -> int:
    """Return how many adjacent results a thread computes: those of the widest access that fits.

    1 unless every access is contiguous or a broadcast. The number divides the extent and leaves a warp for each
    multiprocessor.
    """
    iterations, length = stage.times(stage.spatial), stage.times(positions)
    if any(s not in (0, 1) for s in stage.steps_by(positions[-1])):
        return 1
    extent = length if length is not None else stage.extents[positions[-1]]
    if extent is None:
        return 1
    lanes = max(VECTOR_BYTES // stage.element_bytes, 1)
    min_threads = kernel.facts.sm_count * kernel.facts.warp
    while lanes > 1 and (extent % lanes or (iterations is not None and iterations // lanes < min_threads)):
        lanes //= 2
    return lanes


def _turns(kernel: GpuKernel, stage: Stage, lanes: int) -> int:
    """Return how many turns a thread takes, so that enough bytes are in flight.

    Fewer where multiprocessors would not be full, or where arithmetic already hides the latency of loads.
    """
    facts, iterations = kernel.facts, stage.times(stage.spatial)
    turns = MAX_TURNS
    full_occupancy = facts.sm_count * facts.threads_per_sm
    while turns > 1 and (
        turns * lanes * stage.element_bytes > BYTES_IN_FLIGHT
        or turns * lanes * stage.operations > MAX_OPERATIONS
        or (iterations is not None and iterations < turns * lanes * full_occupancy)
    ):
        turns //= 2
    return turns
