"""Reject schedules with loops of unknown extent."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.schedulable import functions_with_blocks


class DisallowDynamicLoop(Postproc):
    """Rejects schedules with a loop whose extent is not constant. TVM: `DisallowDynamicLoop`."""

    def apply(self, sch: Schedule) -> bool:
        return all(
            isinstance(loop.extent, tir.IntImm)
            for name in functions_with_blocks(sch)
            for loop in sch.state.tree(name).loops
        )
