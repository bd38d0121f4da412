"""The base of schedule rules."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class ScheduleRule:
    """Makes design spaces of a schedule, one block at a time. TVM: `meta_schedule.ScheduleRule`.

    A rule may change the schedule that it is given; those that it returns go on to the next block, or to the next
    rule.
    """

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take from the context, mostly from its target, what the rule needs."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """The ways on from `sch` that the rule knows for the block; `[sch]` if it has nothing to say."""
        raise NotImplementedError

    def clone(self) -> Self:
        """A copy that is initialized on its own."""
        return copy.copy(self)

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({given})"

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """The rules that targets of a kind have by default: `llvm`, `vnni`, `avx512`, `asimd`, `dotprod`, `cuda`.

        Raises ValueError for other kinds.
        """
        from mlcc.tune.schedule_rule.defaults import default_rules

        return default_rules(kind)
