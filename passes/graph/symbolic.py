"""Symbolic variables of relax functions: binding them to values, finding free ones, renaming them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import children, holds
from mlcc.ir.visit import Rewriter, substitute
from mlcc.passes.graph.relax_mutator import RelaxMutator


class _SymbolBinder(Rewriter):
    """Replace symbolic variables by expressions and simplify the expressions around them."""

    def __init__(self, values: Mapping[tir.Var, tir.Expr]) -> None:
        super().__init__()
        from mlcc.arith.analyzer import Analyzer

        self.values = values
        self.analyzer = Analyzer()

    def visit(self, node: Any) -> Any:
        if isinstance(node, tir.Expr):
            bound = substitute(node, self.values)
            return node if bound is node else self.analyzer.simplify(bound)
        return super().visit(node)


def bind_symbols(
    func: relax.Function, values: Mapping[tir.Var, tir.Expr], replaced: Mapping[relax.Var, relax.Expr], module: IRModule
) -> relax.Function:
    """Return the function with symbolic and relax variables replaced, and dependent struct info inferred anew."""
    if values:
        binder = _SymbolBinder(values)
        for var in replaced:
            binder._memo[id(var)] = (var, var)
        func = binder.visit(func)
    mutator = RelaxMutator(module)
    mutator.remap.update(replaced)
    return mutator.visit_function(func)


def info_symbols(info: Any) -> list[tir.Var]:
    """Return the variables that are a dimension or scalar of a struct info: binding an argument defines them."""
    symbols: dict[tir.Var, None] = {}
    stack = [info]
    while stack:
        top = stack.pop()
        values: Any = ()
        match top:
            case relax.TensorStructInfo():
                values = top.dims or ()
            case relax.ShapeStructInfo():
                values = top.values or ()
            case relax.PrimStructInfo(value=value) if value is not None:
                values = (value,)
            case relax.TupleStructInfo(fields=fields):
                stack.extend(reversed(fields))
        for value in values:
            if isinstance(value, tir.Var):
                symbols.setdefault(value)
    return list(symbols)


def mentioned_symbols(root: Any) -> list[tir.Var]:
    """Return all symbolic variables of a function or expression, in order.

    Those of other functions' signatures do not count.
    """
    if not holds(root, tir.Var):
        return []
    symbols: dict[tir.Var, None] = {}
    seen: set[Any] = set()  # struct infos are shared by many expressions
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Var):
            symbols.setdefault(top)
        elif top not in seen and not isinstance(top, (relax.GlobalVar, relax.ExternFunc, relax.FuncStructInfo)):
            seen.add(top)
            stack.extend(reversed(children(top)))
    return list(symbols)


def free_symbols(func: relax.Function) -> list[tir.Var]:
    """Return symbolic variables that a function uses but neither its parameters nor a `match_cast` define."""
    from mlcc.relax.queries import all_bindings

    defined = {v for p in func.params for v in info_symbols(p.struct_info)}
    for binding, _ in all_bindings(func.body):
        if isinstance(binding, relax.MatchCast):
            defined |= set(info_symbols(binding.struct_info))
    return [v for v in mentioned_symbols(func) if v not in defined]


def renew_symbols(func: relax.Function) -> relax.Function:
    """Return the function with fresh symbolic variables: two functions never share one."""
    fresh = {v: tir.Var(v.name, v.dtype) for v in mentioned_symbols(func)}
    return substitute(func, fresh) if fresh else func


def unify_symbols(pattern: Any, info: Any, values: dict[Any, Any]) -> None:
    """Map the symbolic variables of a parameter's struct info to the values in the argument's."""
    match pattern, info:
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            pairs = zip(pattern.dims or (), info.dims or (), strict=False)
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            pairs = zip(pattern.values or (), info.values or (), strict=False)
        case relax.PrimStructInfo(value=want), relax.PrimStructInfo(value=have) if (
            want is not None and have is not None
        ):
            pairs = zip((want,), (have,), strict=True)
        case relax.TupleStructInfo(fields=fields), relax.TupleStructInfo(fields=others):
            for a, b in zip(fields, others, strict=False):
                unify_symbols(a, b, values)
            return
        case _:
            return
    symbols = set(info_symbols(pattern))
    for want, have in pairs:
        if want in symbols:
            values[want] = have
