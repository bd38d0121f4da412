"""Kernels without reductions: element-wise, broadcast, and whatever else is one expression per element."""

from __future__ import annotations

from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import spatial_nest


def elementwise(kernel: Kernel) -> str:
    """Stages become one where nothing is computed more often for it; each runs in vectors along what it stores."""
    for stage in kernel.stages():
        if stage.reduced:
            not_this(f"block `{stage.block.name}` reduces")
        if not stage.plain:
            not_this(f"block `{stage.block.name}` does more than store expressions")
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        kernel.say(spatial_nest(kernel, block))
    return "all axes are spatial" + (f"; {count} stages are computed where they are read" if count else "")
