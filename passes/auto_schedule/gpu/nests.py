"""The loops of one stage over the threads of a grid: what the rules for GPUs end with."""

from __future__ import annotations

from math import prod

from mlcc.ir import tir
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.nests import owned, vector_place
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.reducers import reduction_parts
from mlcc.passes.schedule.refusal import Refusal

THREADS = 256  # of a block, where nothing else decides: enough to fill a multiprocessor, few enough to balance
VECTOR_BYTES = 16  # the widest access of a thread


def thread_nest(kernel: GpuKernel, block: BlockRV) -> str:
    """A stage by one thread for each result, or for each vector of results that lie side by side; a thread computes its
    sums by itself. Gives a few words on what was done."""
    sch, stage = kernel.sch, kernel.stage(block)
    if not stage.spatial:
        sch.bind(sch.add_unit_loop(block if not stage.loops else kernel.loops(block)[0]), "threadIdx.x")
        return f"`{stage.block.name}`: one thread"
    free = [n for n in stage.spatial if owned(stage, n)]
    vector = None if stage.reduced or not stage.plain else vector_place(stage, free)
    lanes = 1 if vector is None else _lanes(kernel, stage, vector)
    loops = kernel.loops(block)
    order = [n for n in stage.spatial if n != vector] + ([vector] if vector is not None else [])
    if [*order, *stage.reduced] != sorted([*order, *stage.reduced]):
        sch.reorder(*(loops[n] for n in (*order, *stage.reduced)))
    times = _times(stage)
    spread(kernel, [loops[n] for n in order], times, lanes)
    per = f", {lanes} results each" if lanes > 1 else ""
    return f"`{stage.block.name}`: a thread for each result" if lanes == 1 else f"`{stage.block.name}`: threads{per}"


def combinable(stage: Stage) -> bool:
    """Can partial results of a reduction be put together: is its combiner known?"""
    try:
        reduction_parts(stage.block)
    except Refusal:
        return False
    return True


def stores_only(stage: Stage) -> bool:
    """Does the body do nothing but store expressions, tuples of them too?"""
    return all(isinstance(stmt, (tir.BufferStore, tir.Bind)) for stmt in stage.block.body)


def spread(kernel: GpuKernel, loops: list[LoopRV], times: int | None, lanes: int = 1) -> None:
    """Run nested loops (`times` iterations in all), given outermost first, on threads: `lanes` iterations side by side
    on each, as a vector."""
    sch = kernel.sch
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if lanes > 1:
        fused, lane = sch.split(fused, [None, lanes])
        sch.vectorize(lane)
    outer, inner = sch.split(fused, [None, block_threads(kernel, None if times is None else times // lanes)])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")


def block_threads(kernel: GpuKernel, times: int | None) -> int:
    """How many threads a block has, for so many in all: fewer where that is what it takes for every multiprocessor to
    have a block."""
    threads = min(THREADS, kernel.facts.max_threads)
    while times is not None and threads > kernel.facts.warp and times < threads * kernel.facts.sm_count:
        threads //= 2
    return threads


def _times(stage: Stage) -> int | None:
    extents = [stage.extents[n] for n in stage.spatial]
    return None if None in extents else prod(n for n in extents if n is not None)


def _lanes(kernel: GpuKernel, stage: Stage, place: int) -> int:
    """How many results along a loop one thread computes: as many as one access loads, where all accesses are whole
    vectors and enough threads remain."""
    extent, times = stage.extents[place], _times(stage)
    if extent is None or any(s not in (0, 1) for s in stage.steps_by(place)):
        return 1
    lanes = max(VECTOR_BYTES // stage.element_bytes, 1)
    least = kernel.facts.sm_count * kernel.facts.warp
    while lanes > 1 and (extent % lanes or (times is not None and times // lanes < least)):
        lanes //= 2
    return lanes
