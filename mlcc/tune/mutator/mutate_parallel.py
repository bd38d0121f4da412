"""The mutator of the number of parallel loops."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.mutator.mutator import Mutator

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_KEY = "meta_schedule.parallel"


class MutateParallel(Mutator):
    """Changes the bound of `meta_schedule.parallel` so that other loops are fused and run in parallel. TVM:
    `MutateParallel`.

    At most `max_jobs_per_core` jobs a core.
    """

    def __init__(self, max_jobs_per_core: int) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self._context: TuneContext | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._context = context

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        marks = [i for i in trace.insts if i.name == "annotate" and i.arguments["ann_key"] == _KEY]
        if not marks:
            return None
        mark = marks[random.below(len(marks))]
        plans = self._other_bounds(trace, mark)
        if not plans:
            return None
        limit = plans[random.below(len(plans))]
        arguments = {**mark.arguments, "ann_val": limit}
        other = Instruction(mark.name, arguments, mark.rest, mark.outputs, mark.single)
        return Trace(other if inst is mark else inst for inst in trace.without_postproc())

    def _other_bounds(self, trace: Trace, mark: Instruction) -> list[int]:
        """Return one bound for each choice of loops to fuse, other than the current one."""
        assert self._context is not None, "a mutator is initialized with a context"
        most = self._context.facts.num_cores * self.max_jobs_per_core
        try:
            sch, handles = self._context.replayed(trace.without_postproc())
        except CompileError:
            return []
        root = handles[mark.arguments["block_or_loop"]]
        assert isinstance(root, BlockRV)
        ref = sch.state.find_block(root)
        products = _products(ref.tree, ref.block, most)
        limits: dict[tuple[int, ...], int] = {}
        for limit in dict.fromkeys(p for of_block in products for p in of_block if p <= most):
            limits[_fused_loops(products, limit)] = limit
        limits.pop(_fused_loops(products, int(mark.arguments["ann_val"])), None)
        return [limits[plan] for plan in sorted(limits)]


def _products(tree: Tree, root: tir.Block, most: int) -> list[list[int]]:
    """For each block below the root, the products of the extents of its outer spatial loops, up to `most`."""
    products = []
    for realize in tree.child_realizes(root):
        of_block: list[int] = []
        product = 1
        for loop in tree.loops_above(realize.block):
            extent = tir.const_int(loop.extent)
            if extent is None or loop_iter_kind(tree, loop) is not IterKind.SPATIAL:
                break
            product *= extent
            of_block.append(product)
            if product >= most:
                break
        if of_block:
            products.append(of_block)
    return products


def _fused_loops(products: Sequence[Sequence[int]], limit: int) -> tuple[int, ...]:
    """Return the number of loops that the bound fuses, for each block."""
    counts = []
    for of_block in products:
        at = bisect_right(of_block, limit)
        if at > 0 and of_block[at - 1] == limit:
            at -= 1
        counts.append(min(at + 1, len(of_block)))
    return tuple(counts)
