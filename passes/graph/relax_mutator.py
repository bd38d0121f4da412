"""The base class of passes that rewrite relax functions, and related helpers."""

from __future__ import annotations

from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.relax.construct import (
    equal_struct_info,
    flatten_block,
    get_item,
    global_vars,
    make_function,
    make_seq,
    make_tuple,
    merge_blocks,
    with_bound_result,
)
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_primitive


def map_relax_functions(module: IRModule, rewrite: Any, primitive: bool = True) -> IRModule:
    """Return a copy of the module with every relax function rewritten; fused ones only if `primitive`."""
    new_module = module.copy()
    for name, func in module.functions.items():
        if isinstance(func, relax.Function) and (primitive or not is_primitive(func)):
            new_module.functions[name] = rewrite(name, func)
    return new_module


def map_with_added_functions(module: IRModule, builder: ModuleBuilder, rewrite: Any) -> IRModule:
    """Return a copy of the module with every relax function rewritten but fused ones, and with the functions that
    `rewrite` adds to `builder`, whose module was a copy of this one, in its order."""
    new_module = map_relax_functions(module, rewrite, primitive=False)
    new_module.functions = {n: new_module.functions.get(n, f) for n, f in builder.module.functions.items()}
    return new_module


_RESULTS = (
    relax.Var, relax.Constant, relax.GlobalVar, relax.ExternFunc, relax.ShapeExpr, relax.PrimValue, relax.StringImm,
    relax.DataTypeImm, relax.Tuple,
)  # fmt: skip


def _with_result(branch: relax.SeqExpr) -> relax.SeqExpr:
    """Return the branch with its result bound to a variable, unless the result is a leaf or a tuple."""
    return branch if isinstance(branch.body, _RESULTS) else with_bound_result(branch)


