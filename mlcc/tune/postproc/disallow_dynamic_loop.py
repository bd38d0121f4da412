"""Loops whose extents are not known are turned down."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.functions import functions
from mlcc.tune.postproc.postproc import Postproc


class DisallowDynamicLoop(Postproc):
    """Turns down schedules with a loop that does not run a constant number of times. TVM: `DisallowDynamicLoop`."""

    def apply(self, sch: Schedule) -> bool:
        return all(
            isinstance(loop.extent, tir.IntImm) for name in functions(sch) for loop in sch.state.tree(name).loops
        )
