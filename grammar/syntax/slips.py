"""Hints for tokens that other languages have where they stand, and for lines that are no program at all."""

from __future__ import annotations

import re


def token_hint(line: str, token: str, before: str, first: bool) -> str | None:
    """Return the help for a token that cannot stand where it does. `line` is its line, `before` what is left of it."""
    if token == "@" and not first:
        return "the product of two matrices is `R.matmul(a, b)`"
    if token == ":" and line[len(before) :].startswith(":="):
        return "bind the value on a line of its own"
    if first and token == "//":
        return "a comment starts with `#`"
    if before.rstrip().endswith(("++", "--")):
        return f"write `{before.rstrip()[-1]}= 1`"
    if re.match(r"for\s*\(", line.strip()):
        return "a loop is written `for i in range(8):`"
    if re.match(r"if\s+__name__\b", line.strip()):
        return "leave it out: a text is not run; programs that use it are Python files of their own"
    return None


def conflict_hint(line: str) -> str | None:
    """Return the help for a line that a version control system left."""
    if re.match(r"(<{7} |={7}$|>{7} )", line):
        return "it is left from a merge: keep one of the two sides, and remove the three marks"
    return None
