"""What is reduced: a module, with the passes and the schedule script that make it fail."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir.module import IRModule
from mlcc.ir.node import walk


@dataclass(frozen=True)
class Program:
    """A module, and what is run on it: passes as their texts, and the lines of a schedule script; None: neither."""

    module: IRModule
    passes: tuple[str, ...] | None = None
    script: tuple[str, ...] | None = None

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of functions, of nodes of the module, and of passes and lines of the script."""
        functions = self.module.functions.values()
        steps = len(self.passes or ()) + len(self.script or ())
        return len(self.module.functions), sum(1 for func in functions for _ in walk(func)), steps
