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
    """Return the name of the function that a `call_tir` or `call_tir_inplace` calls; None for any other expression."""
    if isinstance(expr, relax.Call) and expr.op in (CALL_TIR, CALL_TIR_INPLACE):
        callee = expr.args[0]
        return callee.name if isinstance(callee, relax.GlobalVar) else None
    return None


def call_arguments(call: relax.Call) -> tuple[relax.Expr, ...]:
    """Return the tensor arguments of a call; for a `call_tir` without the callee and the symbolic values."""
    if call.op in (CALL_TIR, CALL_TIR_INPLACE) and isinstance(call.args[1], relax.Tuple):
        return call.args[1].fields
    return call.args


def is_primitive(func: Func | None) -> bool:
    """Return True for a fused function, which becomes one kernel and is not fused again."""
    return isinstance(func, relax.Function) and bool(func.attrs.get(PRIMITIVE))


def is_tensor_or_tuple(info: relax.StructInfo | None) -> bool:
    """Return True for a tensor, or a tuple of tensors, nested or not."""
    if isinstance(info, relax.TupleStructInfo):
        return all(map(is_tensor_or_tuple, info.fields))
    return isinstance(info, relax.TensorStructInfo)


def operands(expr: Any) -> list[Any]:
    """Return the direct children, except for the expression's own struct info."""
    parts = children(expr)
    if isinstance(expr, relax.Expr) and expr.struct_info is not None:
        return [child for child in parts if child is not expr.struct_info]
    return parts


def used_vars(root: Any) -> Iterator[relax.Var]:
    """Yield every use of a relax variable in an expression, in order, also in nested functions and branches.

    Binding a variable or declaring a parameter is not a use. Naming a variable as the shape in a struct info is one.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, relax.Var):
            yield node
        elif isinstance(node, tir.Expr):
            continue
        elif isinstance(node, relax.Binding):
            stack.append(node.value)  # type: ignore[attr-defined]
            if isinstance(node, relax.MatchCast):
                stack.append(node.struct_info)
        elif isinstance(node, relax.Function):
            stack.append(node.body)
        else:
            stack.extend(reversed(operands(node)))


def used_constants(root: Any) -> Iterator[relax.Constant]:
    """Yield every use of a constant in an expression that has no bindings, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, relax.Constant):
            yield node
        elif not isinstance(node, tir.Expr):
            stack.extend(reversed(operands(node)))


def all_bindings(root: Any) -> Iterator[tuple[relax.Binding, relax.BindingBlock]]:
    """Yield every binding with its block in order, also of branches and nested functions, outer bindings first."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, relax.SeqExpr):
            stack.append(node.body)
            stack.extend(reversed(node.blocks))
        elif isinstance(node, relax.BindingBlock):
            stack.extend((binding, node) for binding in reversed(node.bindings))
        elif isinstance(node, tuple):
            yield node
            stack.append(node[0].value)
        elif isinstance(node, (relax.Function, relax.If, relax.Call, relax.Tuple)):
            stack.extend(c for c in reversed(operands(node)) if not isinstance(c, (relax.Var, tir.Expr)))


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
        steps = 0  # bounded: a malformed function may have cyclic renamings
        while isinstance(expr, relax.Var) and expr in self.value and steps < len(self.value):
            expr = self.value[expr]
            steps += 1
        return expr


def is_impure(root: Any, module: IRModule) -> bool:
    """Return True if evaluating an expression may have side effects. The body of a nested function does not run."""
    from mlcc import ops

    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (tir.Expr, relax.Var, relax.Function)):
            continue
        if isinstance(node, relax.Call):
            if isinstance(node.op, tir.Op):
                known = ops.get(node.op.name)
                if known is None or not known.pure:
                    return True
            elif not _is_pure_callee(node.op, module):
                return True
        stack.extend(operands(node))
    return False


def _is_pure_callee(op: Any, module: IRModule) -> bool:
    if isinstance(op, relax.GlobalVar) and op in module:
        op = module[op]
    if isinstance(op, relax.Function):
        return op.is_pure
    if isinstance(op, relax.ExternFunc):
        return False  # effects of external functions are unknown
    return isinstance(op, relax.Expr) and isinstance(op.struct_info, relax.FuncStructInfo) and op.struct_info.purity


def callees(func: Func) -> set[str]:
    """Return the names of the functions that a function refers to, including its versions for other CPUs."""
    return {*version_names(func), *(node.name for node in find(func.body, relax.GlobalVar))}


def live_vars(func: relax.Function, module: IRModule) -> set[relax.Var]:
    """Return the variables whose values are needed.

    A live `if` makes the results of its branches live, and only those bindings of a branch that they need.
    """
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
    """Return the uses of variables in an expression; of a nested sequence, only those in its result."""
    match expr:
        case relax.SeqExpr(body=body):
            return _outer_uses(body)
        case relax.Function(body=body):
            return _outer_uses(body)
        case relax.If(condition=condition, true_branch=then, false_branch=other):
            return [*_outer_uses(condition), *_outer_uses(then), *_outer_uses(other)]
    return used_vars(expr)
