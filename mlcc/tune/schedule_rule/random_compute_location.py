"""Sample the compute location of stages in the loops of their consumers."""

from __future__ import annotations

from mlcc.passes.schedule.analysis.scope import consumers
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.state import BlockRef
from mlcc.tune.schedule_rule.analysis import annotation, block_of, has_been_tiled
from mlcc.tune.schedule_rule.rule import ScheduleRule

_PRODUCER_TOO = "meta_schedule.random_compute_producer"


class RandomComputeLocation(ScheduleRule):
    """Samples the compute location of an untiled stage. TVM: `RandomComputeLocation`."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not _can_move(block_of(sch, block)):
            return [sch]
        moved = [block]
        if annotation(sch, block, _PRODUCER_TOO):
            moved += sch.get_producers(block)  # now: the block itself may be inlined
            sch.unannotate(block, _PRODUCER_TOO)
        for stage in moved:
            sch.compute_at(stage, sch.sample_compute_location(stage), True)
        return [sch]


def _can_move(ref: BlockRef) -> bool:
    """Return True for an untiled block in the root's scope that is alone in its loops and has consumers."""
    tree, block = ref.tree, ref.block
    scope = tree.scope(block)
    if scope is None or tree.scope(scope) is not None or has_been_tiled(block):
        return False
    loops = tree.loops_above(block)
    return bool(loops) and len(tree.child_realizes(loops[0].body)) == 1 and bool(consumers(tree, block))
