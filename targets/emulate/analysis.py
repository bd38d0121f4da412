"""The cost of a kernel's accesses on a GPU: transactions of global memory, bank conflicts of shared memory.

Both are counted from traced addresses (`trace.Trace`), each as often as its weight says. A request is what the threads
of a warp do together: the same place in the source, in the same iteration of the enclosing loops.

- Global memory is transferred in sectors of 32 bytes. A request takes as many as its threads touch; the minimum is what
  its bytes fill.
- Shared memory has 32 banks of 4 bytes. A request takes as many passes as it accesses words of one bank; accesses of 8
  bytes are served by half warps and those of 16 by quarter warps, so that their minimum is 2 and 4 passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mlcc.ir import tir
from mlcc.targets.emulate.checks import Checks, Site
from mlcc.targets.emulate.threads import WARP
from mlcc.targets.emulate.trace import BLOCK, BYTES, ITERATION, OFFSET, ROLLED, SITE, THREAD, Trace

SECTOR = 32
BANKS, WORD = 32, 4


@dataclass(frozen=True, slots=True)
class Access:
    """The accesses of one place, in the source or (not `is_in_source`) in lowered code.

    `units` are the sectors (global) or passes (shared) of all requests of the launch, `least` the minimum, `worst` the
    greatest ratio of a single request; `bytes` is the access size of a thread.
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
        """Units per minimum unit: 1 is ideal."""
        return self.units / self.least if self.least else 1.0


def accesses(trace: Trace, checks: Checks) -> list[Access]:
    """Analyze the accesses of a launch, in the order of the kernel's code."""
    by_site = _rows_by_site(trace, len(checks.sites))
    return [
        _access(rows, site)
        for site, rows in zip(checks.sites, by_site, strict=True)
        if len(rows.rows) and site.root is not None
    ]


def touched_bytes(trace: Trace, checks: Checks) -> dict[tir.Var, float]:
    """Return the bytes of global memory in sectors that the accesses of a launch touch at least once, by the memory's
    data. What accesses that were not traced touch is taken to be apart, so that this is an upper bound."""
    touched: dict[tir.Var, list[np.ndarray]] = {}
    weights: dict[tir.Var, list[np.ndarray]] = {}
    for site, part in zip(checks.sites, _rows_by_site(trace, len(checks.sites)), strict=True):
        if len(part.rows) and site.root is not None and site.root.scope == "global":
            offsets, sizes = part.rows[:, OFFSET], part.rows[:, BYTES]
            first, last = offsets // SECTOR, (offsets + sizes - 1) // SECTOR
            touched.setdefault(site.root.data, []).append(np.unique(_expand_ranges(first, first, last)[1]))
            weights.setdefault(site.root.data, []).append(part.weights)
    return {
        data: len(np.unique(np.concatenate(sectors))) * SECTOR * float(np.concatenate(weights[data]).mean())
        for data, sectors in touched.items()
    }


def without_reuse(trace: Trace, checks: Checks) -> Trace:
    """Return the trace without repeated reads of shared memory: those that a thread makes in one iteration of the loops
    that are not unrolled. The compiler keeps their values in registers."""
    if not len(trace.rows) or np.array_equal(trace.rows[:, ITERATION], trace.rows[:, ROLLED]):
        return trace
    roots = np.array([-1 if s.root is None else s.root.number for s in checks.sites])
    is_read = np.array([s.root is not None and s.root.scope != "global" and s.what == "read" for s in checks.sites])
    reads = np.flatnonzero(is_read[trace.rows[:, SITE]])
    rows = trace.rows[reads]
    access = _row_ids((roots[rows[:, SITE]], *(rows[:, n] for n in (BLOCK, THREAD, ROLLED, OFFSET, BYTES))))
    kept = np.ones(len(trace.rows), bool)
    kept[reads] = False
    kept[reads[np.unique(access, return_index=True)[1]]] = True
    return trace.where(kept)


