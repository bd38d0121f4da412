"""The one textual form of passes and targets: `name{key=value key2=[1,2]},other`.

Options are separated by commas or spaces. A value is a bare word (no space, comma, quote, brace or bracket), a number,
a double-quoted string, or a JSON list or map; `key` alone means `key=true`. `-` and `_` are the same in option names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from mlcc.errors import CompileError, Source, Span, error

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_BARE = re.compile(r"[^\s,\"'{}\[\]]+")
_INT = re.compile(r"[+-]?\d{1,30}$")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|nan)$")
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Option:
    """One `name=value`. `raw` is a bare word as written, None for other values; `span` covers the value."""

    name: str
    value: Any
    raw: str | None
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Item:
    """One `name{...}`; `options` in the order of the text."""

    name: str
    options: tuple[Option, ...]
    name_span: Span
    span: Span


def parse_list(text: str, source_name: str, code: str) -> tuple[Item, ...]:
    """Parse a comma-separated list of items, which may be empty. Raises CompileError with `code`."""
    reader = _Reader(Source(source_name, text), code)
    items = []
    reader.blanks()
    while not reader.at_end:
        items.append(reader.item())
        reader.blanks()
        if reader.at_end:
            break
        if reader.text[reader.at] == "(":
            reader.fail("expected `,` between two names", reader.at, help="options stand in braces: `name{key=value}`")
        reader.expect(",", "expected `,` between two names")
        reader.blanks()
        if reader.at_end:
            reader.fail("nothing follows the last `,`", reader.at - 1)
    return tuple(items)


def parse_one(text: str, source_name: str, code: str) -> Item:
    """Parse exactly one item. Raises CompileError with `code`."""
    reader = _Reader(Source(source_name, text), code)
    reader.blanks()
    item = reader.item()
    reader.blanks()
    if not reader.at_end:
        reader.fail(f"unexpected text after `{item.name}`", reader.at, len(text))
    return item


def format_item(name: str, options: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Print an item, for `parse_one`."""
    pairs = options.items() if isinstance(options, Mapping) else options
    inner = " ".join(f"{key}={format_value(value)}" for key, value in pairs)
    return f"{name}{{{inner}}}" if inner else name


def format_value(value: Any) -> str:
    """Print a value for `parse_list`, as a bare word if that is unambiguous."""
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and isinstance(_word(value), str)
        return value if bare else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _word(text: str) -> Any:
    """Return the value of a bare word: true, false, null, a number, or itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


class _Reader:
    """A recursive-descent parser of items; errors have a span and the expected token."""

    def __init__(self, source: Source, code: str) -> None:
        self.source = source
        self.text = source.text
        self.code = code
        self.at = 0
        self.decoder = json.JSONDecoder(object_pairs_hook=_unique)

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def fail(self, message: str, start: int, end: int | None = None, help: str | None = None) -> NoReturn:
        span = Span(self.source, start, max(start + 1, end or 0))
        raise CompileError(error(self.code, message, span, help=help))

    def blanks(self) -> None:
        while not self.at_end and self.text[self.at].isspace():
            self.at += 1

    def expect(self, char: str, message: str) -> None:
        if self.text[self.at : self.at + 1] != char:
            self.fail(message, self.at)
        self.at += 1

    def name(self, what: str) -> tuple[str, Span]:
        match = _NAME.match(self.text, self.at)
        if match is None:
            actual = f"`{self.text[self.at]}`" if not self.at_end else "the end"
            self.fail(f"expected {what}, found {actual}", self.at)
        self.at = match.end()
        return match.group(), Span(self.source, match.start(), match.end())

    def item(self) -> Item:
        name, span = self.name("a name")
        options: list[Option] = []
        if self.text[self.at : self.at + 1] == "{":
            opening = self.at
            self.at += 1
            self.separators()
            while self.text[self.at : self.at + 1] != "}":
                if self.at_end:
                    self.fail(f"`{{` after `{name}` is never closed", opening)
                options.append(self.option(options))
                self.separators()
            self.at += 1
        return Item(name, tuple(options), span, Span(self.source, span.start, self.at))

    def separators(self) -> None:
        while not self.at_end and (self.text[self.at].isspace() or self.text[self.at] == ","):
            self.at += 1

    def option(self, earlier: list[Option]) -> Option:
        written, name_span = self.name("an option or `}`")
        name = written.replace("-", "_")
        for other in earlier:
            if other.name == name:
                self.fail(f"option `{written}` is given twice", name_span.start, name_span.end)
        if self.text[self.at : self.at + 1] != "=":
            return Option(name, True, None, name_span, name_span)
        self.at += 1
        start = self.at
        value, raw = self.value(written)
        return Option(name, value, raw, name_span, Span(self.source, start, self.at))

    def value(self, name: str) -> tuple[Any, str | None]:
        first = self.text[self.at : self.at + 1]
        if first and first in '"[{':
            return self.json(), None
        match = _BARE.match(self.text, self.at)
        if match is None:
            help = "put a string with spaces in double quotes" if first == "'" else None
            self.fail(f"option `{name}` has no value after `=`", self.at, help=help)
        self.at = match.end()
        return _word(match.group()), match.group()

    def json(self) -> Any:
        start = self.at
        try:
            value, self.at = self.decoder.raw_decode(self.text, start)
        except json.JSONDecodeError as exc:
            self.fail(f"not a JSON value: {exc.msg[0].lower()}{exc.msg[1:]}", min(exc.pos, len(self.text) - 1))
        except _DuplicateKey as exc:
            self.fail(f"the key {exc} is given twice", start)
        except (RecursionError, ValueError):
            self.fail("not a JSON value: nested too deeply or a number too long", start)
        return value


class _DuplicateKey(Exception):
    """A duplicate key of a JSON map."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise _DuplicateKey(json.dumps(key))
        entries[key] = value
    return entries
