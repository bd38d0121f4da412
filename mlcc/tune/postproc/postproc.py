"""The base of postprocessors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

from mlcc.passes.schedule.schedule import Schedule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class Postproc:
    """Ends a sampled schedule: carries out what annotations ask for, or turns it down. TVM: `Postproc`."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take from the context, mostly from its target, what the postprocessor needs."""

    def apply(self, sch: Schedule) -> bool:
        """Change the schedule in place; False turns it down. So does a step that is refused (CompileError)."""
        raise NotImplementedError

    def clone(self) -> Self:
        """A copy that is initialized on its own."""
        return copy.copy(self)

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({given})"

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """The postprocessors that targets of a kind have by default (`ScheduleRule.create` has the kinds).

        Raises ValueError for other kinds.
        """
        from mlcc.tune.postproc.defaults import default_postprocs

        return default_postprocs(kind)
