"""The base of mutators."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Trace

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class Mutator:
    """Changes one decision of a trace. TVM: `meta_schedule.Mutator`."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take from the context what the mutator needs."""

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        """The trace with another decision; None where there is nothing to decide."""
        raise NotImplementedError

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """`mutate` with a random engine of its own; a negative seed is drawn from the system."""
        return self.mutate(trace, Engine(seed))

    def clone(self) -> Self:
        """A copy that is initialized on its own."""
        return copy.copy(self)

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({given})"

    @staticmethod
    def create(kind: str) -> dict[Mutator, float]:
        """The mutators of a kind of target (`ScheduleRule.create` has the kinds), and how likely each is.

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
