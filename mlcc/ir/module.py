"""IRModule: a mutable map from names to immutable functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.global_info import GlobalInfo
from mlcc.ir.node import Attrs, one_line

Func = tir.PrimFunc | relax.Function


class IRModule:
    """Functions by name, in the order of the text, with attributes and global infos (virtual devices) of the whole.

    Values are immutable; `copy()` is shallow.

    Raises KeyError for an unknown name.
    """

    def __init__(
        self,
        functions: Mapping[Any, Func] | None = None,
        attrs: Mapping[str, object] | None = None,
        name: str = "Module",
        global_infos: Mapping[str, Sequence[GlobalInfo]] | None = None,
    ) -> None:
        self.functions: dict[str, Func] = {_name(k): f for k, f in (functions or {}).items()}
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs)
        self.name = name
        self.global_infos = {k: tuple(v) for k, v in (global_infos or {}).items()}

    @staticmethod
    def from_expr(func: Func) -> IRModule:
        """Return a module of one function, named by its `global_symbol`, or `main`."""
        return IRModule({str(func.attrs.get("global_symbol", "main")): func})

    def __getitem__(self, name: str | relax.GlobalVar) -> Func:
        try:
            return self.functions[_name(name)]
        except KeyError:
            known = ", ".join(f"`{n}`" for n in self.functions) or "none"
            raise KeyError(f"no function `{_name(name)}`: the module has {known}") from None

    def __setitem__(self, name: str | relax.GlobalVar, func: Func) -> None:
        self.functions[_name(name)] = func

    def __delitem__(self, name: str | relax.GlobalVar) -> None:
        del self.functions[_name(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, relax.GlobalVar)) and _name(name) in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def get_global_var(self, name: str) -> relax.GlobalVar:
        """Return the handle of a function. Raises KeyError if there is none of that name."""
        if name not in self.functions:
            raise KeyError(f"the module has no function `{name}`; it has {', '.join(self.functions) or 'none'}")
        return relax.GlobalVar(name)

    def get_global_vars(self) -> list[relax.GlobalVar]:
        return [relax.GlobalVar(n) for n in self.functions]

    def update_func(self, name: str | relax.GlobalVar, func: Func) -> None:
        """Set or add a function."""
        self.functions[_name(name)] = func

    def unique_name(self, hint: str) -> str:
        """Return the first of `hint`, `hint1`, `hint2`, ... that no function has."""
        if hint not in self.functions:
            return hint
        number = 1
        while f"{hint}{number}" in self.functions:
            number += 1
        return f"{hint}{number}"

    def copy(self) -> IRModule:
        return IRModule(self.functions, self.attrs, self.name, self.global_infos)

    def script(self, dialect: str = "mlcc") -> str:
        """Return the module as text; see `mlcc.script`."""
        from mlcc.grammar.printer.printer import script

        return script(self, dialect=dialect)

    def show(self, dialect: str = "mlcc") -> None:
        """Print the text, highlighted on a terminal."""
        from mlcc.grammar.printer.printer import show

        show(self, dialect=dialect)

    def __str__(self) -> str:
        return self.script()

    def __repr__(self) -> str:
        return f"<IRModule {self.name}: {one_line(', '.join(self.functions) or 'no functions')}>"


def _name(key: str | relax.GlobalVar) -> str:
    return key.name if isinstance(key, relax.GlobalVar) else key
