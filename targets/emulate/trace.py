"""The trace of a launch: memory accesses of some of its blocks, thinned to a bounded number, and how many each
stands for.

Kernels append a row per access, and count the accesses of each site exactly. When the rows are full, the sites with
most of them are thinned: half of their rows are dropped, by a hash of the block, the warp and the iteration of the
loops that are not unrolled, so that the threads of a warp are kept or dropped together.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from mlcc.targets.emulate import checks
from mlcc.targets.emulate.threads import WARP

# columns of a row
SITE, THREAD, ITERATION, OFFSET, BYTES, BLOCK, ROLLED = range(7)
_COLUMNS = 7
_LEAST_LIMIT = 1 << 44  # one of a million
_COMPACT = ctypes.CFUNCTYPE(None)


@dataclass(frozen=True, slots=True, eq=False)
class BlockSample:
    """Blocks that run in place of all blocks of a launch: linear numbers, x first, and how many blocks each stands
    for."""

    numbers: np.ndarray
    weights: np.ndarray

    @staticmethod
    def all(count: int) -> BlockSample:
        """Return all blocks of a launch."""
        return BlockSample(np.arange(count, dtype=np.int64), np.ones(count))


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Rows of accesses, and for each the number of accesses of the launch that it stands for.

    A row has the site, the thread in the block, the iteration of the enclosing loops, the offset and size in bytes,
    the block, and the iteration of the loops that are not unrolled. `is_exact`: all accesses of all blocks are there.
    """

    rows: np.ndarray
    weights: np.ndarray
    is_exact: bool = True

    def where(self, mask: np.ndarray) -> Trace:
        """Return the rows that a boolean or index array selects."""
        return Trace(self.rows[mask], self.weights[mask], self.is_exact)


@dataclass(slots=True, eq=False)
class TraceBuffer:
    """Memory that a kernel traces into: at most `room` rows, and counts by class of blocks and by site.

    A class has the blocks of one weight. `limits` are the greatest hashes that are kept, by site.
    """

    room: int
    sites: int
    sample: BlockSample
    rows: np.ndarray = field(init=False)
    counts: np.ndarray = field(init=False)
    limits: np.ndarray = field(init=False)
    classes: np.ndarray = field(init=False)
    _class_weights: np.ndarray = field(init=False)
    _words: np.ndarray = field(init=False)
    _callback: object = field(init=False)

    def __post_init__(self) -> None:
        self.rows = np.empty((self.room, _COLUMNS), np.int64)
        self.limits = np.full(max(self.sites, 1), np.iinfo(np.uint64).max, np.uint64)
        self._class_weights, classes = np.unique(self.sample.weights, return_inverse=True)
        self.classes = classes.astype(np.int64)
        self.counts = np.zeros((len(self._class_weights), max(self.sites, 1)), np.int64)

    def attach(self, words: np.ndarray) -> None:
        """Fill in the report words of a launch; they and this object have to outlive it."""
        self._words = words
        words[checks.TRACE], words[checks.ROOM], words[checks.USED] = self.rows.ctypes.data, self.room, 0
        words[checks.COUNTS], words[checks.CLASSES] = self.counts.ctypes.data, self.classes.ctypes.data
        words[checks.LIMITS] = self.limits.ctypes.data
        callback = _COMPACT(self._compact)
        words[checks.COMPACT], self._callback = ctypes.cast(callback, ctypes.c_void_p).value or 0, callback

    def _compact(self) -> None:
        """Thin the rows to half of the room; if that is impossible, ask not to be called again."""
        kept = self.rows[: self._words[checks.USED]]
        final = np.zeros(len(self.limits), bool)  # sites that would be left without rows, or lose none any more
        while len(kept) > self.room // 2:
            per_site = np.bincount(kept[:, SITE], minlength=len(self.limits))
            thinned = (per_site > self.room // (4 * np.count_nonzero(per_site))) & ~final
            if not thinned.any():
                self._words[checks.COMPACT] = 0
                return
            limits = np.where(thinned, self.limits >> np.uint64(1), self.limits)
            stays = _hashes(kept) <= limits[kept[:, SITE]]
            left = np.bincount(kept[stays, SITE], minlength=len(limits))
            final |= thinned & ((left == 0) | (limits < _LEAST_LIMIT))
            self.limits[~final] = limits[~final]
            kept = kept[stays | final[kept[:, SITE]]]
        self.rows[: len(kept)] = kept
        self._words[checks.USED] = len(kept)

    def trace(self) -> Trace:
        """Return the trace after the launch."""
        rows = self.rows[: self._words[checks.USED]]
        by_block = np.argsort(self.sample.numbers)
        place = by_block[np.searchsorted(self.sample.numbers, rows[:, BLOCK], sorter=by_block)]
        kind, site = self.classes[place], rows[:, SITE]
        recorded = np.zeros(self.counts.shape, np.int64)
        np.add.at(recorded, (kind, site), 1)
        wanted = self.counts * self._class_weights[:, None]
        # classes whose rows were all dropped are represented by the others
        represented = np.where(recorded > 0, wanted, 0).sum(axis=0)
        scale = wanted.sum(axis=0) / np.maximum(represented, 1)
        weights = (wanted / np.maximum(recorded, 1) * scale)[kind, site]
        return Trace(rows, weights, bool(np.all(weights == 1)))


def _hashes(rows: np.ndarray) -> np.ndarray:
    """Return the hash that `mlcc_emulate_trace` compares with the limit of a site."""
    block, warp, iteration = (
        column.astype(np.uint64) for column in (rows[:, BLOCK], rows[:, THREAD] // WARP, rows[:, ROLLED])
    )
    of_block, of_warp, of_all = map(np.uint64, (checks.BLOCK_FACTOR, checks.WARP_FACTOR, checks.HASH_FACTOR))
    hashes: np.ndarray = (iteration + block * of_block + warp * of_warp) * of_all
    return hashes
