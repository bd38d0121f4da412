"""Names for variables, one each."""

from __future__ import annotations

from mlcc.ir import tir


class Names(dict[tir.Var, str]):
    """The name of each variable: its own, with a number where another one has that."""

    def __init__(self, taken: dict[tir.Var, str] | None = None) -> None:
        super().__init__(taken or {})
        self._used = set(self.values())

    def add(self, var: tir.Var, hint: str | None = None) -> str:
        """The name of a variable, made where it has none."""
        if var in self:
            return self[var]
        name = base = hint or var.name or "v"
        number = 1
        while name in self._used:
            name, number = f"{base}_{number}", number + 1
        self._used.add(name)
        self[var] = name
        return name
