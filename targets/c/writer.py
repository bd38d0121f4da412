"""The state of the function that is being printed, which expressions refer to."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.targets.c.context import FileContext
from mlcc.targets.c.lines import Lines
from mlcc.targets.c.ranges import Ranges
from mlcc.targets.c.reserved import WORDS, is_reserved
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.names import identifier


class Writer:
    """The printer of one function: its lines, the C names of variables, and the intervals of their values."""

    def __init__(self, ctx: FileContext) -> None:
        self.ctx = ctx
        self.helpers = ctx.helpers
        self.ranges = Ranges()
        self.lines = Lines()
        self.names: dict[tir.Var, str] = {}
        self.taken: set[str] = set()

    def fresh(self, hint: str) -> str:
        """Return a name that is unique in the function and differs from all functions of the file."""
        base = unique = identifier(hint, WORDS)
        number = 1
        while unique in self.taken or unique in self.ctx.names or is_reserved(unique):
            unique, number = f"{base}_{number}", number + 1
        self.taken.add(unique)
        return unique

    def define(self, var: tir.Var, hint: str | None = None) -> str:
        """Return a C name for a variable that is unique in the function."""
        name = self.names[var] = self.fresh(hint or var.name)
        return name

    def name(self, var: tir.Var) -> str:
        """Return the C name of a variable. Raises CompileError for one without a value."""
        name = self.names.get(var)
        if name is None:
            raise refuse(f"`{var.name}` has no value here", var.span)
        return name

    def element(self, buffer: tir.Buffer, index: tir.Expr) -> str:
        """Print an element of a buffer, in its memory type."""
        from mlcc.targets.c.expressions import index as index_text

        return f"{self.name(buffer.data)}[{index_text(self, index)}]"

    def loaded(self, buffer: tir.Buffer, index: tir.Expr) -> str:
        """Print the value of an element of a buffer, in its memory type."""
        return self.element(buffer, index)
