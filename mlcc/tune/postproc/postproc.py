"""The base of postprocessors."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.component import Component


class Postproc(Component):
    """A postprocessor of sampled schedules: carries out annotations, or rejects the schedule. TVM: `Postproc`."""

    def may_pass(self, steps: Sequence[Instruction]) -> bool:
        """Check decisions before a replay: return False only if `apply` is certain to return False."""
        return True

    def apply(self, sch: Schedule) -> bool:
        """Change the schedule in place. Return False to reject it; a CompileError of a step rejects it, too."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """Return the default postprocessors of a kind of target (see `ScheduleRule.create`).

        Raises ValueError for other kinds.
        """
        from mlcc.tune.postproc.defaults import default_postprocs

        return default_postprocs(kind)
