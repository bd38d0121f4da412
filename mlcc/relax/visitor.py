"""PyExprVisitor: visit every part of a relax function, in order."""

from __future__ import annotations

from mlcc.ir import relax, tir
from mlcc.relax.dispatch import Dispatcher


class PyExprVisitor(Dispatcher):
    """Visits all parts of an expression, operands first to last. Override the methods of interest.

    class CountCalls(PyExprVisitor):
        def visit_call_(self, op):
            self.count += 1
            super().visit_call_(op)  # goes on with the arguments
    """

    def visit_expr_fallback_(self, op: relax.Expr) -> None:
        self._span(op)

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> None:
        self.visit_expr_fallback_(op)

    def visit_op_(self, op: tir.Op) -> None:
        """Visit the operator of a call."""

    def visit_call_(self, op: relax.Call) -> None:
        self._span(op)
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_tuple_(self, op: relax.Tuple) -> None:
        self._span(op)
        for field in op.fields:
            self.visit_expr(field)

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> None:
        self._span(op)
        self.visit_expr(op.tuple_value)

    def visit_function_(self, op: relax.Function) -> None:
        self._span(op)
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_seq_expr_(self, op: relax.SeqExpr) -> None:
        self._span(op)
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_if_(self, op: relax.If) -> None:
        self._span(op)
        self.visit_expr(op.condition)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: relax.BindingBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_var_def_(self, var: relax.Var) -> None:
        self._span(var)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> None:
        self._span(var)

    def _span(self, node: relax.Expr) -> None:
        if node.span is not None:
            self.visit_span(node.span)
