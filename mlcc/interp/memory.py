"""Memory of the interpreter: storages, views of them by buffers, and the record of their accesses.

A `Storage` is the memory behind a data variable. It records which elements were written, so that reading uninitialized
memory is an error. A `Region` is a part of the execution in which many loop iterations run vectorized: it detects
whether one iteration accessed an element that another one wrote, and can undo all of its writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.interp.arithmetic import stored
from mlcc.interp.strided_views import Steps, StridedWindow
from mlcc.ir.dtypes import DType

Address = Any  # an integer, or an int64 array of them


class Storage:
    """Bytes, and which elements were written (None: all of them). `name` is for messages."""

    __slots__ = ("_typed", "data", "defined", "itemsize", "marks", "name")

    def __init__(self, data: np.ndarray, itemsize: int, defined: np.ndarray | None, name: str) -> None:
        self.data = data  # one-dimensional uint8
        self.itemsize = itemsize
        self.defined = defined
        self.name = name
        self._typed: dict[np.dtype, np.ndarray] = {}
        self.marks: list[tuple[np.ndarray, np.ndarray]] = []  # last writer and reader, per depth of nested regions

    @staticmethod
    def fresh(size: int, dtype: DType, name: str) -> Storage:
        """Return uninitialized memory for `size` elements."""
        kind = stored(dtype)
        count = size * dtype.lanes
        data = np.zeros(count * kind.itemsize, np.uint8)
        return Storage(data, kind.itemsize, np.zeros(count, np.bool_), name)

    @staticmethod
    def of(array: np.ndarray, name: str) -> Storage:
        """The memory of a C-contiguous array, shared with it."""
        return Storage(array.reshape(-1).view(np.uint8), array.dtype.itemsize, None, name)

    def typed(self, kind: np.dtype) -> np.ndarray:
        """The memory as elements of a NumPy type. Another element size ends the record of written elements."""
        typed_data = self._typed.get(kind)
        if typed_data is None:
            if kind.itemsize != self.itemsize:
                self.defined = None
            size = len(self.data) // kind.itemsize * kind.itemsize
            typed_data = self._typed[kind] = self.data[:size].view(kind)
        return typed_data


@dataclass(slots=True)
class Pointer:
    """A value of handle type: a place in memory, in bytes."""

    storage: Storage
    offset: Address = 0


@dataclass(slots=True)
class View:
    """The location of a buffer's elements in memory. `offset` counts elements and may differ between iterations."""

    storage: Storage
    data: np.ndarray
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: Address
    name: str
    narrow: bool  # stored as bit patterns
    steps: Steps | None = None  # steps of `offset` along the axes of vectorized loops, if it is linear


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major array, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


class RegionFault(Exception):
    """An error in a region. Rerunning its iterations serially reports the first one with its place."""


class LoopCarriedDependence(Exception):
    """Iterations of `axis` (an index into the region's axes; None: unknown) depend on one another."""

    def __init__(self, region: VectorizedRegion, axis: int | None) -> None:
        super().__init__()
        self.region = region
        self.axis = axis


@dataclass(slots=True)
class _WindowAccess:
    """One element for each iteration."""

    window: StridedWindow
    sizes: list[int]
    wrote: bool = False


