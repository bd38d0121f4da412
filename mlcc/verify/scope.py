"""Scopes: the bindings of variables and buffers (by identity) in nested frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlcc.errors import Span
from mlcc.ir import tir


class Scope:
    """Nested frames of bound objects. An object is bound once in a function, and is visible until its frame ends."""

    def __init__(self) -> None:
        self._live: dict[Any, int] = {}  # object -> depth of blocks at its binding
        self._frames: list[list[Any]] = [[]]
        self._places: dict[Any, Span | None] = {}
        self._serial = 0
        self._active: list[int] = [0]
        self._alive: set[int] = {0}
        self.depth = 0  # of blocks with axes around this place

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Enter a nested frame; its bindings end with it."""
        self._frames.append([])
        self._serial += 1
        serial = self._serial
        self._active.append(serial)
        self._alive.add(serial)
        try:
            yield
        finally:
            for item in self._frames.pop():
                self._live.pop(item, None)
            self._active.pop()
            self._alive.discard(serial)

    @property
    def serial(self) -> int:
        """The number of the innermost frame: what was checked in a frame holds while that frame is alive."""
        return self._active[-1]

    def alive(self, serial: int) -> bool:
        return serial in self._alive

    def define(self, item: Any, place: Any = None) -> bool:
        """Bind an object; False if it was bound before, here or elsewhere in the function."""
        fresh = item not in self._places
        self._places.setdefault(item, getattr(place, "span", None) or getattr(item, "span", None))
        if item not in self._live:
            self._live[item] = self.depth
            self._frames[-1].append(item)
        return fresh

    def place(self, item: Any) -> Span | None:
        """Return the span of an object's binding, or None."""
        return self._places.get(item)

    def was_bound(self, item: Any) -> bool:
        """Return True if the object was bound in any scope, also in one that has ended."""
        return item in self._places

    def bound(self, item: Any) -> bool:
        return item in self._live

    def depth_of(self, item: Any) -> int:
        """Return the number of blocks with axes that enclose the binding."""
        return self._live.get(item, 0)


def matched_vars(buffer: tir.Buffer) -> Iterator[tir.Var]:
    """The variables that matching a buffer binds: those that stand alone as a dimension, stride or offset."""
    offset = (buffer.elem_offset,) if buffer.elem_offset is not None else ()
    for part in (*buffer.shape, *buffer.strides, *offset):
        if isinstance(part, tir.Var):
            yield part
