"""Generators of design spaces, under TVM's names."""

from mlcc.tune.space_generator.generator import SpaceGenerator
from mlcc.tune.space_generator.post_order_apply import PostOrderApply
from mlcc.tune.space_generator.schedule_fn import ScheduleFn
from mlcc.tune.space_generator.space_generator_union import SpaceGeneratorUnion

PySpaceGenerator = SpaceGenerator  # TVM's base of generators that are written in Python

__all__ = ["PostOrderApply", "PySpaceGenerator", "ScheduleFn", "SpaceGenerator", "SpaceGeneratorUnion"]
