"""Public functions under the names by which they are known outside."""

from __future__ import annotations

from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.visit import rewrite_bottom_up


def with_public_names(module: IRModule) -> IRModule:
    """The module with public functions named by their `global_symbol`; a private one in the way gets another name.

    Raises CompileError if two public functions have one `global_symbol`.
    """
    wanted: dict[str, str] = {}
    for name, func in module.functions.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is None:
            continue
        symbol = str(getattr(symbol, "value", symbol))
        if symbol in wanted:
            message = f"two functions, `{wanted[symbol]}` and `{name}`, have the global_symbol `{symbol}`"
            raise CompileError(error("E0463", message))
        wanted[symbol] = name
    renamed = {name: symbol for symbol, name in wanted.items() if name != symbol}
    private = [n for n in module.functions if n not in wanted.values()]
    taken = {*private, *wanted}
    for name in private:
        if name in wanted:
            renamed[name] = _free(name, taken)
    return _renamed(module, renamed) if renamed else module


def _free(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}{number}" in taken:
        number += 1
    taken.add(f"{name}{number}")
    return f"{name}{number}"


def _renamed(module: IRModule, names: dict[str, str]) -> IRModule:
    def rename(node: Any) -> Any:
        if isinstance(node, relax.GlobalVar) and node.name in names:
            return relax.GlobalVar(names[node.name], node.struct_info, span=node.span)
        return node

    new_module = module.copy()
    new_module.functions = {names.get(n, n): rewrite_bottom_up(f, rename) for n, f in module.functions.items()}
    return new_module
