"""Progress events of a compilation: listeners that display or time the work on each kernel are notified."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple


class Period(NamedTuple):
    """When, by `time.perf_counter`, and in which thread, by the system's id, a work item was done."""

    start: float
    stop: float
    thread: int

    @staticmethod
    def since(start: float) -> Period:
        """Return the period in this thread that ends now."""
        return Period(start, time.perf_counter(), threading.get_native_id())


@dataclass(frozen=True, slots=True)
class Work:
    """Work item `at` (from 0) of the `count` items of a stage such as `auto-schedule`. `kernel` names the function
    being compiled, or is empty. `contains_others`: other work items are done inside of it. `period` is known of those
    that are done."""

    stage: str
    kernel: str = ""
    at: int = 0
    count: int = 1
    contains_others: bool = False
    period: Period | None = None


class Listener:
    """A listener to progress events, called in any thread. Overriding either method is optional."""

    def started(self, work: Work) -> None:
        """Called when a work item begins."""

    def done(self, work: Work, seconds: float) -> None:
        """Called when a work item is done, even if its begin was not announced. `seconds` is its time on one core."""


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(*listeners: Listener) -> Iterator[None]:
    """Add listeners for the work inside the `with` to the current ones."""
    token = _listeners.set((*_listeners.get(), *listeners))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def working(stage: str, kernel: str = "", at: int = 0, count: int = 1, contains_others: bool = False) -> Iterator[None]:
    """Announce a work item that is done inside the `with`."""
    listeners = _listeners.get()
    if not listeners:
        yield
        return
    work = Work(stage, kernel, at, count, contains_others)
    for listener in listeners:
        listener.started(work)
    start = time.perf_counter()
    yield
    period = Period.since(start)
    for listener in listeners:
        listener.done(replace(work, period=period), period.stop - start)


class Announcer:
    """Announces work of other threads or processes to the listeners that are active when this object is created."""

    def __init__(self) -> None:
        self._listeners = _listeners.get()

    def done(
        self, stage: str, kernel: str, seconds: float, at: int = 0, count: int = 1, period: Period | None = None
    ) -> None:
        """Announce a finished work item."""
        for listener in self._listeners:
            listener.done(Work(stage, kernel, at, count, period=period), seconds)
