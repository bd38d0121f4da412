"""TensorIR functions become loop code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.lowering import LowerOptions, lower_func
from mlcc.passes.manager import Pass, PassContext


@dataclass(frozen=True)
class LowerLoops(Pass):
    """Turn every PrimFunc into the loop code that a CPU runs: no blocks, flat buffers, explicit vectors.

    Code generation does this by itself; the pass shows what it does. Marked loops are unrolled up to `unroll_limit`
    copies of a statement, vectorized ones become vectors of up to `vector_lanes` lanes.

    Before:  with T.block("C"): vi, vj = T.axis.remap("SS", [i, j]); C[vi, vj] = A[vi, vj] + 1
    After:   C_1[i * 16 + j] = A_1[i * 16 + j] + 1
    """

    name: ClassVar[str] = "lower-loops"
    unroll_limit: int = LowerOptions().unroll_limit
    vector_lanes: int = LowerOptions().vector_lanes

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        options = LowerOptions(max(self.unroll_limit, 0), max(self.vector_lanes, 1))
        functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
        made = module.copy()
        for name, func in functions.items():
            made.functions[name] = lower_func(func, functions, options)
        return made
