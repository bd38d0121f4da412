"""The texts of a report: each is stored once, and everything else refers to it by its id."""

from __future__ import annotations


class Texts:
    """A table of texts by id, in order of first use."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def add(self, text: str) -> str:
        """Return the id of a text, which is added if the table does not have it yet."""
        return self._ids.setdefault(text, f"t{len(self._ids)}")

    def table(self) -> dict[str, str]:
        """Return all texts by id."""
        return {id: text for text, id in self._ids.items()}
