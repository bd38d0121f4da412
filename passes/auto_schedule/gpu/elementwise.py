"""Kernels without reductions: one thread for each result, or for a few adjacent ones."""

from __future__ import annotations

from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable


def elementwise(kernel: GpuKernel) -> str:
    """Fuse stages where that recomputes nothing, and give each result, or a few adjacent ones, a thread."""
    for stage in kernel.stages():
        if stage.reduced:
            not_applicable(f"block `{stage.block.name}` reduces")
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        kernel.say(thread_nest(kernel, block))
    return "all axes are spatial" + (f"; {count} stages inlined" if count else "")
