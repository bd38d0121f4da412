"""The mutator of the number of threads."""

from __future__ import annotations

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.tune.mutator.categorical import another_category
from mlcc.tune.mutator.mutator import Mutator


class MutateThreadBinding(Mutator):
    """Resamples the number of threads that a split loop is bound to. TVM: `MutateThreadBinding`."""

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        samplings = _thread_extents(trace)
        return another_category(trace, samplings[random.below(len(samplings))], random) if samplings else None


def _thread_extents(trace: Trace) -> list[Instruction]:
    """The sampling steps whose value splits off a loop that is bound to `threadIdx.x`."""
    sampled = {i.outputs[0]: i for i in trace.insts if i.name == "sample_categorical"}
    inner = {
        i.outputs[1]: sampled[i.arguments["factors"][1]]
        for i in trace.insts
        if i.name == "split" and len(i.arguments["factors"]) == 2 and i.arguments["factors"][0] is None
        and i.arguments["factors"][1] in sampled
    }  # fmt: skip
    bound = [i.arguments for i in trace.insts if i.name == "bind"]
    return [inner[b["loop"]] for b in bound if b["thread_axis"] == "threadIdx.x" and b["loop"] in inner]
