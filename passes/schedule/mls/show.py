"""The loops after every line of a script: `mlcc schedule --show-each`."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import Span
from mlcc.ir import tir
from mlcc.ir.module import Func
from mlcc.passes.schedule.nest import render_nest
from mlcc.passes.schedule.schedule import Schedule


class ShowEach:
    """Told of each statement that applied primitives: writes it, and the nests of the functions that it changed."""

    def __init__(self, schedule: Schedule, write: Callable[[str], None]) -> None:
        self._schedule, self._write = schedule, write
        self._shown: dict[str, Func] = {}
        write(self._changes("# --- before the script"))

    def __call__(self, span: Span) -> None:
        line, _ = span.source.line_col(span.start)
        text = " ".join(part.strip() for part in span.source.text[span.start : span.end].splitlines())
        self._write(self._changes(f"# --- {span.source.name}:{line}: {text[:200]}"))

    def _changes(self, head: str) -> str:
        """A line that says what was done, and what looks otherwise than before."""
        functions = self._schedule.mod.functions
        changed = [n for n, f in functions.items() if isinstance(f, tir.PrimFunc) and self._shown.get(n) is not f]
        self._shown = functions
        nests = [render_nest(self._schedule.state.func(name), name) for name in changed]
        return "\n".join([head, *nests]) if nests else f"{head}\n(no change)"
