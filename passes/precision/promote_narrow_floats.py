"""The pass `promote-narrow-floats`: lowered operators compute 16- and 8-bit floats in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir.module import IRModule
from mlcc.passes.lowering.narrow_floats import promote_module
from mlcc.passes.manage.manager import Pass, PassContext


@dataclass(frozen=True)
class PromoteNarrowFloats(Pass):
    """Compute float16, bfloat16 and 8-bit floats in float32, in functions that operators were lowered to.

    Accumulators and intermediate results inside a function become float32 buffers, and a result is rounded once, when
    it is stored for the caller. Maxima, minima and copies, which do not round, stay in the narrow type. A number that
    another stage of the function computed is rounded first where it affects a decision: in comparisons, in `floor` and
    similar functions, and where it becomes an integer; so fusion does not change decisions.

    The pass applies to functions with the attribute `mlcc.operator`, which `lower-to-tir{accurate=true}` sets,
    `fuse-tir` keeps and this pass removes; functions of the program stay as they are.

    Before:  C[vi] = C[vi] + A[vi, vk]                                           # A and C are float16
    After:   C_global[vi] = C_global[vi] + T.Cast("float32", A[vi, vk])          # C_global is float32
             ...
             C[v0] = T.Cast("float16", C_global[v0])
    """

    name: ClassVar[str] = "promote-narrow-floats"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return promote_module(module)
