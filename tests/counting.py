"""Count Python calls: a measure of work that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(run: Callable[[], Any]) -> int:
    """How many Python functions run."""
    total = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal total
        total += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return total
