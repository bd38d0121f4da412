"""The base of schedule rules."""

from __future__ import annotations

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.component import Component


class ScheduleRule(Component):
    """Derives design spaces from a schedule, one block at a time. TVM: `meta_schedule.ScheduleRule`.

    A rule may modify the given schedule; the schedules that it returns are passed on to the next block or rule.
    """

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Return the schedules that the rule derives from `sch` for the block; `[sch]` if it does not apply."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """Return the default rules of a kind of target: `llvm`, `vnni`, `avx512`, `asimd`, `dotprod`, `cuda`.

        Raises ValueError for other kinds.
        """
        from mlcc.tune.schedule_rule.defaults import default_rules

        return default_rules(kind)
