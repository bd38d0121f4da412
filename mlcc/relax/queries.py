"""Queries on relax functions: calls, uses of variables, side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import children, find
from mlcc.ir.versions import version_names
from mlcc.relax.construct import CALL_TIR, CALL_TIR_INPLACE, PRIMITIVE


def is_call(expr: Any, name: str) -> bool:
    """Return True if `expr` calls the operator `name`, such as `relax.add`."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op) and expr.op.name == name


def tir_callee(expr: Any) -> str | None:
    """The name of the function that a `call_tir` or `call_tir_inplace` calls; None for anything else."""
    if isinstance(expr, relax.Call) and expr.op in (CALL_TIR, CALL_TIR_INPLACE):
        callee = expr.args[0]
        return callee.name if isinstance(callee, relax.GlobalVar) else None
    return None


def call_arguments(call: relax.Call) -> tuple[relax.Expr, ...]:
    """The tensors that a call works on: those of a `call_tir` without callee and symbolic values."""
    if call.op in (CALL_TIR, CALL_TIR_INPLACE) and isinstance(call.args[1], relax.Tuple):
        return call.args[1].fields
    return call.args


def is_primitive(func: Func | None) -> bool:
    """True for a fused function, which becomes one kernel and is not fused again."""
    return isinstance(func, relax.Function) and bool(func.attrs.get(PRIMITIVE))


def is_tensor_or_tuple(info: relax.StructInfo | None) -> bool:
    """A tensor, or a tuple of nothing else."""
    if isinstance(info, relax.TupleStructInfo):
        return all(map(is_tensor_or_tuple, info.fields))
    return isinstance(info, relax.TensorStructInfo)


def operands(expr: Any) -> list[Any]:
    """The direct children but for the expression's own struct info."""
    parts = children(expr)
    if isinstance(expr, relax.Expr) and expr.struct_info is not None:
        return [child for child in parts if child is not expr.struct_info]
    return parts


def used_vars(root: Any) -> Iterator[relax.Var]:
    """Every use of a relax variable in an expression, in order; in nested functions and branches too.

    Variables of bindings and parameters are not uses. A variable that a struct info mentions as a shape is one.
    """
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.Var):
            yield top
        elif isinstance(top, tir.Expr):
            continue
        elif isinstance(top, relax.Binding):
            stack.append(top.value)  # type: ignore[attr-defined]
            if isinstance(top, relax.MatchCast):
                stack.append(top.struct_info)
        elif isinstance(top, relax.Function):
            stack.append(top.body)
        else:
            stack.extend(reversed(operands(top)))


def used_constants(root: Any) -> Iterator[relax.Constant]:
    """Every use of a constant in an expression without bindings, in order."""
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.Constant):
            yield top
        elif not isinstance(top, tir.Expr):
            stack.extend(reversed(operands(top)))


def all_bindings(root: Any) -> Iterator[tuple[relax.Binding, relax.BindingBlock]]:
    """Every binding with its block, outer ones first, in order; those of branches and nested functions too."""
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.SeqExpr):
            stack.append(top.body)
            stack.extend(reversed(top.blocks))
        elif isinstance(top, relax.BindingBlock):
            stack.extend((binding, top) for binding in reversed(top.bindings))
        elif isinstance(top, tuple):
            yield top
            stack.append(top[0].value)
        elif isinstance(top, (relax.Function, relax.If, relax.Call, relax.Tuple)):
            stack.extend(c for c in reversed(operands(top)) if not isinstance(c, (relax.Var, tir.Expr)))


@dataclass
class DefUse:
    """Def-use information of one function: the value bound to each variable, and its number of uses."""

    value: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    count: dict[relax.Var, int] = field(default_factory=dict)

    @staticmethod
    def of(func: relax.Function) -> DefUse:
        uses = DefUse()
        for binding, _ in all_bindings(func.body):
            if isinstance(binding, relax.VarBinding):
                uses.value[binding.var] = binding.value
        for var in used_vars(func.body):
            uses.count[var] = uses.count.get(var, 0) + 1
        return uses

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """Return the value bound to a variable, looking through renamings; other expressions are returned unchanged."""
        seen = 0
        while isinstance(expr, relax.Var) and expr in self.value and seen < len(self.value):
            expr = self.value[expr]
            seen += 1
        return expr


def is_impure(root: Any, module: IRModule) -> bool:
    """Return True if evaluating an expression may have side effects. The body of a nested function does not run."""
    from mlcc import ops

    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, (tir.Expr, relax.Var, relax.Function)):
            continue
        if isinstance(top, relax.Call):
            if isinstance(top.op, tir.Op):
                known = ops.get(top.op.name)
                if known is None or not known.pure:
                    return True
            elif not _is_pure_callee(top.op, module):
                return True
        stack.extend(operands(top))
    return False


def _is_pure_callee(op: Any, module: IRModule) -> bool:
    if isinstance(op, relax.GlobalVar) and op in module:
        op = module[op]
    if isinstance(op, relax.Function):
        return op.is_pure
    if isinstance(op, relax.ExternFunc):
        return False  # effects of the environment are not known
    return isinstance(op, relax.Expr) and isinstance(op.struct_info, relax.FuncStructInfo) and op.struct_info.purity


def callees(func: Func) -> set[str]:
    """The functions of the module that a function mentions, its versions among them."""
    return {*version_names(func), *(node.name for node in find(func.body, relax.GlobalVar))}


def live_vars(func: relax.Function, module: IRModule) -> set[relax.Var]:
    """The variables whose values are needed; bindings in a branch are judged separately from the `if`."""
    needs: dict[relax.Var, list[relax.Var]] = {}
    worklist = list(_outer_uses(func.body))
    for binding, block in all_bindings(func.body):
        value = binding.value  # type: ignore[attr-defined]
        needs[binding.var] = list(_outer_uses(value))
        if isinstance(binding, relax.MatchCast):
            needs[binding.var] += used_vars(binding.struct_info)
        in_dataflow = isinstance(block, relax.DataflowBlock)
        if isinstance(binding, relax.MatchCast) or (not in_dataflow and is_impure(value, module)):
            worklist.append(binding.var)
    live: set[relax.Var] = set()
    while worklist:
        var = worklist.pop()
        if var not in live:
            live.add(var)
            worklist += needs.get(var, ())
            worklist += used_vars(var.struct_info)
    return live


def _outer_uses(expr: Any) -> Iterable[relax.Var]:
    """The uses in an expression, of nested sequences only their results."""
    match expr:
        case relax.SeqExpr(body=body):
            return _outer_uses(body)
        case relax.Function(body=body):
            return _outer_uses(body)
        case relax.If(condition=condition, true_branch=then, false_branch=other):
            return [*_outer_uses(condition), *_outer_uses(then), *_outer_uses(other)]
    return used_vars(expr)
