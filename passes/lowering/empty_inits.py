"""Initialize reductions over empty ranges (see `mlcc.arith.empty_reduction`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.empty_reduction import insert_empty_reduction_inits
from mlcc.ir import tir
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import BLOCKS


@dataclass(frozen=True)
class InitEmptyReductions(LoweringStep):
    """Run the init of a reduction also where its reduce axes turn out to be empty.

    Before:  for i, k in T.grid(4, n): (a sum over k)
    After:   if n <= 0: for i in range(4): (the init of the sum)
             for i, k in T.grid(4, n): (the sum)
    """

    name: ClassVar[str] = "init-empty-reductions"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return insert_empty_reduction_inits(func)
