"""Check data of reports against docs/report.schema.json, and that against the tables of docs/report-format.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA: dict[str, Any] = json.loads((DOCS / "report.schema.json").read_text())
_ROW = re.compile(r"^\| `([\w.*\[\]]+)` \| ([a-z, ]+) \| (.*) \|$", re.MULTILINE)
_WORDS = {"string": "text", "array": "list", "text-id": "text id"}
Row = tuple[str, str]  # the types of an entry, and what it is


def tables() -> tuple[dict[str, Row], dict[str, Row]]:
    """Return the rows of the page by entry: those of a report, and those of two reports."""
    one, _, two = (DOCS / "report-format.md").read_text().partition("## Two reports")
    both = [{path: (types, text) for path, types, text in _ROW.findall(part)} for part in (one, two)]
    return both[0], both[1]


def described(name: str) -> dict[str, Row]:
    """Return the entries of a definition of the schema in the form of `tables`."""
    return dict(_described(SCHEMA["$defs"][name], ""))


def _described(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Row]]:
    if path and not path.endswith("[]"):
        yield path, (_types(schema), schema["description"])
    start = f"{path}." if path else ""
    for key, entry in schema.get("properties", {}).items():
        yield from _described(entry, f"{start}{key}")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield from _described(values, f"{start}*")
    items = schema.get("items")
    if isinstance(items, dict) and "properties" in items:
        yield from _described(items, f"{path}[]")


def _types(schema: Mapping[str, Any]) -> str:
    """Return the types that a schema allows as the page names them."""
    if "$ref" in schema:
        return "object"
    if "const" in schema or "enum" in schema:
        names = [{str: "string", int: "integer"}[type(v)] for v in schema.get("enum", [schema.get("const")])]
    else:
        given = schema.get("type", "any")
        names = [given] if isinstance(given, str) else list(given)
    if schema.get("format") is not None:
        names[names.index("string")] = schema["format"]
    return ", ".join(dict.fromkeys(_WORDS.get(name, name) for name in names))


def faults(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the schema does not allow of a report, or of two. A text id has to be a key of its report's texts."""
    jsonschema = pytest.importorskip("jsonschema")

    def checked(part: Mapping[str, Any], texts: Mapping[str, str] | None) -> Iterator[str]:
        checker = jsonschema.FormatChecker(formats=())
        if texts is not None:
            checker.checks("text-id")(lambda value: not isinstance(value, str) or value in texts)
        for fault in jsonschema.Draft202012Validator(SCHEMA, format_checker=checker).iter_errors(part):
            yield f"{fault.json_path}: {fault.message:.200}"

    if "diff" not in data:
        yield from checked(data, data["texts"])
        return
    yield from checked(data, None)
    for side in ("a", "b"):
        yield from (f"{side}: {fault}" for fault in checked(data[side], data[side]["texts"]))


def entries(data: Mapping[str, Any]) -> set[str]:
    """Return the entries of the schema that some data have, with a value."""
    table = described("comparison" if "diff" in data else "report")
    found: set[str] = set()
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        path, value = waiting.pop()
        if value is not None and path in table:
            found.add(path)
        if isinstance(value, dict):
            start = f"{path}." if path else ""
            waiting += [(f"{start}*" if f"{start}*" in table else f"{start}{key}", item) for key, item in value.items()]
        if isinstance(value, list):
            waiting += [(f"{path}[]", item) for item in value]
    return found
