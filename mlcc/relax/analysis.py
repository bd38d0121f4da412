"""Analyses of relax functions, for passes in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.relax.construct import make_seq
from mlcc.relax.queries import all_bindings, live_vars
from mlcc.relax.visitor import PyExprVisitor

__all__ = ["all_global_vars", "all_vars", "bound_vars", "free_vars", "post_order_visit", "remove_all_unused"]


def post_order_visit(expr: relax.Expr, visit: Callable[[Any], Any]) -> None:
    """Call `visit` on every part of an expression in post-order."""

    class Visitor(PyExprVisitor):
        def visit_expr(self, expr: Any) -> None:
            super().visit_expr(expr)
            if not isinstance(expr, tir.Op):
                visit(expr)

    Visitor().visit_expr(expr)


class _Variables(PyExprVisitor):
    def __init__(self) -> None:
        self.used: dict[relax.Var, None] = {}
        self.bound: dict[relax.Var, None] = {}
        self.functions: dict[str, relax.GlobalVar] = {}

    def visit_var_(self, op: relax.Var) -> None:
        self.used.setdefault(op)

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> None:
        self.used.setdefault(op)

    def visit_var_def(self, var: relax.Var) -> None:
        self.bound.setdefault(var)

    def visit_global_var_(self, op: relax.GlobalVar) -> None:
        self.functions.setdefault(op.name, op)


def _variables(expr: relax.Expr) -> _Variables:
    visitor = _Variables()
    visitor.visit_expr(expr)
    return visitor


def free_vars(expr: relax.Expr) -> list[relax.Var]:
    """The variables that an expression uses and does not bind, in order of first use."""
    variables = _variables(expr)
    return [v for v in variables.used if v not in variables.bound]


def bound_vars(expr: relax.Expr) -> list[relax.Var]:
    """The variables that an expression binds, parameters of functions included."""
    return list(_variables(expr).bound)


def all_vars(expr: relax.Expr) -> list[relax.Var]:
    """All variables, used and bound."""
    variables = _variables(expr)
    return list({**variables.used, **variables.bound})


def all_global_vars(expr: relax.Expr) -> list[relax.GlobalVar]:
    """The functions of the module that an expression mentions."""
    return list(_variables(expr).functions.values())


def remove_all_unused(func: relax.Function, module: IRModule | None = None) -> relax.Function:
    """The function without bindings that are unused and have no effect.

    `module` says which of its functions are pure; calls of functions that it does not have stay.
    """
    live = live_vars(func, module or IRModule())
    if all(b.var in live for b, _ in all_bindings(func.body)):
        return func
    pruned: relax.Function = _without(func, live)
    return pruned


def _without(expr: Any, live: set[relax.Var]) -> Any:
    """The expression with only the bindings of variables in `live`."""
    match expr:
        case relax.Function(body=body):
            return replace(expr, body=_without(body, live))
        case relax.If(true_branch=then, false_branch=other):
            return replace(expr, true_branch=_without(then, live), false_branch=_without(other, live))
        case relax.SeqExpr(blocks=blocks, body=body):
            kept = [replace(b, bindings=tuple(_bindings(b, live))) for b in blocks]
            return replace(make_seq(kept, body), span=expr.span)
    return expr


def _bindings(block: relax.BindingBlock, live: set[relax.Var]) -> Iterator[relax.Binding]:
    for binding in block.bindings:
        if binding.var in live:
            value = binding.value  # type: ignore[attr-defined]
            yield replace(binding, value=_without(value, live))
