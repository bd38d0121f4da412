"""The fallback rule: schedule each stage by itself, as far as legality can be proven."""

from __future__ import annotations

from mlcc.errors import CompileError
from mlcc.passes.auto_schedule.full_reductions import full_reduction_nest
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, RuleNotApplicable
from mlcc.passes.auto_schedule.nests import reduce_nest, spatial_nest
from mlcc.passes.schedule.handles import BlockRV


def fallback(kernel: Kernel) -> str:
    """Vectorize and parallelize every stage by itself; a stage whose steps are refused stays serial."""
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        schedule_alone(kernel, block)
    return "no rule for the whole kernel" + (f"; {count} stages inlined" if count else "")


def schedule_alone(kernel: Kernel, block: BlockRV) -> None:
    """Vectorize and parallelize a stage by itself, and describe that in the kernel's notes."""
    stage = kernel.stage(block)
    for nest in (full_reduction_nest, reduce_nest) if stage.reduced else (spatial_nest,):
        restore = kernel.checkpoint()
        try:
            kernel.say(nest(kernel, block))
            return
        except (CompileError, RuleNotApplicable) as exc:
            restore()
            if nest is not full_reduction_nest:
                assert isinstance(exc, CompileError)
                kernel.say(f"`{stage.block.name}` left alone: {exc.diagnostics[0].message}")
