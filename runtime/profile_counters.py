"""Read the counters of an object that was compiled with `profile`; docs/abi.md describes its table."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class CallSite(NamedTuple):
    """A call of a kernel in the graph: its place in the text, as FILE and line, and the comment there."""

    function: str
    kernel: str
    symbols: tuple[str, ...]
    file: str | None
    line: int | None
    origin: str


class CallCount(NamedTuple):
    """What the calls at one site took since the last reset. `sizes` are the kernel's symbols at the last call."""

    seconds: float
    calls: int
    sizes: dict[str, int]


class ProfileCounters:
    """The table of a loaded object. Calls of several threads at once are not kept apart."""

    def __init__(self, address: int, facts: list[dict[str, Any]], clock: int) -> None:
        self.sites = [
            CallSite(f["function"], f["kernel"], tuple(f["symbols"]), f.get("file"), f.get("line"), f.get("origin", ""))
            for f in facts
        ]
        cells = 1 + sum(2 + len(site.symbols) for site in self.sites)
        self._cells = (ctypes.c_int64 * cells).from_address(address)
        self._cells[0] = clock

    def reset(self) -> None:
        """Set all counters to 0."""
        self._cells[1:] = [0] * (len(self._cells) - 1)

    def read(self) -> list[CallCount]:
        """Return the counters, in the order of `sites`."""
        counts = []
        at = 1
        for site in self.sites:
            nanoseconds, calls, *sizes = self._cells[at : at + 2 + len(site.symbols)]
            counts.append(CallCount(nanoseconds * 1e-9, calls, dict(zip(site.symbols, sizes, strict=True))))
            at += 2 + len(site.symbols)
        return counts
