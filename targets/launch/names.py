"""Unique names of variables."""

from __future__ import annotations

from mlcc.ir import tir


class Names(dict[tir.Var, str]):
    """A map from variables to unique names: their own, with a number appended if it is taken."""

    def __init__(self, taken: dict[tir.Var, str] | None = None) -> None:
        super().__init__(taken or {})
        self._used = set(self.values())

    def add(self, var: tir.Var, hint: str | None = None) -> str:
        """Return the name of a variable, chosen on first use."""
        if var in self:
            return self[var]
        name = base = hint or var.name or "v"
        number = 1
        while name in self._used:
            name, number = f"{base}_{number}", number + 1
        self._used.add(name)
        self[var] = name
        return name
