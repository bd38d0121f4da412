"""Traces in the Trace Event Format, which Perfetto and chrome://tracing show.

The format: "Trace Event Format" by N. Duca and D. Sinclair (Google). Only complete events (`ph` X) and metadata
(`ph` M) are used. Events of one thread nest: of two that overlap, one contains the other.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MAIN = "main thread"


@dataclass(slots=True)
class TraceEvent:
    """An event of a thread; times are nanoseconds of the monotonic clock."""

    name: str
    category: str
    thread: int
    start: int
    stop: int
    args: dict[str, Any] = field(default_factory=dict)


class Trace:
    """The events of one process, named `process`. Threads are numbered by the system.

    May be used by several threads. `clock` gives nanoseconds.
    """

    def __init__(self, process: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.process = process
        self.clock = clock
        self.facts: dict[str, Any] = {}
        self.events: list[TraceEvent] = []
        self._open: list[TraceEvent] = []
        self._late: list[Callable[[], None]] = []
        self._threads: dict[int, str] = {threading.get_native_id(): MAIN}
        self._began = clock()

    def add(
        self, name: str, category: str, thread: int, start: int, stop: int, args: Mapping[str, Any] | None = None
    ) -> None:
        """Add an event that is over."""
        self.events.append(TraceEvent(name, category, thread, start, stop, dict(args or {})))

    def name_thread(self, thread: int, name: str) -> None:
        """Name a thread, unless it has a name."""
        self._threads.setdefault(thread, name)

    def when_written(self, add: Callable[[], None]) -> None:
        """Call `add` once, before the events are written: it adds those that are kept elsewhere until then."""
        self._late.append(add)

    def begin(self, name: str, category: str, start: int | None = None) -> TraceEvent:
        """Begin an event of this thread, now by default; `end` ends it."""
        now = self.clock() if start is None else start
        event = TraceEvent(name, category, threading.get_native_id(), now, now)
        self._open.append(event)
        return event

    def end(self, event: TraceEvent, stop: int | None = None) -> None:
        """End an event that `begin` began."""
        event.stop = self.clock() if stop is None else stop
        self._open.remove(event)
        self.events.append(event)

    @contextmanager
    def span(self, name: str, category: str = "command") -> Iterator[None]:
        """Add an event for what happens inside the `with`, also if that fails."""
        event = self.begin(name, category)
        try:
            yield
        except BaseException as exc:
            event.args["failed"] = type(exc).__name__
            raise
        finally:
            self.end(event)

    def text(self) -> str:
        """Return the trace as JSON. Events that are under way end now and are marked as `unfinished`."""
        while self._late:
            self._late.pop()()
        now = self.clock()
        events = [*self.events]
        for one in list(self._open):
            args = {**one.args, "unfinished": True}
            events.append(TraceEvent(one.name, one.category, one.thread, one.start, now, args))
        events.sort(key=lambda e: (e.start, -e.stop))
        origin = min([self._began, *(e.start for e in events)])
        process = os.getpid()
        records = [_metadata("process_name", process, 0, {"name": self.process})]
        for order, (thread, name) in enumerate(self._threads.items()):
            records.append(_metadata("thread_name", process, thread, {"name": name}))
            records.append(_metadata("thread_sort_index", process, thread, {"sort_index": order}))
        for event in events:
            records.append({
                "ph": "X", "name": event.name, "cat": event.category, "pid": process, "tid": event.thread,
                "ts": (event.start - origin) / 1000, "dur": (event.stop - event.start) / 1000, "args": event.args,
            })  # fmt: skip
        lines = ",\n".join(json.dumps(record) for record in records)
        return f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(self.facts)}, "traceEvents": [\n{lines}\n]}}\n'


def _metadata(name: str, process: int, thread: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0, "args": dict(args)}
