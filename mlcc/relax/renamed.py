"""Kernels that a pass replaced by others of another name."""

from __future__ import annotations

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.versions import version_names
from mlcc.relax.queries import all_bindings, tir_callee


def replaced_kernels(later: IRModule, earlier: IRModule) -> dict[str, str]:
    """Return for each PrimFunc that only the later module has the name of the one that it replaces, where there is one.

    Calls in the graph tell which is which: they bind the same variable of the same function before and after. Versions
    of a kernel for several CPUs replace those at the same positions.
    """
    new = [name for name in later.functions if name not in earlier.functions]
    if not new:
        return {}
    before, after = _callees(earlier), _callees(later)
    names = {name: before[call] for call, name in after.items() if name not in earlier.functions and call in before}
    for name, old in tuple(names.items()):
        names.update(zip(version_names(later[name]), version_names(earlier[old]), strict=False))
    return {name: old for name, old in names.items() if name not in earlier.functions}


def _callees(module: IRModule) -> dict[tuple[str, str], str]:
    """Return the PrimFuncs that bindings call, by function and variable."""
    return {
        (name, binding.var.name): callee
        for name, func in module.functions.items()
        if isinstance(func, relax.Function)
        for binding, _ in all_bindings(func.body)
        if (callee := tir_callee(getattr(binding, "value", None))) is not None
        and isinstance(module.functions.get(callee), tir.PrimFunc)
    }