class RelaxMutator:
    """Rewrite relax functions binding by binding, in order; re-infer the struct info of changed expressions.

    Subclasses override `rewrite` (for an expression whose operands are rewritten already), `visit_binding` or
    `visit_block`. `emit` inserts a binding before the current one. `remap` maps variables to their replacements from
    here on. Adjacent blocks of one kind are joined.
    """

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.remap: dict[relax.Var, relax.Expr] = {}
        self.in_dataflow = False
        self.span: Span | None = None  # the span of the current binding, for inserted ones
        self._binding_stack: list[list[relax.Binding]] = []
        self._global_vars: dict[str, relax.GlobalVar] | None = None

    # overridden by subclasses

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        """Return the replacement of an expression whose operands are rewritten already."""
        return expr

    def visit_binding(self, binding: relax.Binding) -> None:
        value = self.visit(binding.value)  # type: ignore[attr-defined]
        if isinstance(binding, relax.MatchCast):
            self.put(replace(binding, value=value))
        else:
            self.rebind(binding, value)

    # called by subclasses

    def put(self, binding: relax.Binding) -> None:
        """Append a binding unchanged."""
        self._binding_stack[-1].append(binding)

    def emit(self, value: relax.Expr, name: str = "lv", output: bool = False) -> relax.Var:
        """Bind a new variable to `value`; with `output` it is visible outside its dataflow block."""
        kind = relax.DataflowVar if self.in_dataflow and not output else relax.Var
        var = kind(name, value.struct_info)
        self.put(relax.VarBinding(var, value, span=value.span or self.span))
        return var

    def emit_op(self, operator: str, *args: relax.Expr, **attrs: Any) -> relax.Var:
        """Bind a new variable to a call of an operator."""
        from mlcc import ops

        return self.emit(ops.bind_call(operator, args, attrs))

    def rebind(self, binding: Any, value: relax.Expr) -> None:
        """Bind the variable of `binding` to a value, and update the variable's struct info to that of the value."""
        var = binding.var
        if value is not binding.value:
            var = self.retype(var, value.struct_info)
        self.put(replace(binding, var=var, value=value))

    def retype(self, var: relax.Var, info: relax.StructInfo | None) -> relax.Var:
        """Return `var`, or a variable with struct info `info` that replaces it in the following bindings."""
        if info is None or equal_struct_info(var.struct_info, info):
            return var
        new_var: relax.Var = replace(var, struct_info=info)
        self.remap[var] = new_var
        return new_var

    # traversal

    def visit_function(self, func: relax.Function) -> relax.Function:
        body = self.visit_scope(func.body)
        if body is func.body:
            return func
        return make_function(func.params, body, func.attrs, func.ret_struct_info, func.is_pure, func.span)

    def visit_scope(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """Rewrite a sequence outside the current block: a branch, or the body of a function."""
        before, self.in_dataflow = self.in_dataflow, False
        new_seq = self.visit_seq(seq)
        self.in_dataflow = before
        return new_seq

    def visit_seq(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [part for b in merge_blocks(seq.blocks) for part in flatten_block(self.visit_block(b))]
        self._binding_stack.append([])
        body = self.visit(seq.body)
        trailing = self._binding_stack.pop()
        if trailing:
            blocks += flatten_block(relax.BindingBlock(tuple(trailing)))
        same = len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks, strict=True))
        if same and body is seq.body and all(b.bindings for b in blocks):
            return seq
        new_seq: relax.SeqExpr = replace(make_seq(blocks, body), span=seq.span)
        return new_seq

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        before, self.in_dataflow = self.in_dataflow, isinstance(block, relax.DataflowBlock)
        self._binding_stack.append([])
        for binding in block.bindings:
            self.span = binding.span
            self.visit_binding(binding)
        self.span = None
        bindings = tuple(self._binding_stack.pop())
        self.in_dataflow = before
        same = len(bindings) == len(block.bindings) and all(
            a is b for a, b in zip(bindings, block.bindings, strict=True)
        )
        return block if same else replace(block, bindings=bindings)

    def visit(self, expr: relax.Expr) -> relax.Expr:
        match expr:
            case relax.Var():
                return self.remap.get(expr, expr)
            case relax.Call(args=args):
                operands = self._all(args)
                op = self.visit(expr.op) if isinstance(expr.op, relax.Expr) else expr.op
                if operands is args and op is expr.op:
                    return self.rewrite(expr)
                return self.rewrite(self.infer(replace(expr, op=op, args=operands)))
            case relax.Tuple(fields=fields):
                operands = self._all(fields)
                return self.rewrite(expr if operands is fields else replace(make_tuple(operands), span=expr.span))
            case relax.TupleGetItem(tuple_value=value, index=index):
                visited = self.visit(value)
                return self.rewrite(expr if visited is value else replace(get_item(visited, index), span=expr.span))
            case relax.If():
                return self.rewrite(self._if(expr))
            case relax.SeqExpr():
                return self.visit_scope(expr)
            case relax.Function():
                return self.rewrite(self.visit_function(expr))
        return self.rewrite(expr)

    def _if(self, expr: relax.If) -> relax.If:
        condition = self.visit(expr.condition)
        outer = dict(self.remap)
        true_branch = _with_result(self.visit_scope(expr.true_branch))
        self.remap = dict(outer)
        false_branch = _with_result(self.visit_scope(expr.false_branch))
        self.remap = outer
        return replace(expr, condition=condition, true_branch=true_branch, false_branch=false_branch)

    def _all(self, exprs: tuple[relax.Expr, ...]) -> tuple[relax.Expr, ...]:
        rewritten = tuple(self.visit(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(rewritten, exprs, strict=True)) else rewritten

    def infer(self, call: relax.Call) -> relax.Call:
        """Return the call with its struct info inferred anew; unchanged if there is no rule."""
        from mlcc import ops

        if self._global_vars is None:
            self._global_vars = global_vars(self.module)
        info = ops.infer_struct_info(replace(call, struct_info=None), self._global_vars)
        return call if info is None else replace(call, struct_info=info)
