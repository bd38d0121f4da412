"""Mutators of a trace's decisions, under TVM's names."""

from mlcc.tune.mutator.mutate_compute_location import MutateComputeLocation
from mlcc.tune.mutator.mutate_parallel import MutateParallel
from mlcc.tune.mutator.mutate_thread_binding import MutateThreadBinding
from mlcc.tune.mutator.mutate_tile_size import MutateTileSize
from mlcc.tune.mutator.mutate_unroll import MutateUnroll
from mlcc.tune.mutator.mutator import Mutator

PyMutator = Mutator  # TVM's base of mutators that are written in Python

__all__ = [
    "MutateComputeLocation", "MutateParallel", "MutateThreadBinding", "MutateTileSize", "MutateUnroll", "Mutator",
    "PyMutator",
]  # fmt: skip
