"""Room for deep recursion: trees are walked recursively, and texts may nest as deep as the grammar's limits allow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

FRAMES = 20_000  # of Python; the deepest tree that the parser lets through needs some thousands


@contextlib.contextmanager
def deep() -> Iterator[None]:
    """At least `FRAMES` frames inside the `with`."""
    before = sys.getrecursionlimit()
    if before >= FRAMES:
        yield
        return
    sys.setrecursionlimit(FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
