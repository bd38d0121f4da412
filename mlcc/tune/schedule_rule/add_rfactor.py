"""Split reductions into parallel partial sums (split-k, `rfactor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedule_rule.analysis import block_of, needs_rfactor, reduction_innermost
from mlcc.tune.schedule_rule.rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class AddRFactor(ScheduleRule):
    """Applies `rfactor` to a reduction whose spatial axes have too little parallelism. TVM: `AddRFactor`.

    The target parallelism is `max_jobs_per_core` jobs per core (-1: the rule skips blocks that could be tiled); the
    inner part has at most `max_innermost_factor` iterations.
    """

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: int | None = None) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self.max_innermost_factor = -1 if max_innermost_factor is None else max_innermost_factor
        self._max_parallel_extent = -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if self.max_jobs_per_core != -1:
            self._max_parallel_extent = context.facts.num_cores * self.max_jobs_per_core

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not needs_rfactor(block_of(sch, block), self._max_parallel_extent):
            return [sch]
        unchanged = sch.copy()
        unchanged.seed(sch.fork_seed())
        reduced, spatial = reduction_innermost(sch, block)
        factors = sch.sample_perfect_tile(reduced, n=2, max_innermost_factor=self.max_innermost_factor)
        variants = []
        for part in sch.split(reduced, factors=factors):
            variant = sch.copy()
            variant.seed(sch.fork_seed())
            try:
                partial_sums = variant.rfactor(part, spatial)
            except CompileError:
                continue
            variant.get_loops(partial_sums)  # TVM's trace has this step
            variant.annotate(block, "meta_schedule.random_compute_producer", 1)
            variants.append(variant)
        return [*variants, unchanged]
