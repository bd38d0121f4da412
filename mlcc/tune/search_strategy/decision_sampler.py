"""Sampling of random decisions without a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.passes.schedule.handles import Handle
from mlcc.passes.schedule.primitives.sampling import draw_tile
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace


class DecisionSampler:
    """Samples decisions like the sampling steps, as far as that is possible without a replay.

    Loop extents are taken from earlier decisions, and so are compute locations, of which a replay takes the nearest
    legal one.
    """

    def __init__(self) -> None:
        self._locations: dict[tuple[Handle, ...], list[int]] = {}

    def note(self, steps: Sequence[Instruction]) -> None:
        """Record the compute locations of legal decisions."""
        for inst in steps:
            if inst.name == "sample_compute_location" and inst.decision is not None:
                known = self._locations.setdefault(inst.outputs, [])
                if inst.decision not in known:
                    known.append(inst.decision)
                    known.sort()

    def draw(self, steps: Sequence[Instruction], random: Engine) -> list[Instruction]:
        """Return the steps with sampled decisions; None for decisions that need a replay."""
        return [inst.with_decision(self._decision(inst, random)) if inst.is_sampling else inst for inst in steps]

    def moved(self, trace: Trace, random: Engine) -> Trace | None:
        """Return the trace with a stage at another known compute location; None if there is none."""
        moves = [(i, p) for i in trace.insts for p in self._locations.get(i.outputs, ()) if p != i.decision]
        if not moves:
            return None
        inst, place = moves[random.below(len(moves))]
        return trace.with_decision(inst, place)

    def _decision(self, inst: Instruction, random: Engine) -> Any:
        given = inst.arguments
        if inst.name == "sample_perfect_tile" and inst.decision is not None and min(inst.decision) > 0:
            extent = math.prod(inst.decision)
            return draw_tile(random, extent, len(inst.decision), given["max_innermost_factor"])
        if inst.name == "sample_categorical":
            return random.pick(given["probs"])
        return None
