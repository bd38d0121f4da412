"""The mutator of the unrolling limit."""

from __future__ import annotations

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Trace
from mlcc.tune.mutator.categorical import annotated_by, another_category
from mlcc.tune.mutator.mutator import Mutator

_KEYS = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


class MutateUnroll(Mutator):
    """Resamples the maximum number of unrolled steps. TVM: `MutateUnroll`."""

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        samplings = annotated_by(trace, _KEYS)
        return another_category(trace, samplings[random.below(len(samplings))], random) if samplings else None
