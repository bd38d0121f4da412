"""The differences between the manifests of two artifacts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Absent:
    """The value of an entry that a manifest does not have."""

    def __str__(self) -> str:
        return "absent"


ABSENT = Absent()


class ManifestDifference(NamedTuple):
    """An entry with two values; `path` is that of its keys, such as `functions.main.results.dtype`."""

    path: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.path}: {format_entry(self.left)} | {format_entry(self.right)}"


def compare_manifests(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[ManifestDifference]:
    """Return the entries that differ, by path. Entries of a list are compared one by one if they are maps."""
    here, there = _entries(left), _entries(right)
    return [
        ManifestDifference(path, here.get(path, ABSENT), there.get(path, ABSENT))
        for path in sorted({*here, *there})
        if here.get(path, ABSENT) != there.get(path, ABSENT)
    ]


def format_entry(value: Any) -> str:
    """Format an entry on one line: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else str(value) if value is ABSENT else json.dumps(value, sort_keys=True)


def _entries(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a manifest by their paths."""
    entries: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [("", manifest)]
    while stack:
        path, value = stack.pop()
        children: dict[str, Any] = {}
        if isinstance(value, Mapping):
            children = {f"{path}.{key}" if path else str(key): below for key, below in value.items()}
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            children = {f"{path}[{i}]": below for i, below in enumerate(value)}
        if children:
            stack += children.items()
        else:
            entries[path] = value
    return entries
