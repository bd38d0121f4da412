"""Kernels that reduce each row: softmax, norms, means, products of a matrix and a vector. A block of threads has a row;
its threads share it out, and put their partial results together."""

from __future__ import annotations

from math import prod

from mlcc.passes.auto_schedule.gpu.nests import combinable, stores_only
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

SHORT = 32  # elements of a row for which a thread of its own is enough
EACH = 4  # elements that a thread should have, before there are more threads
MOST = 512  # threads for a row


def rows(kernel: GpuKernel) -> str:
    """All stages of a row run one after the other in one block; what one hands to the next is in shared memory."""
    inline_cheap(kernel)
    stages, blocks = kernel.stages(), kernel.blocks()
    axes = _row_axes(kernel, stages)
    length = max((_size(s, _inner(s, axes)) or MOST * EACH for s in stages), default=1)
    threads = _threads(kernel, length)
    last = kernel.loops(blocks[-1])
    row = _fused(kernel, last[: _long(stages[-1])[axes - 1] + 1])
    for block, stage in reversed(list(zip(blocks[:-1], stages[:-1], strict=True))):
        kernel.sch.compute_at(block, row)
        size = 1 if stage.reduced else _size(stage, _inner(stage, axes))
        if size is not None and size * stage.element_bytes <= kernel.facts.shared_static // (2 * len(stages)):
            for number in range(len(stage.block.writes)):
                kernel.sch.set_scope(block, number, "shared")
    kernel.sch.bind(row, "blockIdx.x")
    for block in blocks:
        share_out_row(kernel, block, threads)
    return f"{sum(bool(s.reduced) for s in stages)} reductions along rows; {threads} threads have a row"


def share_out_row(kernel: GpuKernel, block: BlockRV, threads: int) -> None:
    """The loops of a stage within a row, the outermost, over the threads of a block."""
    sch, stage = kernel.sch, kernel.stage(block)
    loops = kernel.loops(block)
    inner = [n for n in (stage.reduced or range(1, len(loops))) if n]
    along = _fused(kernel, [loops[n] for n in inner]) if inner else sch.add_unit_loop(block)  # the first thread's
    _, lane = sch.split(along, [None, threads])
    sch.bind(lane, "threadIdx.x")


def _fused(kernel: GpuKernel, loops: list[LoopRV]) -> LoopRV:
    return kernel.sch.fuse(*loops) if len(loops) > 1 else loops[0]  # type: ignore[no-any-return]


def _threads(kernel: GpuKernel, length: int) -> int:
    """How many threads have a row: a power of two of at least a warp."""
    threads = kernel.facts.warp
    while threads < min(MOST, kernel.facts.max_threads) and threads * EACH < length:
        threads *= 2
    return threads


def _long(stage: Stage) -> list[int]:
    """The places of the loops that run more than once."""
    return [n for n, extent in enumerate(stage.extents) if extent != 1]


def _inner(stage: Stage, axes: int) -> list[int]:
    """The places of the loops within a row."""
    return list(stage.reduced) or _long(stage)[axes:]


def _size(stage: Stage, places: list[int]) -> int | None:
    extents = [stage.extents[n] for n in places]
    return None if None in extents else prod(n for n in extents if n is not None)


def _row_axes(kernel: GpuKernel, stages: list[Stage]) -> int:
    """How many outer loops all stages share, loops that run once not counted."""
    reducing = [s for s in stages if s.reduced]
    if not reducing:
        not_this("no block reduces")
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_this("there are several outputs")
    count = min(sum(n in s.spatial for n in _long(s)) for s in reducing)
    if count == 0:
        not_this("there is one row only")
    first = [stages[-1].loops[n] for n in _long(stages[-1])[:count]]
    for stage in stages:
        name = f"block `{stage.block.name}`"
        if not stores_only(stage):
            not_this(f"{name} does more than store expressions")
        long = _long(stage)
        own = [stage.loops[n] for n in long[:count]]
        if not len(own) == len(first) == count or not all(map(stage.same_extent, own, first)):
            not_this(f"{name} has other rows")
        inner = _inner(stage, count)
        if any(n not in long[:count] for n in long if n not in inner):
            not_this(f"{name} reduces one part of its rows only")
        if stage.reduced:
            _check_length(stage, inner)
            if not combinable(stage):
                not_this(f"how {name} combines is not known")
    return count


def _check_length(stage: Stage, inner: list[int]) -> None:
    """Rows that are long enough for several threads, and read along memory."""
    length = _size(stage, inner)
    if length is not None and length <= SHORT:
        not_this(f"rows of {length} elements are for one thread each")
    along = [n for n in inner if stage.extents[n] != 1]
    if along and not all(step in (0, 1) for step in stage.steps_by(along[-1])):
        not_this(f"block `{stage.block.name}` does not read along its rows")


def grid_rows(kernel: GpuKernel, block: BlockRV) -> None:
    """A reduction by itself: a block of threads for each result."""
    stage = kernel.stage(block)
    loops = kernel.loops(block)
    outer, inner = [loops[n] for n in stage.spatial], [loops[n] for n in stage.reduced]
    if [*stage.spatial, *stage.reduced] != sorted([*stage.spatial, *stage.reduced]):
        kernel.sch.reorder(*outer, *inner)
    place = _fused(kernel, outer) if outer else kernel.sch.add_unit_loop(inner[0])
    kernel.sch.bind(place, "blockIdx.x")
    share_out_row(kernel, block, _threads(kernel, _size(stage, list(stage.reduced)) or MOST * EACH))
