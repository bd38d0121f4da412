"""The pass `approximate-silu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc import ops
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes import Pass, PassContext
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.relax.queries import is_call


@dataclass(frozen=True)
class ApproximateSilu(Pass):
    """Compute `nn.hardswish` in place of `nn.silu`, which takes an exponential per element.

    The results differ by up to 0.15 per element. `limit` is the greatest number of calls that are replaced in each
    function; 0 replaces all.

    Before:  gv = R.nn.silu(x)
    After:   gv = R.nn.hardswish(x)
    """

    name: ClassVar[str] = "approximate-silu"
    limit: int = 0

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, func: _Replacer(module, self.limit).visit_function(func))


class _Replacer(RelaxMutator):
    def __init__(self, module: IRModule, limit: int) -> None:
        super().__init__(module)
        self.limit, self.count = limit, 0

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and is_call(expr, "relax.nn.silu")):
            return expr
        if self.limit and self.count == self.limit:
            return expr
        self.count += 1
        return replace(ops.bind_call("nn.hardswish", expr.args), span=expr.span)
