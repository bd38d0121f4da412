"""Bind loops to threads that no other rule has bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedule_rule.rule import ScheduleRule
from mlcc.tune.schedule_rule.thread_bind import bind_block_thread_idx, factor_sampler

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_EXTENTS = (32, 64, 128, 256, 512, 1024)


class AutoBind(ScheduleRule):
    """Binds the spatial loops of a block to at most `max_threadblocks` blocks of threads. TVM: `AutoBind`.

    The number of threads of a block is sampled from `thread_extents`, up to the limit of the target.
    """

    def __init__(
        self, max_threadblocks: int = 256, thread_extents: Sequence[int] | None = None, max_threads_per_block: int = -1
    ) -> None:
        self.max_threadblocks = max_threadblocks
        self.thread_extents = list(_EXTENTS if thread_extents is None else thread_extents)
        self.max_threads_per_block = max_threads_per_block

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if not context.facts.max_threads_per_block:
            raise ValueError(f"AutoBind is for targets with threads, not for `{context.target}`")
        self.max_threads_per_block = context.facts.max_threads_per_block

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        factor = factor_sampler(sch, self.thread_extents)
        bind_block_thread_idx(sch, block, self.max_threadblocks, self.max_threads_per_block, factor)
        return [sch]
