"""Fusion kinds as attributes of TIR functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.fusion.op_pattern import ATTRIBUTE, computed_kind
from mlcc.passes.manage.manager import Pass, PassContext


@dataclass(frozen=True)
class AnnotateOpPattern(Pass):
    """Annotate every TIR function with the attribute `op_pattern`, derived from its blocks; existing ones stay.

    0 elementwise, 1 broadcast, 2 injective, 3 reduction, 4 complex with elementwise epilogue (matmul), 8 opaque.

    Before:  T.func_attr({"tir.noalias": True})
    After:   T.func_attr({"tir.noalias": True, "op_pattern": 0})
    """

    name: ClassVar[str] = "annotate-op-pattern"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        new_module = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, tir.PrimFunc) and ATTRIBUTE not in func.attrs:
                new_module.functions[name] = func.with_attr(ATTRIBUTE, int(computed_kind(func)))
        return new_module
