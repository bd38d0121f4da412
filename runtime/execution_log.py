"""The execution log of an object that was compiled with `profile`, and of launch plans; docs/abi.md describes its rows.

Times are nanoseconds of the monotonic clock, as `time.monotonic_ns` has them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_CELLS = 5  # of a row
CAPACITY = 1 << 20  # rows; memory is taken as rows are written


class Event(NamedTuple):
    """What a row is about.

    `kind` is `kernel`, `packed`, `copy`, `loop` (a parallel one, as a whole) or `part` (of its iterations, on one
    thread); on a device also `upload`, `download` and `fill`. `file` and `line` are the place in the text.
    """

    kind: str
    name: str
    function: str = ""
    file: str | None = None
    line: int | None = None
    origin: str = ""

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Event:
        """Return an entry of `events` in a manifest."""
        place = facts.get("file"), facts.get("line"), facts.get("origin", "")
        return Event(facts["kind"], facts["name"], facts.get("function", ""), *place)


class Row(NamedTuple):
    """An event that took place. `thread` is the system's thread id, 0 if unknown; `size` is the iterations of a loop
    or of a part of one, or the bytes of a copy."""

    event: Event
    start: int
    stop: int
    thread: int
    size: int


class ExecutionLog:
    """The log of a loaded object. It logs until `detach`, which also makes the rows safe to keep."""

    def __init__(self, address: int, events: Sequence[Mapping[str, Any]], capacity: int = CAPACITY) -> None:
        self._events = [Event.of(facts) for facts in events]
        self._rows = np.empty((capacity, _CELLS), np.int64)
        self._head = (ctypes.c_int64 * 4).from_address(address)
        gettid = getattr(ctypes.CDLL(None), "gettid", None)
        self._head[1:] = [capacity, 0, 0 if gettid is None else ctypes.cast(gettid, ctypes.c_void_p).value or 0]
        self._head[0] = self._rows.__array_interface__["data"][0]

    def detach(self) -> None:
        """Stop logging."""
        self._head[0] = 0

    @property
    def lost(self) -> int:
        """The number of events that found no space."""
        return max(self._head[2] - len(self._rows), 0)

    def read(self) -> list[Row]:
        """Return the rows so far, in the order in which events ended."""
        used = self._rows[: min(self._head[2], len(self._rows))].tolist()
        return [Row(self._events[event], *rest) for event, *rest in used]
