"""Recursion over deep programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 1_000_000


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Walk programs as deep as they come. Calls between Python functions take no C stack, so only memory bounds it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
