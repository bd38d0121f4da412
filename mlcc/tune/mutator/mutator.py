"""The base of mutators."""

from __future__ import annotations

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Trace
from mlcc.tune.component import Component


class Mutator(Component):
    """Changes one decision of a trace. TVM: `meta_schedule.Mutator`."""

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        """Return the trace with another decision; None if there is nothing to decide."""
        raise NotImplementedError

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Call `mutate` with a new random engine; a negative seed is drawn from the system."""
        return self.mutate(trace, Engine(seed))

    @staticmethod
    def create(kind: str) -> dict[Mutator, float]:
        """Return the mutators of a kind of target (see `ScheduleRule.create`) with their probabilities.

        Raises ValueError for other kinds.
        """
        from mlcc.tune.mutator import (
            MutateComputeLocation,
            MutateParallel,
            MutateThreadBinding,
            MutateTileSize,
            MutateUnroll,
        )

        if kind == "cuda":
            return {MutateTileSize(): 0.9, MutateUnroll(): 0.08, MutateThreadBinding(): 0.02}
        if kind in ("llvm", "vnni", "avx512", "asimd", "dotprod"):
            return {
                MutateTileSize(): 0.9, MutateComputeLocation(): 0.05, MutateUnroll(): 0.03, MutateParallel(16): 0.02,
            }  # fmt: skip
        raise ValueError(f"there are no mutators for `{kind}`")
