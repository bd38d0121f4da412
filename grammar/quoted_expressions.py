"""Expressions in quotes, as shapes have them: `T.Buffer(("n", "n * 2"), "float32")`."""

from __future__ import annotations

import re

from mlcc.errors import CompileError, Source
from mlcc.grammar.context import Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.reader import parse_syntax

_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*(?!\w*\s*[.(])")


def names_in(text: str) -> list[str]:
    """The names that a quoted expression mentions, functions left out."""
    return list(dict.fromkeys(_NAME.findall(text)))


def parse_quoted(walk: Walk, string: tree.Str) -> tree.Expr:
    """The syntax tree of the expression in a string; every node of it has the place of the string."""
    text = string.value.strip()
    if text.isidentifier():
        return tree.Name(string.start, string.end, text)
    try:
        body = parse_syntax(Source("<string>", f"({text})\n")).body
    except CompileError as bad:
        walk.fail("E0302", f"`{text}` is not an expression: {bad.diagnostics[0].message}", string)
    if len(body) != 1 or not isinstance(body[0], tree.Expression):
        walk.fail("E0302", f"`{text}` is not an expression", string)
    quoted = body[0].value
    for node in tree.nodes(quoted):
        node.start, node.end = string.start, string.end
    return quoted
