"""Room for large trees: deep recursion, since trees are walked recursively, and building without the collector."""

from __future__ import annotations

import contextlib
import gc
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


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage collection inside the `with`: trees have no cycles, and visiting them again costs time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
