"""Progress events of a compilation: the work on each kernel is announced to listeners, which show or time it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """One of `count` pieces of work of a stage such as `auto-schedule`, number `at` from 0. `kernel` is the function
    that is worked on, if it is one."""

    stage: str
    kernel: str = ""
    at: int = 0
    count: int = 1


class Listener:
    """A listener to events of work, called in any thread; overriding either method is optional."""

    def begun(self, work: Work) -> None:
        """Work begins."""

    def done(self, work: Work, seconds: float) -> None:
        """Work is done, also work that was not begun here; `seconds` is what it took, of one core."""


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(*listeners: Listener) -> Iterator[None]:
    """Add listeners for the work inside the `with`, besides the current ones."""
    token = _listeners.set((*_listeners.get(), *listeners))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def working(stage: str, kernel: str = "", at: int = 0, count: int = 1) -> Iterator[None]:
    """Announce a piece of work, which is done inside."""
    listeners = _listeners.get()
    if not listeners:
        yield
        return
    work = Work(stage, kernel, at, count)
    for listener in listeners:
        listener.begun(work)
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    for listener in listeners:
        listener.done(work, seconds)


class Announcer:
    """Announces work of other threads or processes to those who listen now, where this is made."""

    def __init__(self) -> None:
        self._listeners = _listeners.get()

    def done(self, stage: str, kernel: str, seconds: float, at: int = 0, count: int = 1) -> None:
        """Announce a piece of work that is done."""
        for listener in self._listeners:
            listener.done(Work(stage, kernel, at, count), seconds)
