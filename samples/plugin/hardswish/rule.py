"""The schedule rule `small-elementwise`."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.rule import Rule

LIMIT = 4096  # elements; starting threads for fewer takes longer than computing them


def small_elementwise(kernel: Kernel) -> str:
    """One vectorized loop for all elements, on the calling thread."""
    inline_cheap(kernel)
    stages = kernel.stages()
    if len(stages) != 1 or stages[0].reduced or not stages[0].plain or not stages[0].loops:
        not_applicable("it is more than one block that computes an expression per element")
    count = 1
    for loop in stages[0].loops:
        extent = tir.const_int(loop.extent)
        if extent is None:
            not_applicable("a size is only known at run time")
        count *= extent
    if count > LIMIT:
        not_applicable(f"{count} elements are more than {LIMIT}")
    sch, (block,) = kernel.sch, kernel.blocks()
    width = kernel.choose("width", "elements of a vector", [n for n in (16, 8, 4, 1) if count % n == 0])
    _, inner = sch.split(sch.fuse(*kernel.loops(block)), [None, width])
    sch.vectorize(inner)
    return f"{count} elements in one loop, {width} at a time"


SMALL_ELEMENTWISE = Rule("small-elementwise", small_elementwise, before="elementwise")
