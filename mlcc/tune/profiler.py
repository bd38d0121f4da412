"""A profiler of the tuner's phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Self

_current: ContextVar[Profiler | None] = ContextVar("tuning profiler", default=None)


class Profiler:
    """Accumulates the time of named phases inside its `with`. TVM: `Profiler`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._began = 0.0
        self._tokens: list[Token[Profiler | None]] = []

    def get(self) -> dict[str, float]:
        """Return the seconds by name; `Total` is the whole `with`."""
        return dict(self._seconds)

    def table(self) -> str:
        """Format the seconds as a table, longest first."""
        total = self._seconds.get("Total", 0.0) or 1.0
        rows = sorted(self._seconds.items(), key=lambda pair: -pair[1])
        return "\n".join(f"{name:<32} {seconds:9.3f} s {seconds / total:7.1%}" for name, seconds in rows)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        self._add("Total", time.perf_counter() - self._began)
        _current.reset(self._tokens.pop())

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @staticmethod
    def current() -> Profiler | None:
        """Return the profiler of the innermost enclosing `with`, None outside."""
        return _current.get()

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Add the time of a block to the current profiler, if there is one."""
        began = time.perf_counter()
        try:
            yield
        finally:
            profiler = _current.get()
            if profiler is not None:
                profiler._add(name, time.perf_counter() - began)
