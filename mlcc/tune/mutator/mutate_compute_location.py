"""The mutator of compute locations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.primitives.compute_location import compute_locations
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.tune.mutator.mutator import Mutator
from mlcc.tune.schedule_rule.analysis import block_of

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class MutateComputeLocation(Mutator):
    """Moves a stage to another legal location of `sample_compute_location`. TVM: `MutateComputeLocation`."""

    def __init__(self) -> None:
        self._context: TuneContext | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._context = context

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        sampled = [i for i in trace.insts if i.name == "sample_compute_location"]
        while sampled:
            inst = sampled.pop(random.below(len(sampled)))
            places = [place for place in self._locations(trace, inst) if place != inst.decision]
            if places:
                return trace.with_decision(inst, places[random.below(len(places))])
        return None

    def _locations(self, trace: Trace, inst: Instruction) -> list[int]:
        """Return the legal decisions of the step, by a replay of the steps before it."""
        assert self._context is not None, "a mutator is initialized with a context"
        at = next(n for n, other in enumerate(trace.insts) if other is inst)
        try:
            sch, handles = self._context.replayed(trace.insts[:at])
        except CompileError:
            return []
        block = handles[inst.arguments["block"]]
        assert isinstance(block, BlockRV)
        return [place for place, _ in compute_locations(block_of(sch, block))]
