"""Tensors between guard pages, so that out-of-bounds accesses fault, or are detected afterwards."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np

from mlcc.runtime.image import PAGE, READ, protect

ALIGNMENT = 64
GUARD = 16 * PAGE
_SLACK_FILL = 0xA5  # fills the slack between the tensor and the guard pages
_POISON, _MAX_POISONED = 0xFF, 1 << 26  # NaN as a float, -1 as an integer; the limit is in bytes


class GuardedMemory:
    """`size` bytes of memory between guard regions of 64 KiB.

    With `tight` the memory ends at the guard pages: the first byte beyond the end faults. Otherwise it begins at a
    multiple of 64 bytes, like tensors of a program. Writes of a forked process are private (copy-on-write) unless
    `shared`.
    """

    def __init__(self, size: int, *, tight: bool, shared: bool = False, offset: int = 0) -> None:
        self.size = size
        start = offset % PAGE if not tight else 0
        inside = -(-(size + start) // PAGE) * PAGE
        flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
        self._pages = mmap.mmap(-1, inside + 2 * GUARD, flags=flags)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.start = GUARD + (inside - size if tight else start)
        self.address = base + self.start
        self.bounds = (base + GUARD, base + GUARD + inside)
        self.bytes = np.frombuffer(self._pages, np.uint8, size, self.start)
        before = np.frombuffer(self._pages, np.uint8, self.start - GUARD, GUARD)
        behind = np.frombuffer(self._pages, np.uint8, GUARD + inside - self.start - size, self.start + size)
        self._slack = (before, behind)
        for part in self._slack:
            part[:] = _SLACK_FILL
        protect(base, GUARD, 0)
        protect(base + GUARD + inside, GUARD, 0)

    def is_intact(self) -> bool:
        """Return True if the slack around the tensor still has its fill pattern: no out-of-bounds write."""
        return all(bool((part == _SLACK_FILL).all()) for part in self._slack)

    def poison(self) -> None:
        """Poison the memory with NaN (-1 for integers): fresh pages are zero and would hide uninitialized reads."""
        self.bytes[:_MAX_POISONED] = _POISON

    def make_read_only(self) -> None:
        protect(self.bounds[0], self.bounds[1] - self.bounds[0], READ)

    def holds(self, address: int) -> bool:
        """Return True if an address lies in the tensor or in its guard pages."""
        return self.bounds[0] - GUARD <= address < self.bounds[1] + GUARD


def staggered(sizes: Sequence[int], *, shared: bool = False) -> list[GuardedMemory]:
    """Allocate tensors at different page offsets, to avoid cache conflict misses between them."""
    return [
        GuardedMemory(size, tight=False, shared=shared, offset=ALIGNMENT * (1 + 13 * at))
        for at, size in enumerate(sizes)
    ]
