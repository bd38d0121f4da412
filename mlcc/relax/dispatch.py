"""Dispatch of expressions to visitor methods, with TVM's names."""

from __future__ import annotations

from typing import Any

from mlcc.ir import relax, tir
from mlcc.ops import values

METHODS: dict[type, str] = {
    relax.Call: "visit_call_",
    relax.Var: "visit_var_",
    relax.DataflowVar: "visit_dataflow_var_",
    relax.Constant: "visit_generic_const_",
    relax.Tuple: "visit_tuple_",
    relax.TupleGetItem: "visit_tuple_getitem_",
    relax.Function: "visit_function_",
    relax.SeqExpr: "visit_seq_expr_",
    relax.If: "visit_if_",
    relax.ShapeExpr: "visit_shape_expr_",
    relax.PrimValue: "visit_prim_value_",
    relax.StringImm: "visit_string_imm_",
    relax.DataTypeImm: "visit_data_type_imm_",
    relax.GlobalVar: "visit_global_var_",
    relax.ExternFunc: "visit_extern_func_",
    tir.Op: "visit_op_",
}


def visit_method_name(expr: Any) -> str:
    """Return the name of the method for an expression. Raises TypeError for anything else."""
    name = METHODS.get(type(expr))
    if name is not None:
        return name
    if isinstance(expr, relax.Expr):
        return "visit_expr_fallback_"
    raise TypeError(f"only relax expressions can be visited, not {values.describe(expr)}")


class Dispatcher:
    """Dispatch over expressions, bindings, blocks and definitions: every kind has a method to override."""

    def visit_expr(self, expr: Any) -> Any:
        """Visit any expression."""
        return getattr(self, visit_method_name(expr))(expr)

    def visit_binding(self, binding: relax.Binding) -> Any:
        """Visit any binding."""
        if isinstance(binding, relax.MatchCast):
            return self.visit_match_cast_(binding)
        return self.visit_var_binding_(binding)  # type: ignore[arg-type]

    def visit_binding_block(self, block: relax.BindingBlock) -> Any:
        """Visit any block."""
        if isinstance(block, relax.DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: relax.Var) -> Any:
        """Visit a variable where it is bound; `visit_var_` is for where it is used."""
        if isinstance(var, relax.DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    def visit_generic_const_(self, op: relax.Constant) -> Any:
        """Visit a constant; goes to `visit_constant_`, the older name."""
        return self.visit_constant_(op)

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> Any:
        raise NotImplementedError

    def visit_constant_(self, op: relax.Constant) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_var_(self, op: relax.Var) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_shape_expr_(self, op: relax.ShapeExpr) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_prim_value_(self, op: relax.PrimValue) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_string_imm_(self, op: relax.StringImm) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_data_type_imm_(self, op: relax.DataTypeImm) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_global_var_(self, op: relax.GlobalVar) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_extern_func_(self, op: relax.ExternFunc) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_op_(self, op: tir.Op) -> Any:
        return op

    def visit_expr_fallback_(self, op: relax.Expr) -> Any:
        """Visit an expression of a class without an overridden method."""
        raise NotImplementedError

    def visit_call_(self, op: relax.Call) -> Any:
        raise NotImplementedError

    def visit_tuple_(self, op: relax.Tuple) -> Any:
        raise NotImplementedError

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> Any:
        raise NotImplementedError

    def visit_function_(self, op: relax.Function) -> Any:
        raise NotImplementedError

    def visit_seq_expr_(self, op: relax.SeqExpr) -> Any:
        raise NotImplementedError

    def visit_if_(self, op: relax.If) -> Any:
        raise NotImplementedError

    def visit_var_binding_(self, binding: relax.VarBinding) -> Any:
        raise NotImplementedError

    def visit_match_cast_(self, binding: relax.MatchCast) -> Any:
        raise NotImplementedError

    def visit_binding_block_(self, block: relax.BindingBlock) -> Any:
        raise NotImplementedError

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> Any:
        raise NotImplementedError

    def visit_var_def_(self, var: relax.Var) -> Any:
        raise NotImplementedError

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> Any:
        raise NotImplementedError

    def visit_span(self, span: Any) -> Any:
        """Visit the place in the text that a node comes from, if it has one."""
        return span
