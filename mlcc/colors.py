"""Whether an output stream is a terminal with colours."""

from __future__ import annotations

import os
from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Return True for a terminal that moves its cursor and has colours; not where TERM is `dumb`."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color(choice: str, stream: TextIO | None) -> bool:
    """Return True if text for `stream` has colours, by the value of --color: `auto` asks NO_COLOR, then FORCE_COLOR,
    then whether it is a terminal. Either variable counts if it is not empty."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return is_terminal(stream)
