"""The pass `check-shapes`: make the size requirements of operators explicit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc import ops
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ops.shapes import shapes_known, unproven_equalities
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.size_limits import SizeLimits
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import shape_expr


@dataclass(frozen=True)
class CheckShapes(Pass):
    """Insert checks for sizes that an operator requires to be equal, where they are different expressions.

    Lowered code computes with the sizes of one operand, and would read past the end of another. Results with possibly
    more elements than a tensor can have are checked against the limit, too. Compiled code checks such a `match_cast` on
    entry to the function; sizes that overflow fail it.

    Before:  lv = R.matmul(x, y)       # (n, k) and (j, m)
    After:   sizes = R.match_cast(R.shape([k]), R.Shape([j]))
             sizes_1 = R.match_cast(R.shape([T.min(n * m, 2305843009213693951)]), R.Shape([n * m]))
             lv = R.matmul(x, y)
    """

    name: ClassVar[str] = "check-shapes"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, func: _ShapeChecker(module).visit_function(func), primitive=False)


class _ShapeChecker(RelaxMutator):
    """Insert a check before each call that needs one; equal checks occur once in a sequence."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.keys = Analyzer().keys
        self._emitted: set[tuple[int, int]] = set()
        self.limits = SizeLimits(())

    def visit_function(self, func: relax.Function) -> relax.Function:
        before, self.limits = self.limits, SizeLimits(func.params)
        new_func = super().visit_function(func)
        self.limits = before
        return new_func

    def visit_scope(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        before, self._emitted = self._emitted, set(self._emitted)
        new_seq = super().visit_scope(seq)
        self._emitted = before
        return new_seq

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op) and shapes_known(expr):
            op = ops.get(expr.op.name)
            if op is not None and op.impl.infer is not None:
                self._emit_check(expr, unproven_equalities(lambda: op.impl.infer(expr)))  # type: ignore[misc]
                self._emit_check(
                    expr, [(c.minimum(count, limit), count) for count, limit in self.limits.unproven(expr)]
                )
        return expr

    def _emit_check(self, call: relax.Call, pairs: list[tuple[tir.Expr, tir.Expr]]) -> None:
        pairs_by_key = {(self.keys.key(a), self.keys.key(b)): (a, b) for a, b in pairs}
        pairs = [pair for key, pair in pairs_by_key.items() if key not in self._emitted]
        self._emitted.update(pairs_by_key)
        if not pairs:
            return
        values, required = (shape_expr(side) for side in zip(*pairs, strict=True))
        kind = relax.DataflowVar if self.in_dataflow else relax.Var
        info = relax.ShapeStructInfo(required.values, len(required.values))
        self.put(relax.MatchCast(kind("sizes", info), values, info, span=call.span))
