"""Lines of a C function, and the removal of definitions that nothing uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INDENT = "    "


_WIDTH = 110  # characters of a line with a list that is broken at commas
_NAME = re.compile(r"[A-Za-z_]\w*")


class Lines:
    """The lines of a function body. Each may know the variable that it defines or stores to."""

    def __init__(self, depth: int = 1) -> None:
        self._lines: list[tuple[str, str | None, str]] = []
        self._places: list[tuple[int, str]] = []  # from which line on lines come from a place, as `#line` names it
        self._depth = depth

    def add(self, text: str, variable: str | None = None, otherwise: str = "") -> None:
        """Append a line. If no needed line uses the `variable` that it defines or stores to, `otherwise` replaces it.

        By default nothing replaces it, so it must do nothing else.
        """
        indent = INDENT * self._depth
        self._lines.append((indent + text, variable, indent + otherwise if otherwise else ""))

    def locate(self, place: str) -> None:
        """Note that the following lines come from `place`, the operand of a `#line` directive: `12 "model.mlc"`."""
        self._places.append((len(self._lines), place))

    @property
    def place(self) -> str | None:
        """Where the following lines come from, if that is known."""
        return self._places[-1][1] if self._places else None

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.add(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.add(tail)

    @contextmanager
    def continued(self) -> Iterator[None]:
        """Indent the lines of a branch whose head is the tail of the one before."""
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    def finish(self) -> tuple[list[str], set[str]]:
        """Return the lines that are needed, and the names that they use."""
        by_variable: dict[str, set[str]] = {}
        todo: list[str] = []
        for text, variable, otherwise in self._lines:
            todo += _NAME.findall(text if variable is None else otherwise)
            if variable is not None:
                by_variable.setdefault(variable, set()).update(_NAME.findall(text))
        used: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in used:
                used.add(name)
                todo += by_variable.get(name, ())
        lines = (
            text if variable is None or variable in used else otherwise for text, variable, otherwise in self._lines
        )
        if self._places:
            return self._with_places(list(lines)), used
        return [line for line in lines if line], used

    def _with_places(self, lines: list[str]) -> list[str]:
        """Return the needed lines, each that comes from a place behind the `#line` directive that says so."""
        places = dict(self._places)  # the last one for a line holds
        current: str | None = None
        located: list[str] = []
        for at, line in enumerate(lines):
            current = places.get(at, current)
            if line:
                located += [line] if current is None else [f"#line {current}", line]
        return located


def wrapped(head: str, items: Sequence[str], tail: str) -> list[str]:
    """Return `head`, items with commas, and `tail` in lines that are not too long where there are several items."""
    lines = [head]
    for number, item in enumerate(items):
        text = item + (", " if number < len(items) - 1 else tail)
        if len(lines[-1]) + len(text) > _WIDTH and lines[-1].strip() and number > 0:
            lines.append(f"{INDENT}{INDENT}")
        lines[-1] += text
    return [line.rstrip() for line in lines]
