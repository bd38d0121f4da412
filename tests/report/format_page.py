"""Check data against the tables of docs/report-format.md: every entry is there, and has one of its types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "report-format.md"
_ROW = re.compile(r"\| `([\w.*\[\]]+)` \| ([a-z, ]+) \|")
_TYPES = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
    "any": lambda value: True,
}
_FREE = ("manifest", "a", "b")  # objects that are described elsewhere


def tables() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the types of each entry of a report, and of one of two reports."""
    one, _, two = PAGE.read_text().partition("## Two reports")
    both = [{path: types.split(", ") for path, types in _ROW.findall(text)} for text in (one, two)]
    return both[0], both[1]


def faults(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the page does not say of a report."""
    one, two = tables()
    texts = data.get("texts", {})
    yield from _object(data, two if "diff" in data else one, "", texts)
    if "diff" in data:
        for side in ("a", "b"):
            yield from (f"{side}.{fault}" for fault in faults(data[side]))


def _object(
    data: Mapping[str, Any], table: Mapping[str, list[str]], path: str, texts: Mapping[str, str]
) -> Iterator[str]:
    children = {entry[len(path) :] for entry in table if entry.startswith(path)}
    wanted = {child for child in children if re.fullmatch(r"\w+", child)}
    if "*" in children:
        for key, value in data.items():
            yield from _value(value, table, f"{path}*", texts, key)
        return
    yield from (f"{path}{key} is not in the page" for key in data if key not in wanted)
    yield from (f"{path}{key} is missing" for key in wanted if key not in data)
    for key in sorted(wanted & data.keys()):
        yield from _value(data[key], table, f"{path}{key}", texts, key)


def _value(value: Any, table: Mapping[str, list[str]], path: str, texts: Mapping[str, str], key: str) -> Iterator[str]:
    types = table[path]
    if not any(value in texts if name == "text id" else _TYPES[name](value) for name in types):
        yield f"{path} ({key}) is {value!r:.40}, not {' or '.join(types)}"
    if isinstance(value, dict) and path not in _FREE:
        yield from _object(value, table, f"{path}.", texts)
    if isinstance(value, list) and any(entry.startswith(f"{path}[].") for entry in table):
        for item in value:
            yield from _object(item, table, f"{path}[].", texts)


def entries(data: Mapping[str, Any]) -> set[str]:
    """Return the entries of the page that some data have, with a value."""
    found: set[str] = set()
    table = tables()["diff" in data]
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        path, value = waiting.pop()
        if value is not None and path in table:
            found.add(path)
        if isinstance(value, dict) and path not in _FREE:
            start = f"{path}." if path else ""
            waiting += [(f"{start}*" if f"{start}*" in table else f"{start}{key}", item) for key, item in value.items()]
        if isinstance(value, list):
            waiting += [(f"{path}[]", item) for item in value]
    return found
