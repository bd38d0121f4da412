"""Arrays that lie against pages which must not be touched: an access out of bounds is a signal."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE


def room(size: int, before: bool) -> np.ndarray:
    """So many bytes that begin behind, or end before, a page that may not be touched."""
    pages = -(-max(size, 1) // PAGE) + 2
    memory = mmap.mmap(-1, pages * PAGE)
    whole = np.frombuffer(memory, "uint8")
    libc = ctypes.CDLL(None)
    for page in (0, pages - 1):
        assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    start = PAGE if before else (pages - 1) * PAGE - size
    return whole[start : start + size]


def fenced(array: np.ndarray, before: bool) -> np.ndarray:
    """A copy of an array without gaps that begins behind, or ends before, such a page."""
    made: np.ndarray = room(array.nbytes, before).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


class _FencedNumpy:
    """NumPy whose `empty` gives memory before such a page, full of a pattern."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: Any, dtype: Any = "float64") -> np.ndarray:
        kind = np.dtype(dtype)
        if np.any(np.less(shape, 0)):
            return np.empty(shape, kind)  # which says why not
        memory = room(int(np.prod(shape, dtype=int)) * kind.itemsize, before=False)
        memory[...] = 0xA5
        return memory.view(kind).reshape(shape)


@contextmanager
def fenced_results() -> Iterator[None]:
    """Calls of compiled functions put results and workspaces against such pages."""
    from mlcc.runtime import fast, native, signature

    modules: tuple[Any, ...] = (signature, native, fast)
    for module in modules:
        module.np = _FencedNumpy()
    try:
        yield
    finally:
        for module in modules:
            module.np = np
