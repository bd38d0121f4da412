"""The pass `remove-unused-parameters`: parameters that a function does not use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.relax_mutator import map_relax_functions
from mlcc.passes.graph.signatures import CallSites, Update, change_callees, private_functions, with_params
from mlcc.passes.graph.symbolic import info_symbols, mentioned_symbols, unify_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import shape_expr
from mlcc.relax.queries import used_vars


@dataclass(frozen=True)
class RemoveUnusedParameters(Pass):
    """Remove unused parameters of private functions, and the computation of their arguments.

    Callers' values that become unused are removed, too. Symbolic sizes that only a removed parameter defined are passed
    as shapes.

    Before:  def f(a, b): return R.add(a, a)          # f(x, y)
    After:   def f(a): return R.add(a, a)             # f(x)
    """

    name: ClassVar[str] = "remove-unused-parameters"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        reduced: dict[str, relax.Function] = {}
        updates: dict[str, Update] = {}
        for name, func in private_functions(module).items():
            used = set(used_vars(func.body))
            if all(p in used for p in func.params):
                continue
            kept = tuple(p for p in func.params if p in used)
            defined = {s for p in kept for s in info_symbols(p.struct_info)}
            undefined = _parameter_symbols(func) - defined
            symbols = [s for s in reversed(mentioned_symbols(func.body)) if s in undefined]
            shape_params = tuple(relax.Var(f"param_{s.name}", shape_expr((s,)).struct_info) for s in symbols)
            reduced[name] = with_params(func, kept + shape_params, func.body)
            updates[name] = _updater(func, used, symbols)
        if not reduced:
            return module
        changed = change_callees(module, reduced, updates)
        return map_relax_functions(changed, lambda _, func: remove_unused(func, changed))


def _parameter_symbols(func: relax.Function) -> set[tir.Var]:
    return {s for p in func.params for s in info_symbols(p.struct_info)}


def _updater(func: relax.Function, used: set[relax.Var], symbols: list[tir.Var]) -> Update:
    def update(sites: CallSites, call: relax.Call) -> relax.Expr:
        values: dict[Any, Any] = {}
        for param, arg in zip(func.params, call.args, strict=True):
            unify_symbols(param.struct_info, arg.struct_info, values)
        kept = [a for p, a in zip(func.params, call.args, strict=True) if p in used]
        return sites.call(call.op.name, (*kept, *(shape_expr((values[s],)) for s in symbols)))

    return update
