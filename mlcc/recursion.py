"""Room for large trees: deep recursion, since trees are walked recursively, and building without the collector."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

# Frames of Python. Where what runs may also call back and forth through C, whose stack is small: the deepest tree that
# the parser lets through needs some thousands.
MIXED = 20_000
# Calls between Python functions take no C stack: only memory bounds them, and programs may be as deep as they come.
PYTHON_ALONE = 1_000_000


@contextlib.contextmanager
def deep_recursion(frames: int = PYTHON_ALONE) -> Iterator[None]:
    """Allow at least so many frames inside the `with`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, frames))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Cyclic garbage collection inside the `with`, although `uncollected` stands around: for what leaves much of it."""
    running = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not running:
            gc.disable()


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
