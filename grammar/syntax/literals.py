"""Values of number and string literals, without evaluating anything."""

from __future__ import annotations

import re

MAX_DIGITS = 400  # of an integer literal: far above any dtype, and safely below quadratic conversion costs

_ESCAPE = re.compile(r"\\(\r?\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "0": "\0",
    "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": "", "\r\n": "",
}  # fmt: skip


class BadLiteral(ValueError):
    """A malformed literal; `offset` is the place in its text."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


def integer(text: str) -> int:
    """The value of an integer literal. Raises BadLiteral."""
    if len(text) > MAX_DIGITS:
        raise BadLiteral(f"an integer of {len(text)} digits is too large")
    if len(text) > 1 and text[0] == "0" and text[1] in "123456789_":
        if text.strip("0_"):
            raise BadLiteral("a decimal integer cannot start with 0; octal is written 0o17")
        return 0
    return int(text, 0)


def floating(text: str) -> float:
    """The value of a decimal floating literal."""
    return float(text)


def string(text: str) -> str:
    """The value of a string literal with its prefix and quotes. Raises BadLiteral."""
    quote = min(at for at in (text.find('"'), text.find("'")) if at >= 0)
    prefix = text[:quote].lower()
    if "f" in prefix:
        raise BadLiteral("f-strings are not part of the language")
    if "b" in prefix:
        raise BadLiteral("byte strings are not part of the language")
    width = 3 if text[quote : quote + 3] in ('"""', "'''") else 1
    body = text[quote + width : len(text) - width]
    if "\\" not in body or "r" in prefix:
        return body

    def unescape(escape: re.Match[str]) -> str:
        code = escape[1]
        simple = _SIMPLE.get(code)
        if simple is not None:
            return simple
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise BadLiteral("the escape names no character", quote + width + escape.start())
            return chr(number)
        if code in "xuUN":
            raise BadLiteral("a malformed escape in a string", quote + width + escape.start())
        return escape[0]  # as in Python, an unknown escape stands for itself

    return _ESCAPE.sub(unescape, body)
