"""Annotate the root block with limits for parallelization, vectorization and unrolling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedule_rule.analysis import block_of, is_root, is_spatial_func
from mlcc.tune.schedule_rule.rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Marks the root block for `RewriteParallelVectorizeUnroll`. TVM: `ParallelizeVectorizeUnroll`.

    At most `max_jobs_per_core` jobs per core (-1: no parallel loops) and `max_vectorize_extent` elements per vector
    loop (-1: no vector loops); the unroll limit is sampled from `unroll_max_steps`, for explicit unrolling
    (`unroll_explicit`) or LLVM's.
    """

    def __init__(
        self, max_jobs_per_core: int = 16, max_vectorize_extent: int = 16,
        unroll_max_steps: Sequence[int] | None = None, unroll_explicit: bool = True,
    ) -> None:  # fmt: skip
        self.max_jobs_per_core, self.max_vectorize_extent = max_jobs_per_core, max_vectorize_extent
        self.unroll_max_steps = list(unroll_max_steps or ())
        self.unroll_explicit = unroll_explicit
        self._max_parallel_extent = -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if self.max_jobs_per_core != -1:
            self._max_parallel_extent = context.facts.num_cores * self.max_jobs_per_core

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        ref = block_of(sch, block)
        if not is_root(ref):
            return [sch]
        if self.max_jobs_per_core != -1:
            sch.annotate(block, "meta_schedule.parallel", self._max_parallel_extent)
        if self.max_vectorize_extent != -1:
            sch.annotate(block, "meta_schedule.vectorize", self.max_vectorize_extent)
        if self.unroll_max_steps and not is_spatial_func(ref.tree):
            n = len(self.unroll_max_steps)
            steps = sch.sample_categorical(self.unroll_max_steps, [1.0 / n] * n)
            sch.annotate(block, f"meta_schedule.unroll_{'explicit' if self.unroll_explicit else 'implicit'}", steps)
        return [sch]
