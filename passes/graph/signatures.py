"""Changes of private functions' signatures, together with all their call sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import holds, replace
from mlcc.passes.graph.canonicalize import canonical
from mlcc.passes.graph.dead_code import DeadCode
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import PassContext
from mlcc.relax.construct import function_info
from mlcc.relax.queries import operands

Update = Callable[["CallSites", relax.Call], relax.Expr]  # returns the replacement of a call


def private_functions(module: IRModule) -> dict[str, relax.Function]:
    """Return the private relax functions that are only called, never passed as values.

    All their uses can be changed.
    """
    private = {n: f for n, f in module.functions.items() if isinstance(f, relax.Function) and f.is_private}
    for func in module.functions.values():
        stack: list[Any] = [func.body]
        while stack:
            top = stack.pop()
            if isinstance(top, relax.GlobalVar):
                private.pop(top.name, None)
            elif not holds(top, relax.GlobalVar):
                continue
            elif isinstance(top, tuple):
                stack.extend(top)
            elif isinstance(top, relax.Call) and isinstance(top.op, relax.GlobalVar):
                stack.extend(top.args)
            else:
                stack.extend(operands(top))
    return private


def change_callees(
    module: IRModule, replacements: Mapping[str, relax.Function], updates: Mapping[str, Update]
) -> IRModule:
    """Return the module with functions replaced and their calls updated."""
    changed = module.copy()
    changed.functions.update(replacements)
    return map_relax_functions(changed, lambda _, func: CallSites(changed, updates).visit_function(func))


def canonicalized(module: IRModule, ctx: PassContext) -> IRModule:
    """Return the module in canonical form, without bindings and functions that are then unused."""
    module = map_relax_functions(module, lambda _, func: canonical(func, module))
    return DeadCode().run(module, ctx)


class CallSites(RelaxMutator):
    """Replace calls by the results of `updates`."""

    def __init__(self, module: IRModule, updates: Mapping[str, Update]) -> None:
        super().__init__(module)
        self.updates = updates

    def infer(self, call: relax.Call) -> relax.Call:
        """Skip calls that are about to change, which do not fit their function."""
        if isinstance(call.op, relax.GlobalVar) and call.op.name in self.updates:
            return call
        return super().infer(call)

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar) and expr.op.name in self.updates:
            return self.updates[expr.op.name](self, expr)
        return expr

    def call(self, name: str, args: tuple[relax.Expr, ...]) -> relax.Call:
        """Return a call of the changed function."""
        func = self.module[name]
        return super().infer(relax.Call(relax.GlobalVar(name, function_info(func)), args))


def with_params(func: relax.Function, params: tuple[relax.Var, ...], body: relax.SeqExpr) -> relax.Function:
    new_func = replace(func, params=params, body=body)
    return replace(new_func, struct_info=function_info(new_func))
