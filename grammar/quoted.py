"""Expressions in quotes, as shapes have them: `T.Buffer(("n", "n * 2"), "float32")`."""

from __future__ import annotations

import re
from typing import Any

from mlcc.errors import CompileError, Source
from mlcc.grammar.context import Walk
from mlcc.grammar.syntax.reader import parse_syntax
from mlcc.grammar.syntax.tree import Cst

_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*(?!\w*\s*[.(])")


def names_in(text: str) -> list[str]:
    """The names that a quoted expression mentions, functions left out."""
    return list(dict.fromkeys(_NAME.findall(text)))


def parse_quoted(walk: Walk, string: Cst) -> Cst:
    """The syntax tree of the expression in a string; every node of it has the place of the string."""
    text = string[3].strip()
    if text.isidentifier():
        return ("name", string[1], string[2], text)
    try:
        body = parse_syntax(Source("<string>", f"({text})\n")).body
    except CompileError as bad:
        walk.fail("E0302", f"`{text}` is not an expression: {bad.diagnostics[0].message}", string)
    if len(body) != 1 or body[0][0] != "expr":
        walk.fail("E0302", f"`{text}` is not an expression", string)
    return _moved(body[0][3], string[1], string[2])  # type: ignore[no-any-return]


def _moved(node: Any, start: int, end: int) -> Any:
    if not isinstance(node, tuple):
        return node
    if len(node) > 2 and isinstance(node[0], str) and type(node[1]) is int and type(node[2]) is int:
        return (node[0], start, end, *(_moved(part, start, end) for part in node[3:]))
    return tuple(_moved(part, start, end) for part in node)
