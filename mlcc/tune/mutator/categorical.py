"""Categorical sampling steps whose value is used in an annotation."""

from __future__ import annotations

from collections.abc import Collection

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace


def annotated_by(trace: Trace, keys: Collection[str]) -> list[Instruction]:
    """The `sample_categorical` steps whose value is annotated under one of the keys, in order of the annotations."""
    sampled = {i.outputs[0]: i for i in trace.insts if i.name == "sample_categorical"}
    values = [i.arguments["ann_val"] for i in trace.insts if i.name == "annotate" and i.arguments["ann_key"] in keys]
    return [sampled[value] for value in values if value in sampled]


def another_category(trace: Trace, inst: Instruction, random: Engine) -> Trace | None:
    """Return the trace with another candidate, by the step's probabilities; None if there is no other."""
    weights = list(inst.arguments["probs"])
    del weights[inst.decision]
    if not weights:
        return None
    chosen = random.pick(weights)
    return trace.with_decision(inst, chosen + (chosen >= inst.decision))
