"""The cost of a kernel's accesses on a GPU: transactions of global memory, bank conflicts of shared memory.

Counted from traced addresses (`compiled.Launched.trace`). A request is what the threads of a warp do together: the same
place of the source, at the same turn of the loops around it.

- Global memory is moved in sectors of 32 bytes. A request takes as many as its threads touch; the least is what its
  bytes fill.
- Shared memory has 32 banks of 4 bytes. A request takes as many passes as there are words of one bank in it; accesses
  of 8 bytes go by half warps and those of 16 by quarters, so that the least is 2 and 4 passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mlcc.targets.emulate.checks import Checks, Site
from mlcc.targets.emulate.threads import WARP

SECTOR = 32
BANKS, WORD = 32, 4


@dataclass(frozen=True, slots=True)
class Access:
    """A place that touches memory: of the source, or (not `is_in_source`) of the kernel as lowered.

    `units` are sectors (global) or passes (shared) of all requests together, `least` how few would do, `worst` the most
    that one request takes over its least; `bytes` is what a thread moves at a time.
    """

    place: str
    text: str
    buffer: str
    scope: str
    what: str
    bytes: int
    requests: int
    units: int
    least: int
    worst: float
    is_in_source: bool = True

    @property
    def ratio(self) -> float:
        """Units over the least."""
        return self.units / self.least if self.least else 1.0


def accesses(trace: np.ndarray, checks: Checks) -> list[Access]:
    """The accesses of traced blocks, in the order of the kernel's code."""
    entries = []
    for number, site in enumerate(checks.sites):
        rows = trace[trace[:, 0] == number]
        if len(rows) and site.root is not None:
            entries.append(_access(rows, site))
    return entries


def whole_blocks(trace: np.ndarray, room: int) -> np.ndarray:
    """Without the last block, if there was no room for all of it."""
    if len(trace) < room:
        return trace
    kept = trace[trace[:, 5] != trace[-1, 5]]
    return kept if len(kept) else trace


def _access(rows: np.ndarray, site: Site) -> Access:
    assert site.root is not None
    request, lane = _requests(rows)
    count = int(request.max()) + 1
    offsets, sizes = rows[:, 3], rows[:, 4]
    scope = site.root.scope
    if scope == "global":
        units, least = _sectors(request, offsets, sizes, count)
    else:
        units, least = _passes(request, lane, offsets, sizes, count)
    line, column = site.span.source.line_col(site.span.start)
    text = site.span.source.text[site.span.start : site.span.end].splitlines()
    return Access(
        f"{site.span.source.name}:{line}:{column}", text[0] if text else "", site.root.name, scope, site.what,
        int(sizes.max()), count, int(units.sum()), int(least.sum()), float((units / least).max()),
        site.is_in_source,
    )  # fmt: skip


def _requests(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's request, and its lane. Several accesses of a thread at one turn of the loops (of one
    that was unrolled) belong to as many requests."""
    thread, key, block = rows[:, 1], rows[:, 2], rows[:, 5]
    turn = _numbered((block, thread, key))
    order = np.argsort(turn, kind="stable")
    starts = np.flatnonzero(np.diff(turn[order], prepend=-1))
    rank = np.empty(len(rows), np.int64)
    lengths = np.diff(np.append(starts, len(rows)))
    rank[order] = np.arange(len(rows)) - np.repeat(starts, lengths)
    return _numbered((block, thread // WARP, key, rank)), thread % WARP


def _numbered(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Equal rows have equal numbers, from 0 on."""
    number: np.ndarray | None = None
    for column in columns:
        values, own = np.unique(column, return_inverse=True)
        if number is None:
            number = own
        else:
            number = np.unique(number * len(values) + own, return_inverse=True)[1]
    assert number is not None
    return number.astype(np.int64)


def _sectors(request: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    which, sector = _spread(request, offsets // SECTOR, (offsets + sizes - 1) // SECTOR)
    touched = _distinct(which, sector)[0]
    owner, chosen = _distinct(request, offsets)
    useful = np.bincount(owner, weights=sizes[chosen], minlength=count)
    return np.bincount(touched, minlength=count), np.maximum(np.ceil(useful / SECTOR), 1).astype(np.int64)


def _passes(
    request: np.ndarray, lane: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    lanes = np.maximum(WARP * WORD // np.maximum(sizes, WORD), 1)  # that go together
    turn = request * WARP + lane // lanes
    which, word = _spread(turn, offsets // WORD, (offsets + sizes - 1) // WORD)
    owner, chosen = _distinct(which, word)
    in_bank = _numbered((owner, word[chosen] % BANKS))
    first = np.zeros(int(in_bank.max()) + 1, np.int64)
    first[in_bank] = owner
    ways = np.bincount(in_bank)
    turns, of = np.unique(first, return_inverse=True)
    most = np.zeros(len(turns), np.int64)
    np.maximum.at(most, of, ways)
    return (
        np.bincount(turns // WARP, weights=most, minlength=count).astype(np.int64),
        np.bincount(turns // WARP, minlength=count),
    )


def _spread(owner: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every number from `first` to `last`, with its owner."""
    counts = last - first + 1
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(owner, counts), np.repeat(first, counts) + np.arange(int(counts.sum())) - starts


def _distinct(owner: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the owner and the index of one pair out of each set of equal ones."""
    low = value.min()
    _, chosen = np.unique(owner * (value.max() - low + 1) + (value - low), return_index=True)
    return owner[chosen], chosen
