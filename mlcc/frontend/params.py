"""The parameter values stored in a module."""

from __future__ import annotations

from typing import Any

from mlcc.ir import relax
from mlcc.ir.module import IRModule


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """Strip the attribute `params` from a module's functions. Return the module, and the NumPy arrays by function."""
    detached, params = mod.copy(), {}
    for name, func in mod.functions.items():
        if isinstance(func, relax.Function) and "params" in func.attrs:
            params[name] = list(func.attrs["params"])
            detached.functions[name] = func.without_attr("params")
    return detached, params
