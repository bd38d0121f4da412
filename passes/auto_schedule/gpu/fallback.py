"""Whatever is left: each stage by itself, a thread for each result, or a block of threads where results are few."""

from __future__ import annotations

from mlcc.errors import CompileError
from mlcc.passes.auto_schedule.gpu.columns import column_nest, column_place
from mlcc.passes.auto_schedule.gpu.nests import combinable, stores_only, thread_nest
from mlcc.passes.auto_schedule.gpu.rows import SHORT, grid_rows
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV

CHUNK = 1 << 14  # elements that one block of threads reduces, where a result comes from many times as many
MANY = 8  # chunks that are worth a kernel of their own


def fallback(kernel: GpuKernel) -> str:
    """The rule; a stage whose steps are refused stays as it is, for the pass `bind-threads`."""
    if any(0 in stage.extents for stage in kernel.stages()):
        not_this("a loop never runs")  # what a reduction over nothing gives is for `bind-threads`
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        back = kernel.checkpoint()
        try:
            _stage(kernel, block)
        except CompileError as exc:
            back()
            kernel.say(f"`{kernel.stage(block).block.name}` stays as it is: {exc.diagnostics[0].message}")
    return "no rule for the whole" + (f"; {count} stages are computed where they are read" if count else "")


def _stage(kernel: GpuKernel, block: BlockRV) -> None:
    stage = kernel.stage(block)
    if not _few_results(kernel, stage):
        kernel.say(thread_nest(kernel, block))
        return
    if column_place(stage) is not None:
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
        size = _chunk(length, kernel.facts.sm_count)
        loops = [kernel.loops(block)[n] for n in stage.reduced]
        if size or len(loops) == 1:
            fused = kernel.sch.fuse(*loops) if len(loops) > 1 else loops[0]
            if not size:
                kernel.sch.pad_reduction(fused, CHUNK)
            grid_rows(kernel, kernel.sch.rfactor(kernel.sch.split(fused, [None, size or CHUNK])[0], 0))
            kernel.say(f"`{name}`: partial results of {size or CHUNK} elements each")
    grid_rows(kernel, block)
    kernel.say(f"`{name}`: a block of threads for each result")


def _chunk(length: int, sm_count: int) -> int:
    """Return the size without a tail nearest to CHUNK, or to that which gives every multiprocessor a block; else 0."""
    wanted = max(min(CHUNK, length // sm_count), CHUNK // 8)
    dividing = [n for n in range(wanted // 2, 2 * wanted + 1) if length % n == 0]
    return min(dividing, key=lambda n: abs(n - wanted), default=0)


def _few_results(kernel: GpuKernel, stage: Stage) -> bool:
    """Return True if one thread per result leaves the device idle and the reductions are long enough to split."""
    if not stage.reduced or not stores_only(stage) or not combinable(stage):
        return False
    length, results = stage.times(stage.reduced), stage.times(stage.spatial)
    return (length is None or length > SHORT) and results is not None and results < kernel.facts.sm_count * 128
