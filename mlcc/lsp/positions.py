"""Offsets in a text and the positions of the protocol: lines, and columns in the units that the client counts in."""

from __future__ import annotations

import bisect
import re

_END = re.compile(r"\r\n|\n|\r")
_UNITS = {"utf-8": lambda c: len(c.encode("utf-8", "surrogatepass")), "utf-16": lambda c: 1 + (ord(c) > 0xFFFF)}


class Positions:
    """Converts between offsets in `text` and pairs of a line and a column, both from 0."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _END.finditer(text))]
        self._unit = _UNITS.get(encoding)

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect.bisect_right(self._starts, offset) - 1
        part = self.text[self._starts[line] : offset]
        return line, self._width(part)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a position; of the end of the line if it is behind that."""
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        part = self.text[start:end].rstrip("\r\n")
        if self._unit is None or part.isascii():
            return start + min(column, len(part))
        width = 0
        for at, char in enumerate(part):
            if width >= column:
                return start + at
            width += self._unit(char)
        return start + len(part)

    def end(self) -> tuple[int, int]:
        """Return the position behind the text."""
        return self.position(len(self.text))

    def _width(self, part: str) -> int:
        if self._unit is None or part.isascii():
            return len(part)
        return sum(map(self._unit, part))
