"""PyExprMutator: rewrite relax functions binding by binding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import map_children, replace
from mlcc.ops.relations import SubtypeCheck, check_subtype
from mlcc.relax import convert
from mlcc.relax.block_builder import BlockBuilder
from mlcc.relax.construct import equal_struct_info, flatten_block, get_item, make_function, make_seq, make_tuple
from mlcc.relax.dispatch import Dispatcher, visit_method_name
from mlcc.relax.normalizer import make_if


class PyExprMutator(Dispatcher):
    """Rewrites expressions. Override the methods of the expressions to change; they return the replacement.

    `builder_` holds the module that functions are added to; what it emits stands before the binding in hand. Struct
    info of what changes is inferred anew, and nested results get variables. What does not change is the same object.

    class ReluToGelu(PyExprMutator):
        def visit_call_(self, op):
            call = self.visit_expr_post_order(op)  # with its arguments rewritten
            return relax.op.nn.gelu(*call.args) if call.op.name == "relax.nn.relu" else call
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._remap: dict[relax.Var, relax.Expr] = {}

    # ------------------------------------------------------------ called by subclasses

    def visit_expr(self, expr: Any) -> Any:
        """The expression rewritten, in normal form."""
        rewritten = getattr(self, visit_method_name(expr))(expr)
        return rewritten if isinstance(rewritten, tir.Op) else self._normal(rewritten)

    def visit_expr_post_order(self, expr: Any) -> Any:
        """The expression with only its parts rewritten, in normal form; its own method is not called again."""
        rewritten = getattr(PyExprMutator, visit_method_name(expr))(self, expr)
        return rewritten if isinstance(rewritten, tir.Op) else self._normal(rewritten)

    def lookup_binding(self, var: Any) -> relax.Expr | None:
        """Return the value bound to a rewritten variable; None for parameters and other expressions."""
        return self.builder_.lookup_binding(var)

    def set_var_remap(self, old_var: relax.Var, new_var: relax.Expr) -> None:
        """Replace uses of `old_var` by `new_var` from now on."""
        if not isinstance(old_var, relax.Var):
            raise TypeError("only variables can be remapped")
        self._remap[old_var] = convert.as_expr(new_var)

    def get_var_remap(self, var: relax.Var) -> relax.Expr:
        """Return the replacement of a variable, or the variable itself if it has none."""
        return self._remap.get(var, var)

    def with_struct_info(self, var: relax.Var, struct_info: relax.StructInfo | None) -> relax.Var:
        """`var`, or a new variable of its name if its struct info is to be another."""
        if struct_info is None or equal_struct_info(var.struct_info, struct_info):
            return var
        return replace(var, struct_info=struct_info)

    with_type = with_struct_info

    def visit_with_new_scope(self, expr: relax.Expr, params: Sequence[relax.Var] | None = None) -> relax.SeqExpr:
        """The body of a function or a branch rewritten, as a sequence."""
        self.builder_.begin_scope(params)
        try:
            rewritten = self.visit_expr(expr if isinstance(expr, relax.SeqExpr) else relax.SeqExpr((), expr))
        finally:
            self.builder_.end_scope()
        if isinstance(rewritten, relax.SeqExpr):
            return rewritten
        return self.builder_._normal.sequence(relax.SeqExpr((), rewritten, span=expr.span))

    def _normal(self, expr: Any) -> relax.Expr:
        return self.builder_.normalize(expr)

    def _keep(self, expr: Any) -> Any:
        return self.builder_._normal.keep(expr)

    # ------------------------------------------------------------ expressions

    def visit_expr_fallback_(self, op: relax.Expr) -> relax.Expr:
        return op

    def visit_var_(self, op: relax.Var) -> relax.Expr:
        return self._remap.get(op, op)

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> relax.Expr:
        return self._remap.get(op, op)

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        callee = self.visit_expr(op.op)
        args = self._all(op.args)
        types = tuple(self._info(s) for s in op.sinfo_args)
        if callee is op.op and args is op.args and all(a is b for a, b in zip(types, op.sinfo_args, strict=True)):
            return op
        known = None if self._inferable(op) else op.struct_info
        return replace(op, op=callee, args=args, sinfo_args=types, struct_info=known)

    def _inferable(self, call: relax.Call) -> bool:
        from mlcc import ops

        if not isinstance(call.op, tir.Op):
            return True
        known = ops.get(call.op.name)
        return bool(call.sinfo_args) or (known is not None and known.impl.infer is not None)

    def visit_tuple_(self, op: relax.Tuple) -> relax.Expr:
        fields = self._all(op.fields)
        return op if fields is op.fields else replace(make_tuple(fields), span=op.span)

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> relax.Expr:
        value = self.visit_expr(op.tuple_value)
        return op if value is op.tuple_value else replace(get_item(value, op.index), span=op.span)

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        params = tuple(self.visit_var_def(p) for p in op.params)
        body = self.visit_with_new_scope(op.body, params)
        if body is op.body and all(a is b for a, b in zip(params, op.params, strict=True)):
            return self._keep(op)  # type: ignore[no-any-return]
        stated = op.ret_struct_info
        known = body.struct_info
        if stated is not None and known is not None and check_subtype(stated, known) is SubtypeCheck.CONTRADICTS:
            stated = None
        return self._keep(make_function(params, body, op.attrs, stated, op.is_pure, op.span))  # type: ignore[no-any-return]

    def visit_seq_expr_(self, op: relax.SeqExpr) -> relax.Expr:
        blocks = [part for b in op.blocks for part in flatten_block(self.visit_binding_block(b))]
        builder = self.builder_
        builder._begin_binding_block()
        try:
            body = builder._leaf(self.visit_expr(op.body))
        finally:
            rest = builder._end_block()
        new_seq = make_seq([*blocks, *flatten_block(rest)], body)
        same = len(new_seq.blocks) == len(op.blocks) and all(
            a is b for a, b in zip(new_seq.blocks, op.blocks, strict=True)
        )
        if same and body is op.body and op.struct_info is not None:
            return self._keep(op)  # type: ignore[no-any-return]
        return self._keep(replace(new_seq, span=op.span))  # type: ignore[no-any-return]

    def visit_if_(self, op: relax.If) -> relax.Expr:
        condition = self.builder_._leaf(self.visit_expr(op.condition))
        then = self.visit_with_new_scope(op.true_branch)
        other = self.visit_with_new_scope(op.false_branch)
        return self._keep(make_if(condition, then, other, op))  # type: ignore[no-any-return]

    def _all(self, exprs: tuple[relax.Expr, ...]) -> tuple[relax.Expr, ...]:
        rewritten = tuple(self.visit_expr(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(rewritten, exprs, strict=True)) else rewritten

    def _info(self, info: Any) -> Any:
        """Struct info with the variables in its shapes remapped."""
        if isinstance(info, relax.Var):
            return self._remap.get(info, info)
        if isinstance(info, tir.Expr) or not self._remap or info is None:
            return info
        return map_children(info, self._info)

    # ------------------------------------------------------------ bindings

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        var = self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var:
            self.builder_.emit_normalized(binding)
            return
        new_var = self.with_struct_info(var, value.struct_info)
        if new_var is not binding.var:
            self._remap[binding.var] = new_var
        self.builder_.emit_normalized(relax.VarBinding(new_var, value, span=binding.span))

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        value = self.builder_._leaf(self.visit_expr(binding.value))
        info = self._info(binding.struct_info)
        var = self.with_struct_info(self.visit_var_def(binding.var), info)
        if var is not binding.var:
            self._remap[binding.var] = var
        self.builder_.emit_normalized(replace(binding, var=var, value=value, struct_info=info))

    def visit_binding_block_(self, block: relax.BindingBlock) -> relax.BindingBlock:
        return self._block(block, dataflow=False)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        return self._block(block, dataflow=True)

    def _block(self, block: relax.BindingBlock, dataflow: bool) -> relax.BindingBlock:
        builder = self.builder_
        builder._begin(dataflow)
        try:
            for binding in block.bindings:
                self.visit_binding(binding)
        finally:
            new_block = builder._end_block()
        same = len(new_block.bindings) == len(block.bindings)
        if same and all(a is b for a, b in zip(new_block.bindings, block.bindings, strict=True)):
            return block
        return replace(new_block, span=block.span)

    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        return self._definition(var)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        return self._definition(var)

    def _definition(self, var: relax.Var) -> relax.Var:
        new_var = self.with_struct_info(var, self._info(var.struct_info))
        if new_var is not var:
            self._remap[var] = new_var
        return new_var
