"""Settings for large trees: a high recursion limit, since trees are walked recursively, and no garbage collection."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar

# Recursion limit for code that also recurses through C, whose stack is small. The deepest tree that the parser accepts
# needs some thousands of frames.
FRAMES_WITH_C = 20_000
# Recursion limit for pure Python code, whose calls take no C stack: only memory bounds the depth.
FRAMES_PYTHON_ONLY = 1_000_000


_lock = threading.Lock()  # both settings are global to the process


class _Settings:
    """The original settings, and the active requests: their frame counts and the nesting depth."""

    limit = 0
    frames: ClassVar[list[int]] = []
    collects = False
    uncollected = 0


@contextlib.contextmanager
def deep_recursion(frames: int = FRAMES_PYTHON_ONLY) -> Iterator[None]:
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
def gc_disabled() -> Iterator[None]:
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