def _rows_by_site(trace: Trace, sites: int) -> list[Trace]:
    order = np.argsort(trace.rows[:, SITE], kind="stable")
    ends = np.cumsum(np.bincount(trace.rows[:, SITE], minlength=sites))
    return [trace.where(part) for part in np.split(order, ends[:-1])] if sites else []


def _access(trace: Trace, site: Site) -> Access:
    assert site.root is not None
    rows = trace.rows
    request, lane = _requests(rows)
    count = int(request.max()) + 1
    weights = np.empty(count)
    weights[request] = trace.weights
    offsets, sizes = rows[:, OFFSET], rows[:, BYTES]
    scope = site.root.scope
    if scope == "global":
        units, least = _sectors(request, offsets, sizes, count)
    else:
        units, least = _passes(request, lane, offsets, sizes, count)
    line, column = site.span.source.line_col(site.span.start)
    text = site.span.source.text[site.span.start : site.span.end].splitlines()
    return Access(
        f"{site.span.source.name}:{line}:{column}", text[0] if text else "", site.root.name, scope, site.what,
        int(sizes.max()), round(weights.sum()), round(weights @ units), round(weights @ least),
        float((units / least).max()),
        site.is_in_source,
    )  # fmt: skip


def _requests(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each row's request, and its lane.

    Several accesses of a thread in one iteration (of an unrolled loop) belong to as many requests.
    """
    thread, key, block = rows[:, THREAD], rows[:, ITERATION], rows[:, BLOCK]
    iteration = _row_ids((block, thread, key))
    order = np.argsort(iteration, kind="stable")
    starts = np.flatnonzero(np.diff(iteration[order], prepend=-1))
    rank = np.empty(len(rows), np.int64)
    lengths = np.diff(np.append(starts, len(rows)))
    rank[order] = np.arange(len(rows)) - np.repeat(starts, lengths)
    return _row_ids((block, thread // WARP, key, rank)), thread % WARP


def _row_ids(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Number the distinct rows of some columns from 0."""
    number: np.ndarray | None = None
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        if number is None:
            number = codes
        else:
            number = np.unique(number * len(values) + codes, return_inverse=True)[1]
    assert number is not None
    return number.astype(np.int64)


def _sectors(request: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    owners, sector = _expand_ranges(request, offsets // SECTOR, (offsets + sizes - 1) // SECTOR)
    touched = _unique_pairs(owners, sector)[0]
    owner, first_rows = _unique_pairs(request, offsets)
    useful = np.bincount(owner, weights=sizes[first_rows], minlength=count)
    return np.bincount(touched, minlength=count), np.maximum(np.ceil(useful / SECTOR), 1).astype(np.int64)


def _passes(
    request: np.ndarray, lane: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    lanes_per_pass = np.maximum(WARP * WORD // np.maximum(sizes, WORD), 1)  # served by one pass
    group = request * WARP + lane // lanes_per_pass
    owners, word = _expand_ranges(group, offsets // WORD, (offsets + sizes - 1) // WORD)
    owner, first_rows = _unique_pairs(owners, word)
    in_bank = _row_ids((owner, word[first_rows] % BANKS))
    bank_owner = np.zeros(int(in_bank.max()) + 1, np.int64)
    bank_owner[in_bank] = owner
    ways = np.bincount(in_bank)
    groups, group_index = np.unique(bank_owner, return_inverse=True)
    max_ways = np.zeros(len(groups), np.int64)
    np.maximum.at(max_ways, group_index, ways)
    return (
        np.bincount(groups // WARP, weights=max_ways, minlength=count).astype(np.int64),
        np.bincount(groups // WARP, minlength=count),
    )


def _expand_ranges(owner: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expand ranges: every number from `first` to `last`, with its owner."""
    counts = last - first + 1
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(owner, counts), np.repeat(first, counts) + np.arange(int(counts.sum())) - starts


def _unique_pairs(owner: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the owner and the index of the first of each set of equal pairs."""
    low = value.min()
    _, first_index = np.unique(owner * (value.max() - low + 1) + (value - low), return_index=True)
    return owner[first_index], first_index
