"""Whatever is left: each stage by itself, as far as things can be proven."""

from __future__ import annotations

from mlcc.errors import CompileError
from mlcc.passes.auto_schedule.full_reductions import total
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, NotThis
from mlcc.passes.auto_schedule.nests import reduce_nest, spatial_nest


def fallback(kernel: Kernel) -> str:
    """Every stage in vectors along what it stores, and in parallel; one whose steps are refused stays serial."""
    count = inline_cheap(kernel)
    for block in kernel.blocks():
        stage = kernel.stage(block)
        for nest in (total, reduce_nest) if stage.reduced else (spatial_nest,):
            back = kernel.checkpoint()
            try:
                kernel.say(nest(kernel, block))
                break
            except (CompileError, NotThis) as exc:
                back()
                if nest is not total:
                    assert isinstance(exc, CompileError)
                    kernel.say(f"`{stage.block.name}` stays as it is: {exc.diagnostics[0].message}")
    return "no rule for the whole" + (f"; {count} stages are computed where they are read" if count else "")
