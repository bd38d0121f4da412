"""The trace of a run, from the execution log of what was run."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Protocol

from mlcc.report.trace_events import MAIN, Trace
from mlcc.runtime.execution_log import Row

_LEAST_WAIT = 1000  # nanoseconds that a caller waits for workers before it is an event
_SIZES = {"loop": "iterations", "copy": "bytes", "upload": "bytes", "download": "bytes", "fill": "bytes"}


class Log(Protocol):
    """An execution log: of an object, or of a launch plan."""

    @property
    def lost(self) -> int: ...

    def read(self) -> list[Row]: ...


def add_execution(trace: Trace, log: Log) -> None:
    """Add the events of a log. `lost_events` of the trace says how many found no space in it.

    The parts that a thread has of one parallel loop become one event, from the first to the last, with their number and
    the time inside them. Where the thread that runs a loop is not at work on a part, at its begin and end, it waits.
    """
    rows = log.read()
    trace.facts["lost_events"] = log.lost
    loops = sorted((row for row in rows if row.event.kind == "loop"), key=lambda row: row.start)
    starts = [loop.start for loop in loops]
    shares: dict[int, dict[int, list[Row]]] = {}  # parts by loop and thread
    for row in rows:
        if row.event.kind != "part":
            trace.add(row.event.name, row.event.kind, row.thread, row.start, row.stop, _args(row))
            continue
        loop = _loop_of(row, loops, starts)
        if loop is not None:
            shares.setdefault(loop, {}).setdefault(row.thread, []).append(row)
    for at, loop_row in enumerate(loops):
        by_thread = shares.get(at, {})
        for thread, parts in by_thread.items():
            _add_share(trace, thread, parts, loop_row)
        _add_waiting(trace, loop_row, by_thread.get(loop_row.thread, []))
    callers = {row.thread for row in rows if row.event.kind != "part"}
    workers = sorted({row.thread for row in rows} - callers)
    for number, thread in enumerate(workers, 1):
        trace.name_thread(thread, f"worker {number} of the pool")
    for thread in sorted(callers):
        trace.name_thread(thread, MAIN)


def _args(row: Row) -> dict[str, Any]:
    event = row.event
    args: dict[str, Any] = {}
    if event.function:
        args["function"] = event.function
    if event.file is not None:
        args["place"] = event.file if event.line is None else f"{event.file}:{event.line}"
    if event.origin:
        args["origin"] = event.origin
    if event.kind in _SIZES:
        args[_SIZES[event.kind]] = row.size
    return args


def _loop_of(part: Row, loops: Sequence[Row], starts: Sequence[int]) -> int | None:
    """Return the index of the loop that a part belongs to; None if its loop is not in the log."""
    for at in range(bisect.bisect_right(starts, part.start) - 1, -1, -1):
        loop = loops[at]
        same = loop.event[1:] == part.event[1:]
        if same and part.stop <= loop.stop:
            return at
        if same and loop.thread == part.thread:
            return None
    return None


def _add_share(trace: Trace, thread: int, parts: Sequence[Row], loop: Row) -> None:
    busy = sum(part.stop - part.start for part in parts)
    iterations = sum(part.size for part in parts)
    args = {
        "parts": len(parts), "iterations": iterations, "busy_us": busy / 1000,
        "share": iterations / loop.size if loop.size else 0.0,
    }  # fmt: skip
    start, stop = min(part.start for part in parts), max(part.stop for part in parts)
    trace.add(f"{loop.event.name}: {iterations} of {loop.size}", "share", thread, start, stop, args)


def _add_waiting(trace: Trace, loop: Row, own: Sequence[Row]) -> None:
    """Add the time in which the thread that runs a loop hands it out, and waits for workers."""
    first = min((part.start for part in own), default=loop.stop)
    last = max((part.stop for part in own), default=loop.start)
    if not own:
        trace.add("wait for workers", "waiting", loop.thread, loop.start, loop.stop)
        return
    for name, start, stop in (("wake workers", loop.start, first), ("wait for workers", last, loop.stop)):
        if stop - start >= _LEAST_WAIT:
            trace.add(name, "waiting", loop.thread, start, stop)
