"""The base of postprocessors."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.part import Part


class Postproc(Part):
    """A postprocessor of sampled schedules: carries out annotations, or rejects the schedule. TVM: `Postproc`."""

    def may_pass(self, steps: Sequence[Instruction]) -> bool:
        """Before they are replayed: False where it is certain from the decisions that `apply` will be."""
        return True

    def apply(self, sch: Schedule) -> bool:
        """Change the schedule in place; False turns it down. So does a step that is refused (CompileError)."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """The postprocessors that targets of a kind have by default (`ScheduleRule.create` has the kinds).

        Raises ValueError for other kinds.
        """
        from mlcc.tune.postproc.defaults import default_postprocs

        return default_postprocs(kind)
