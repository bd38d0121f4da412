"""The pass `ewise-fma`: replace multiply-add by one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import equal_struct_info
from mlcc.relax.queries import DefUse, is_call


@dataclass(frozen=True)
class EwiseFma(Pass):
    """Turn the sum of a product and a tensor into `ewise_fma`.

    The product is the first operand of the sum, all three tensors have one shape and dtype (`ewise_fma` does not
    broadcast). The product itself stays, for others that use it; `dead-code` removes it if there are none.

    Before:  lv0 = R.multiply(x, y)
             gv0 = R.add(lv0, z)
    After:   lv0 = R.multiply(x, y)
             gv0 = R.ewise_fma(x, y, z)
    """

    name: ClassVar[str] = "ewise-fma"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, func: _Fuser(module, DefUse.of(func)).visit_function(func))


class _Fuser(RelaxMutator):
    def __init__(self, module: IRModule, uses: DefUse) -> None:
        super().__init__(module)
        self.uses = uses

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and is_call(expr, "relax.add")):
            return expr
        left, addend = expr.args
        product = self.uses.value.get(left) if isinstance(left, relax.Var) else None
        if not (isinstance(product, relax.Call) and is_call(product, "relax.multiply")):
            return expr
        operands = (*product.args, addend)
        if not all(equal_struct_info(o.struct_info, expr.struct_info) for o in operands):
            return expr
        from mlcc import ops

        return replace(ops.bind_call("relax.ewise_fma", operands), span=expr.span)
