"""Room for large trees: deep recursion, since trees are walked recursively, and building without the collector."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar

# Frames of Python. Where what runs may also call back and forth through C, whose stack is small: the deepest tree that
# the parser lets through needs some thousands.
MIXED = 20_000
# Calls between Python functions take no C stack: only memory bounds them, and programs may be as deep as they come.
PYTHON_ALONE = 1_000_000


_lock = threading.Lock()  # both settings are the process's, whichever thread asks


class _Settings:
    """The settings before the outermost `with`, and the active ones: their frames, their number."""

    limit = 0
    frames: ClassVar[list[int]] = []
    collects = False
    uncollected = 0


@contextlib.contextmanager
def deep_recursion(frames: int = PYTHON_ALONE) -> Iterator[None]:
    """Raise Python's recursion limit to at least `frames` inside the `with`."""
    with _lock:
        if not _Settings.frames:
            _Settings.limit = sys.getrecursionlimit()
        _Settings.frames.append(frames)
        sys.setrecursionlimit(max(_Settings.limit, *_Settings.frames))
    try:
        yield
    finally:
        with _lock:
            _Settings.frames.remove(frames)
            sys.setrecursionlimit(max([_Settings.limit, *_Settings.frames]))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable cyclic garbage collection inside the `with`: trees have no cycles, and scanning them costs time."""
    with _lock:
        if not _Settings.uncollected:
            _Settings.collects = gc.isenabled()
        _Settings.uncollected += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _Settings.uncollected -= 1
            if not _Settings.uncollected and _Settings.collects:
                gc.enable()
