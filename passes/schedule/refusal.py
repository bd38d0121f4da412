"""The exception with which primitives refuse illegal requests."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """The refusal of a primitive or an analysis; the schedule turns it into a diagnostic and is left unchanged.

    `code` is an E06xx; `message` says what is refused and why, with the names of the loops and blocks concerned;
    `at` are the loops and blocks to mark in the nest that is shown (nodes of the function `func`, by default of the
    function that the primitive works on); `help` names what would be legal.
    """

    def __init__(self, code: str, message: str, at: Any = (), help: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at: tuple[Any, ...] = at if isinstance(at, tuple) else (at,)
        self.help = help
