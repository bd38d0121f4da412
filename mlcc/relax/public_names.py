"""Public functions under the names by which they are known outside."""

from __future__ import annotations

from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.visit import rewrite_bottom_up


def with_public_names(module: IRModule) -> IRModule:
    """The module with public functions named by their `global_symbol`; a private one of that name is renamed.

    Raises CompileError if two public functions have the same `global_symbol`.
    """
    name_of_symbol: dict[str, str] = {}
    for name, func in module.functions.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is None:
            continue
        symbol = str(getattr(symbol, "value", symbol))
        if symbol in name_of_symbol:
            message = f"two functions, `{name_of_symbol[symbol]}` and `{name}`, have the global_symbol `{symbol}`"
            raise CompileError(error("E0463", message))
        name_of_symbol[symbol] = name
    renamed = {name: symbol for symbol, name in name_of_symbol.items() if name != symbol}
    private = [n for n in module.functions if n not in name_of_symbol.values()]
    used_names = {*private, *name_of_symbol}
    for name in private:
        if name in name_of_symbol:
            renamed[name] = _free(name, used_names)
    return _renamed(module, renamed) if renamed else module


def _free(name: str, used_names: set[str]) -> str:
    number = 1
    while f"{name}{number}" in used_names:
        number += 1
    used_names.add(f"{name}{number}")
    return f"{name}{number}"


def _renamed(module: IRModule, names: dict[str, str]) -> IRModule:
    def rename(node: Any) -> Any:
        if isinstance(node, relax.GlobalVar) and node.name in names:
            return relax.GlobalVar(names[node.name], node.struct_info, span=node.span)
        return node

    new_module = module.copy()
    new_module.functions = {names.get(n, n): rewrite_bottom_up(f, rename) for n, f in module.functions.items()}
    return new_module
