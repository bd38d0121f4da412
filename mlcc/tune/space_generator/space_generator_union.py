"""Unions of generators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from mlcc.ir.module import IRModule
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.space_generator.generator import FROM_TARGET, MutatorProbs, Postprocs, Rules, SpaceGenerator

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class SpaceGeneratorUnion(SpaceGenerator):
    """The design spaces of several generators. TVM: `SpaceGeneratorUnion`."""

    def __init__(
        self, space_generators: Sequence[SpaceGenerator], sch_rules: Rules = FROM_TARGET,
        postprocs: Postprocs = FROM_TARGET, mutator_probs: MutatorProbs = FROM_TARGET,
    ) -> None:  # fmt: skip
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators = list(space_generators)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        for generator in self.space_generators:
            generator._initialize_with_tune_context(context)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        return [sch for generator in self.space_generators for sch in generator.generate_design_space(mod)]

    def clone(self) -> Self:
        duplicate = super().clone()
        duplicate.space_generators = [generator.clone() for generator in self.space_generators]
        return duplicate
