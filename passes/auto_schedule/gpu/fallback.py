"""The fallback rule for GPUs: schedule each stage by itself, with a thread or a block of threads for each result."""

from __future__ import annotations

from mlcc.errors import CompileError
from mlcc.passes.auto_schedule.gpu.columns import column_nest, contiguous_result_loop
from mlcc.passes.auto_schedule.gpu.nests import has_known_combiner, stores_only, thread_nest
from mlcc.passes.auto_schedule.gpu.rows import SHORT, reduction_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV

CHUNK = 1 << 14  # elements that a block reduces, for long reductions
MANY = 8  # least number of chunks that pays for a second kernel


def fallback(kernel: GpuKernel) -> str:
    """Schedule every stage by itself; a stage whose steps are refused is left to the pass `bind-threads`."""
    if any(0 in stage.extents for stage in kernel.stages()):
        not_applicable("a loop has no iterations")  # empty reductions are left to `bind-threads`
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        restore = kernel.checkpoint()
        try:
            _schedule_stage(kernel, block)
        except CompileError as exc:
            restore()
            kernel.say(f"`{kernel.stage(block).block.name}` left alone: {exc.diagnostics[0].message}")
    return "no rule for the whole kernel" + (f"; {count} stages inlined" if count else "")


def _schedule_stage(kernel: GpuKernel, block: BlockRV) -> None:
    stage = kernel.stage(block)
    if not _few_results(kernel, stage):
        kernel.say(thread_nest(kernel, block))
        return
    if contiguous_result_loop(stage) is not None:
        kernel.say(column_nest(kernel, block))
        return
    name = stage.block.name
    length = stage.times(stage.reduced)
    results = stage.times(stage.spatial)
    if (
        length is not None
        and results is not None
        and length >= MANY * CHUNK
        and results < kernel.facts.sm_count
        and stage.plain
    ):
        size = _chunk_size(length, kernel.facts.sm_count)
        loops = [kernel.loops(block)[n] for n in stage.reduced]
        if size or len(loops) == 1:
            fused = kernel.sch.fuse(*loops) if len(loops) > 1 else loops[0]
            if not size:
                kernel.sch.pad_reduction(fused, CHUNK)
            reduction_nest(kernel, kernel.sch.rfactor(kernel.sch.split(fused, [None, size or CHUNK])[0], 0))
            kernel.say(f"`{name}`: partial results of {size or CHUNK} elements each")
    reduction_nest(kernel, block)
    kernel.say(f"`{name}`: a block of threads for each result")


def _chunk_size(length: int, sm_count: int) -> int:
    """Return the divisor of the length that is nearest to the wanted chunk size, or 0.

    Chunks have CHUNK elements, or fewer so that every multiprocessor gets a block.
    """
    target = max(min(CHUNK, length // sm_count), CHUNK // 8)
    divisors = [n for n in range(target // 2, 2 * target + 1) if length % n == 0]
    return min(divisors, key=lambda n: abs(n - target), default=0)


def _few_results(kernel: GpuKernel, stage: Stage) -> bool:
    """Return True if one thread per result leaves the device idle and the reductions are long enough to split."""
    if not stage.reduced or not stores_only(stage) or not has_known_combiner(stage):
        return False
    length, results = stage.times(stage.reduced), stage.times(stage.spatial)
    return (length is None or length > SHORT) and results is not None and results < kernel.facts.sm_count * 128
