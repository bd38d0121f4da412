"""Cross-thread reduction: the threads of a block share a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Trace
from mlcc.tune.schedule_rule.analysis import (
    block_of,
    loop_of,
    needs_multi_level_tiling,
    needs_rfactor,
    reduction_innermost,
)
from mlcc.tune.schedule_rule.rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class CrossThreadReduction(ScheduleRule):
    """Binds a reduction loop to `threadIdx.x`, if possible within the consumer's loops. TVM: `CrossThreadReduction`.

    The number of threads is sampled from `thread_extents`. Raises ValueError for one that is not positive.
    """

    def __init__(self, thread_extents: Sequence[int]) -> None:
        if any(extent < 1 for extent in thread_extents):
            raise ValueError("`thread_extents` must be positive")
        self.thread_extents = list(thread_extents)
        self._most_threads = 0

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._most_threads = context.facts.max_threads_per_block

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not self._most_threads or not needs_rfactor(block_of(sch, block), self._most_threads):
            return [sch]
        variant = sch.copy()
        variant.seed(sch.fork_seed())
        target = _consumer_location(variant, block)
        n = len(self.thread_extents)
        threads: ExprRV | int = variant.sample_categorical(self.thread_extents, [1.0 / n] * n)
        if target is not None:
            consumer, at, innermost = target
            if _is_thread_bound(variant, consumer):
                known = _thread_extent(variant.trace)
                if known is None:
                    return [sch]
                threads = known
            else:
                outer, inner = variant.split(innermost, factors=[None, threads])
                variant.bind(inner, "threadIdx.x")
                at = outer if at is innermost else at
            variant.compute_at(block, at, True)
            variant.set_scope(block, 0, "shared")
        reduced, _ = reduction_innermost(variant, block)
        _, inner = variant.split(reduced, factors=[None, threads])
        variant.bind(inner, "threadIdx.x")
        return [variant, sch]


def _consumer_location(sch: Schedule, block: BlockRV) -> tuple[BlockRV, LoopRV, LoopRV] | None:
    """Return the first consumer, its loop to compute the block in, and its innermost loop; None if impossible."""
    if len(block_of(sch, block).block.writes) != 1:
        return None
    consumers = sch.get_consumers(block)
    if not consumers or needs_multi_level_tiling(block_of(sch, consumers[0])):
        return None
    shared = _shared_loop(sch, consumers)
    if len(consumers) > 1 and shared is None:
        return None
    loops = sch.get_loops(consumers[0])
    depth = _depth(sch, sch.get_loops(block), loops, shared)
    return None if depth < 0 else (consumers[0], loops[depth], loops[-1])


def _shared_loop(sch: Schedule, blocks: Sequence[BlockRV]) -> object:
    """The innermost loop around all blocks, None if there is none."""
    refs = [block_of(sch, block) for block in blocks]
    if len(refs) == 1:
        return None
    above = [refs[0].tree.loops_above(ref.block) for ref in refs]
    common = [loop for loop in above[0] if all(any(other is loop for other in loops) for loops in above)]
    return common[-1] if common else None


def _depth(sch: Schedule, own: Sequence[LoopRV], target: Sequence[LoopRV], shared: object) -> int:
    """Return the depth in the consumer's loops for the block: while its own are spatial, up to the shared loop."""
    for at, (loop, other) in enumerate(zip(own, target, strict=False)):
        ref = loop_of(sch, loop)
        if loop_iter_kind(ref.tree, ref.loop) is not IterKind.SPATIAL:
            return at - 1
        if loop_of(sch, other).loop is shared:
            return at
    return min(len(own), len(target)) - 1


def _is_thread_bound(sch: Schedule, block: BlockRV) -> bool:
    ref = block_of(sch, block)
    sch.get_loops(block)  # TVM's trace has this step
    return any((loop.thread or "").startswith("threadIdx") for loop in ref.tree.loops_above(ref.block))


def _thread_extent(trace: Trace) -> ExprRV | int | None:
    """Return the split factor that is the extent of the first loop bound to `threadIdx.x`."""
    for bound in trace.insts:
        if bound.name == "bind" and bound.arguments["thread_axis"] == "threadIdx.x":
            for inst in trace.insts:
                if inst.name == "split" and bound.arguments["loop"] in inst.outputs:
                    return inst.arguments["factors"][inst.outputs.index(bound.arguments["loop"])]  # type: ignore[no-any-return]
    return None
