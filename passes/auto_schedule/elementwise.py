"""Kernels without reductions: elementwise, broadcast, and other stages that compute one expression per element."""

from __future__ import annotations

from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import spatial_nest


def elementwise(kernel: Kernel) -> str:
    """Fuse stages where that recomputes nothing, and vectorize each along the axis that it stores contiguously."""
    for stage in kernel.stages():
        if stage.reduced:
            not_applicable(f"block `{stage.block.name}` reduces")
        if not stage.plain:
            not_applicable(f"block `{stage.block.name}` does more than store expressions")
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        kernel.say(spatial_nest(kernel, block))
    return "all axes are spatial" + (f"; {count} stages inlined" if count else "")
