"""Dead code elimination: removal of unused bindings and unreachable functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import callees, live_vars


@dataclass(frozen=True)
class DeadCode(Pass):
    """Remove unused bindings, and functions that no entry function reaches.

    Entry functions are the public ones and those that `entry` names. A binding is removed if nothing uses its variable
    and its value has no side effects; in a dataflow block none has. `match_cast` stays: it is a check, and defines
    symbolic variables.

    Before:  lv0 = R.multiply(x, y)
             gv0 = R.ewise_fma(x, y, y)
    After:   gv0 = R.ewise_fma(x, y, y)
    """

    name: ClassVar[str] = "dead-code"
    entry: tuple[str, ...] = ()

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        entries = entry_functions(module, self.entry, self.name)
        module = keep_reachable(module, entries)
        module = map_relax_functions(module, lambda _, func: remove_unused(func, module))
        return keep_reachable(module, entries)


def entry_functions(module: IRModule, named: Iterable[str], who: str) -> set[str]:
    """Return the public functions and those named. Raise CompileError E0506 for a name that no function has."""
    named = set(named)
    require_functions(module, named, who)
    return named | {name for name, func in module.functions.items() if not func.is_private}


def require_functions(module: IRModule, named: Iterable[str], who: str) -> None:
    """Raise CompileError E0506, listing the names that no function has."""
    errors = [
        error("E0506", f"`{who}`: the module has no function `{n}`", help=did_you_mean(n, module))
        for n in sorted(set(named))
        if n not in module
    ]
    if errors:
        raise CompileError(errors)


def keep_reachable(module: IRModule, entries: set[str]) -> IRModule:
    """Return the module without the functions that no entry function calls, directly or not."""
    reachable = set(entries)
    worklist = list(entries)
    while worklist:
        for name in callees(module[worklist.pop()]):
            if name not in reachable and name in module:
                reachable.add(name)
                worklist.append(name)
    new_module = module.copy()
    new_module.functions = {name: func for name, func in module.functions.items() if name in reachable}
    return new_module


def remove_unused(func: relax.Function, module: IRModule) -> relax.Function:
    """Return the function without unused bindings; the same object if there are none."""
    live = live_vars(func, module)
    return _Remover(module, live).visit_function(func)


class _Remover(RelaxMutator):
    def __init__(self, module: IRModule, live: set[relax.Var]) -> None:
        super().__init__(module)
        self.live = live

    def visit_binding(self, binding: relax.Binding) -> None:
        if binding.var in self.live:
            # the struct info is unchanged, since the operands are
            value = self.visit(binding.value)  # type: ignore[attr-defined]
            self.put(replace(binding, value=value))
