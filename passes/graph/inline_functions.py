"""Inlining of private functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.visit import substitute
from mlcc.passes.graph.canonicalize import canonical
from mlcc.passes.graph.dead_code import entry_functions, keep_reachable, remove_unused
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.symbolic import mentioned_symbols, unify_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import all_bindings, callees, is_primitive

MAX_BINDINGS = 100_000  # in one function


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Replace calls of private relax functions by their bodies, and remove the functions.

    Fused functions and recursive functions stay. A body with blocks other than dataflow blocks is not inlined into a
    dataflow block. If anything is inlined, renamings and unused values are removed as well.

    Before:  gv = cls.helper(x)          # def helper(a): b = R.add(a, a); return b
    After:   b = R.add(x, x)
    """

    name: ClassVar[str] = "inline-functions"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        recursive = _recursive(module)
        chosen = {
            name
            for name, func in module.functions.items()
            if isinstance(func, relax.Function) and func.is_private and not is_primitive(func) and name not in recursive
        }
        if not chosen:
            return module
        _check_growth(module, chosen)
        for _ in chosen:  # repeat for the callees of callees
            new_module = map_relax_functions(module, lambda _, func, m=module: _Inliner(m, chosen).visit_function(func))
            if new_module.functions == module.functions:
                break
            module = new_module
        entries = entry_functions(module, (), self.name)
        module = keep_reachable(module, entries | (set(module) - chosen))
        return map_relax_functions(module, lambda _, func: remove_unused(canonical(func, module), module))


def _check_growth(module: IRModule, chosen: set[str]) -> None:
    """Raise CompileError E0513 if inlining would grow exponentially: functions that each call the next one twice."""
    totals: dict[str, int] = {}
    worklist = list(module)
    while worklist:
        name = worklist[-1]
        calls = _inlined_calls(module[name], chosen)
        missing = [callee for callee in calls if callee not in totals and callee != name]
        if missing and name not in totals:
            worklist += missing
            continue
        worklist.pop()
        func = module[name]
        own_bindings = len(list(all_bindings(func.body))) if isinstance(func, relax.Function) else 0
        totals[name] = own_bindings + sum(totals[callee] for callee in calls)
        if totals[name] > MAX_BINDINGS:
            message = f"`{name}` would have more than {MAX_BINDINGS} bindings with all calls inlined"
            raise CompileError(error("E0513", message, func.span, help="leave `inline-functions` out"))


def _inlined_calls(func: Func, chosen: set[str]) -> list[str]:
    """Return the functions to inline into a function, once for each call."""
    if not isinstance(func, relax.Function):
        return []
    ops = (getattr(binding.value, "op", None) for binding, _ in all_bindings(func.body))  # type: ignore[attr-defined]
    return [op.name for op in ops if isinstance(op, relax.GlobalVar) and op.name in chosen]


def _recursive(module: IRModule) -> set[str]:
    """Return the functions that call themselves, directly or not."""
    calls = {name: callees(func) for name, func in module.functions.items()}
    recursive = set()
    for name in calls:
        seen: set[str] = set()
        worklist = list(calls[name])
        while worklist:
            other = worklist.pop()
            if other not in seen:
                seen.add(other)
                worklist += calls.get(other, ())
        if name in seen:
            recursive.add(name)
    return recursive


class _Inliner(RelaxMutator):
    def __init__(self, module: IRModule, chosen: set[str]) -> None:
        super().__init__(module)
        self.chosen = chosen

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar)):
            return expr
        name = expr.op.name
        func = self.module.functions.get(name)
        if name not in self.chosen or not isinstance(func, relax.Function):
            return expr
        plain = all(isinstance(b, relax.DataflowBlock) for b in func.body.blocks)
        return self.inline(func, expr.args) if plain or not self.in_dataflow else expr

    def inline(self, func: relax.Function, args: tuple[relax.Expr, ...]) -> relax.SeqExpr:
        """Return the body of a function with arguments substituted for parameters and fresh variables."""
        values: dict[Any, Any] = {v: tir.Var(v.name, v.dtype) for v in mentioned_symbols(func)}
        for param, argument in zip(func.params, args, strict=True):
            unify_symbols(param.struct_info, argument.struct_info, values)
        symbols = dict(values)
        values.update(zip(func.params, args, strict=True))
        for var in _bound_variables(func):
            info = var.struct_info
            fresh = substitute(info, symbols) if symbols and info is not None else info
            values[var] = type(var)(var.name, fresh)
        inlined: relax.SeqExpr = substitute(func.body, values)
        return inlined


def _bound_variables(func: relax.Function) -> list[relax.Var]:
    """Return the variables that a body binds, including the parameters of nested functions."""
    variables = []
    for binding, _ in all_bindings(func.body):
        variables.append(binding.var)
        value = getattr(binding, "value", None)
        if isinstance(value, relax.Function):
            variables += value.params
    return variables