class VectorizedRegion:
    """A set of vectorized iterations. `lanes` numbers them, in a shape that broadcasts with the region's values."""

    _next = 1  # numbers are never reused, so marks left by older regions are ignored

    def __init__(
        self, sizes: tuple[int, ...], outer_dims: int, outer: VectorizedRegion | None, tracked: set[int]
    ) -> None:
        self.sizes = sizes
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.tracked = tracked  # ids of storages that the region may write
        total = 1
        for size in sizes:
            total *= size
        self.base = VectorizedRegion._next
        self.many = self.base + total  # stands for several readers
        VectorizedRegion._next += total + 1
        lanes = np.arange(self.base, self.base + total, dtype=np.int64)
        self.lanes = lanes.reshape(sizes + (1,) * outer_dims)
        self.axes = range(outer_dims, outer_dims + len(sizes))  # counted from the right
        self._log: list[tuple[np.ndarray, Any, Any]] = []  # array, index, overwritten values
        self._windows: dict[int, _WindowAccess] = {}  # storages of which each iteration accessed one element of its own
        self._marked: set[int] = set()

    def read(self, storage: Storage, at: np.ndarray, mask: np.ndarray | None, trailing: int) -> None:
        """Record reads at addresses; a Conflict if another iteration wrote there."""
        if self.outer is not None:
            self.outer.read(storage, at, mask, trailing)
        if id(storage) not in self.tracked:
            return
        writer, reader = self._marks(storage)
        at, lanes = self._flat(at, mask, trailing)
        wrote = writer[at]
        self._check_conflict((wrote >= self.base) & (wrote != lanes), wrote, lanes)
        read = reader[at]
        reader[at] = np.where((read < self.base) | (read == lanes), lanes, self.many)
        shared = reader[at] != lanes
        if shared.any():
            reader[at[shared]] = self.many

    def write(
        self, storage: Storage, typed: np.ndarray, at: np.ndarray, mask: np.ndarray | None, trailing: int
    ) -> None:
        """Record the writes that follow and the overwritten values; Conflict if another iteration used an element."""
        if self.outer is not None:
            self.outer.write(storage, typed, at, mask, trailing)
        if id(storage) not in self.tracked:
            return
        writer, reader = self._marks(storage)
        at, lanes = self._flat(at, mask, trailing)
        wrote, read = writer[at], reader[at]
        self._check_conflict((wrote >= self.base) & (wrote != lanes), wrote, lanes)
        self._check_conflict((read >= self.base) & (read != lanes), read, lanes)
        new = wrote < self.base
        if new.any():
            where = at if new.all() else at[new]
            self._save(storage, typed, where)
        writer[at] = lanes
        again = writer[at]
        self._check_conflict(again != lanes, again, lanes)

    def undo(self) -> None:
        """Restore the values that the region overwrote."""
        for array, at, old in reversed(self._log):
            array[at] = old
        self._log.clear()

    def own(self, storage: Storage, typed: np.ndarray, window: StridedWindow, sizes: list[int], writes: bool) -> bool:
        """Record an access of one element by each iteration; False if addresses must be recorded one by one."""
        if self.outer is not None and not self.outer.own(storage, typed, window, sizes, writes):
            return False
        key = id(storage)
        if key not in self.tracked:
            return True
        access = self._windows.get(key)
        if access is None:
            if key in self._marked or not window.one_to_one(self.axes, sizes):
                return False
            access = self._windows[key] = _WindowAccess(window, list(sizes))
        elif not access.window.same(window) or len(access.sizes) != len(sizes):
            return False
        if writes and not access.wrote:
            access.wrote = True
            self._save(storage, window.of(typed), ..., None if storage.defined is None else window.of(storage.defined))
        return True

    def _save(self, storage: Storage, array: np.ndarray, at: Any, defined: np.ndarray | None = None) -> None:
        """Save the values that are about to be overwritten."""
        self._log.append((array, at, array[at].copy()))
        defined = storage.defined if defined is None else defined
        if defined is not None:
            self._log.append((defined, at, defined[at].copy()))

    def _marks(self, storage: Storage) -> tuple[np.ndarray, np.ndarray]:
        """The last writer and reader of each element, those of windows so far included."""
        marks = self._mark_arrays(storage)
        self._marked.add(id(storage))
        access = self._windows.pop(id(storage), None)
        if access is not None:
            at, lanes = np.broadcast_arrays(access.window.addresses(access.sizes), self.lanes)
            marks[1][at] = lanes
            if access.wrote:
                marks[0][at] = lanes
        return marks

    def _mark_arrays(self, storage: Storage) -> tuple[np.ndarray, np.ndarray]:
        while len(storage.marks) <= self.depth:
            count = len(storage.data) // storage.itemsize
            storage.marks.append((np.zeros(count, np.int64), np.zeros(count, np.int64)))
        return storage.marks[self.depth]

    def _flat(self, at: np.ndarray, mask: np.ndarray | None, trailing: int) -> tuple[np.ndarray, np.ndarray]:
        lanes = self.lanes.reshape(self.lanes.shape + (1,) * trailing)
        if mask is None:
            at, lanes = np.broadcast_arrays(at, lanes)
            return at.ravel(), lanes.ravel()
        at, lanes, mask = np.broadcast_arrays(at, lanes, mask)
        return at[mask], lanes[mask]

    def _check_conflict(self, bad: np.ndarray, others: np.ndarray, lanes: np.ndarray) -> None:
        if not bad.any():
            return
        first = int(np.argmax(bad))
        one, two = int(others[first]) - self.base, int(lanes[first]) - self.base
        total = self.many - self.base
        axis = None
        if one < total:
            pair = zip(np.unravel_index(one, self.sizes), np.unravel_index(two, self.sizes), strict=True)
            differ = [n for n, (a, b) in enumerate(pair) if a != b]
            axis = differ[-1] if differ else None
        raise LoopCarriedDependence(self, axis)
