"""Kernels without reductions: a thread for each result, or each few that lie side by side."""

from __future__ import annotations

from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this


def elementwise(kernel: GpuKernel) -> str:
    """Stages become one where nothing is computed more often for it."""
    for stage in kernel.stages():
        if stage.reduced:
            not_this(f"block `{stage.block.name}` reduces")
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        kernel.say(thread_nest(kernel, block))
    return "all axes are spatial" + (f"; {count} stages are computed where they are read" if count else "")
