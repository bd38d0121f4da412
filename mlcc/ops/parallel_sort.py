"""Parallel merge sort with one thread per element, for GPUs.

Runs of RUN elements are sorted by rank: an element's position is the number of elements that sort before it. Two runs
are merged in the same way by binary search: an element's position is that in its own run, plus the number of elements
of the other run that sort before it. The sort is stable, and NaN is greater than all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ops.shapes import int64, product
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements

# The length of the runs sorted by rank; the elements that a warp compares are contiguous.
RUN = 32
_LOG2_MAX_ELEMENTS = 40  # no row has more than 2**_MOST elements
_STATE, _LOW = 7, 5

Place = Callable[[Any], tuple[Any, ...]]  # the indices of element k of a row


def sorts_before(a: Scalar, b: Scalar, descending: bool) -> Any:
    """Return the condition that `a` sorts strictly before `b`. NaN is greater than all numbers and equal to NaN."""
    plain = a > b if descending else a < b
    if not a.dtype.is_float:
        return plain
    above, below = (a, b) if descending else (b, a)
    return te.any(plain, te.all(te.isnan(above), te.logical_not(te.isnan(below))))


class Rows:
    """The rows of a tensor along `reduced_axes`, which are flattened to one axis."""

    def __init__(self, x: te.Tensor, reduced_axes: Sequence[int]) -> None:
        self.axes = [a for a in range(x.ndim) if a not in reduced_axes]
        self.reduced_axes = [a for a in range(x.ndim) if a in reduced_axes]
        self.shape = x.shape
        self.count = Scalar(product([construct.cast(INT64, x.buffer.shape[a]) for a in self.axes]))
        self.extent = Scalar(product([construct.cast(INT64, x.buffer.shape[a]) for a in self.reduced_axes]))

    def at(self, row: Any, k: Any) -> tuple[Any, ...]:
        """The indices of element k of a row."""
        indices = self._split(row, self.axes) | self._split(k, self.reduced_axes)
        return tuple(indices[a] for a in range(len(self.shape)))

    def outer(self, row: Any, keep: bool) -> tuple[Any, ...]:
        """The indices of a row's single result: 0 along the reduced axes if they are kept."""
        indices = self._split(row, self.axes)
        return tuple(indices.get(a, 0) for a in range(len(self.shape)) if keep or a in indices)

    def _split(self, flat: Any, axes: Sequence[int]) -> dict[int, Any]:
        indices: dict[int, Any] = {}
        for number, axis in enumerate(reversed(axes)):
            last = number == len(axes) - 1
            indices[axis] = flat if last else flat % self.shape[axis]
            flat = flat // self.shape[axis]
        return indices


class ParallelSort:
    """Emit statements that sort rows of `extent` elements in scratch memory, with their indices on request."""

    def __init__(self, rows: Any, extent: Any, dtype: DType, descending: bool, places: bool) -> None:
        self.rows, self.extent = rows, extent
        self.descending = descending
        known = tir.const_int(self.extent.expr)
        place = INT32 if known is not None and known < 1 << 31 else INT64
        self.keys = code.scratch("keys", (2, self.rows, self.extent), dtype)
        self.places = code.scratch("places", (2, self.rows, self.extent), place) if places else None
        # Values that a thread computes once and keeps in local memory: in a merge its row, its position there, the
        # start of its run, the start and end of the neighbouring run, and the bounds of the binary search.
        self.rank = code.scratch("rank", (1,), scope="local")
        self.states = [code.scratch(f"state_{half}", (_STATE,), scope="local") for half in (0, 1)]

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        cells = [self.keys, self.rank, *self.states, *([self.places] if self.places else [])]
        return tuple(c.buffer for c in cells)

    def each(self, body: Callable[[Scalar, Scalar], Any]) -> Any:
        """Emit `body(row, k)` with one thread per element."""
        if tir.const_int(self.rows.expr) == 1:
            return code.thread_loop(self.extent, lambda i: body(Scalar(int64(0)), i))
        return code.thread_loop(self.rows * self.extent, lambda i: body(i // self.extent, i % self.extent))

    def sort(self, value: Callable[[Scalar, Scalar], Scalar]) -> Any:
        """Sort the rows of `value(row, k)`; `key` and `place` read the result."""
        known = tir.const_int(self.extent.expr)
        max_extent = 1 << _LOG2_MAX_ELEMENTS if known is None else known
        merge_pairs = next(n for n in range(_LOG2_MAX_ELEMENTS) if RUN << (2 * n) >= max_extent)
        merges = code.loop(merge_pairs, self._merge_twice, "merge") if merge_pairs else ()
        return self.each(lambda row, k: self._sort_run(value, row, k)), merges

    def key(self, row: Any, k: Any) -> Scalar:
        return self.keys[0, row, k]

    def place(self, row: Any, k: Any) -> Scalar:
        assert self.places is not None
        return self.places[0, row, k]

    def _store(self, half: Any, row: Any, to: Any, key: Scalar, place: Any) -> Any:
        stores = [self.keys.set(key, half, row, to)]
        return [*stores, self.places.set(place.astype(self.places.dtype), half, row, to)] if self.places else stores

    def _sort_run(self, value: Callable[[Scalar, Scalar], Scalar], row: Scalar, k: Scalar) -> Any:
        start = k // RUN * RUN

        def compare(j: Scalar) -> Any:
            other, mine = value(row, start + j), value(row, k)
            first = sorts_before(other, mine, self.descending)
            level = te.logical_not(sorts_before(mine, other, self.descending))
            precedes = te.any(first, te.all(start + j < k, level))
            return code.if_then(precedes, self.rank.set(self.rank[0] + 1, 0))

        size = te.min(Scalar(int64(RUN)), self.extent - start)
        return (
            self.rank.set(0, 0),
            code.loop(size, compare, "j"),
            self._store(0, row, start + self.rank[0], value(row, k), k),
        )

    def _merge_twice(self, number: Scalar) -> Any:
        """Merge twice, so that the result is in the same half as the input; the second merge may copy only."""
        width = Scalar(int64(RUN)) << (number * 2)

        def merge(half: int) -> Any:
            return self.each(lambda row, k: self._merge(width << half, half, row, k))

        passes = [merge(0), merge(1)]
        return passes if tir.const_int(self.extent.expr) is not None else code.if_then(width < self.extent, passes)

    def _merge(self, width: Any, half: int, row: Scalar, k: Scalar) -> Any:
        """Merge step: store element k of a run at its position in the run merged from this one and its neighbour."""
        at = self.states[half]
        here, place, start, middle, end, low, high = (at[n] for n in range(_STATE))
        between = (low + high) // 2
        mine, other = self.keys[half, here, place], self.keys[half, here, between]

        def search(first: Any, last: Any, precedes: Any) -> Any:
            step = code.if_then(precedes, at.set(between + 1, _LOW), at.set(between, _LOW + 1))
            return at.set(first, _LOW), at.set(last, _LOW + 1), code.while_loop(low < high, step)

        known = (row, k, k - k % (width * 2), te.min(start + width, self.extent), te.min(middle + width, self.extent))
        level = te.logical_not(
            sorts_before(mine, other, self.descending)
        )  # stable: of equal elements, those of the left run come first
        left = search(middle, end, sorts_before(other, mine, self.descending))
        old = self.places[half, here, place] if self.places else place
        return (
            [at.set(value, number) for number, value in enumerate(known)],
            code.if_then(place < middle, left, search(start, middle, level)),
            self._store(1 - half, here, place + low - middle, mine, old),
        )


# ---------------------------------------------------------------- operators


def sort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return _sort_rows(call, x, "T_sort", x.dtype, False)


def argsort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return _sort_rows(call, x, "T_argsort", DType.of(call.attrs["dtype"]), True)


def _sort_rows(call: relax.Call, x: te.Tensor, name: str, dtype: DType, places: bool) -> te.Tensor:
    rows = Rows(x, [call.attrs["axis"] % x.ndim])
    order = ParallelSort(rows.count, rows.extent, x.dtype, call.attrs["descending"], places)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def store(row: Scalar, k: Scalar) -> Any:
            value = order.place(row, k) if places else order.key(row, k)
            return out.set(value.astype(dtype), *rows.at(row, k))

        return order.sort(lambda row, k: data[rows.at(row, k)]), order.each(store)

    return te.extern(x.buffer.shape, [x], body, name, dtype, scratch=order.buffers)  # type: ignore[no-any-return]


def topk(call: relax.Call, x: te.Tensor) -> Any:
    """The first k of the sorted elements; missing ones are 0 with index -1."""
    at, kind = call.attrs["axis"] % x.ndim, call.attrs["ret_type"]
    info = call.struct_info.fields[0] if kind == "both" else call.struct_info  # type: ignore[union-attr]
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
    wanted = Scalar(construct.cast(INT64, info.dims[at]))
    rows = Rows(x, [at])
    order = ParallelSort(rows.count, rows.extent, x.dtype, call.attrs["largest"], kind != "values")
    place = DType.of(call.attrs["dtype"])
    parts = [x.dtype] if kind != "indices" else []
    parts += [place] if kind != "values" else []

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = BufferElements(ins[0]), [BufferElements(b) for b in outs]

        def store(i: Scalar) -> Any:
            row, j = i // wanted, i % wanted
            values = [order.key(row, j)] if kind != "indices" else []
            values += [order.place(row, j).astype(place)] if kind != "values" else []
            lacking = [construct.const(0, x.dtype), construct.const(-1, place)][kind == "indices" :]
            where = rows.at(row, j)
            there = [o.set(v, *where) for o, v in zip(cells, values, strict=True)]
            return code.if_then(
                j < rows.extent, there, [o.set(v, *where) for o, v in zip(cells, lacking, strict=False)]
            )

        load = order.sort(lambda row, k: data[rows.at(row, k)])
        return load, code.thread_loop(rows.count * wanted, store)

    results = te.extern([info.dims] * len(parts), [x], body, "T_topk", parts, scratch=order.buffers)
    return results if kind == "both" else results[0]


def median(call: relax.Call, x: te.Tensor) -> Any:
    """Return the median, the lower of two middle elements; NaN (or 0) at index -1 for an empty row."""
    given, keep = call.attrs["axis"], call.attrs["keepdims"]
    reduced_axes = list(range(x.ndim)) if given is None else [a % x.ndim for a in given]
    single = given is not None and len(given) == 1
    rows = Rows(x, reduced_axes)
    order = ParallelSort(rows.count, rows.extent, x.dtype, False, single)
    dims = tuple(
        int64(1) if a in reduced_axes else d for a, d in enumerate(x.buffer.shape) if keep or a not in reduced_axes
    )
    nothing = [construct.const(float("nan") if x.dtype.is_float else 0, x.dtype), construct.const(-1, INT64)]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = BufferElements(ins[0]), [BufferElements(b) for b in outs]
        middle = (rows.extent - 1) // 2

        def store(row: Scalar) -> Any:
            values = [order.key(row, middle), *([order.place(row, middle).astype(INT64)] if single else [])]
            where = rows.outer(row, keep)
            there = [o.set(v, *where) for o, v in zip(cells, values, strict=True)]
            return code.if_then(
                rows.extent > 0, there, [o.set(v, *where) for o, v in zip(cells, nothing, strict=False)]
            )

        return order.sort(lambda row, k: data[rows.at(row, k)]), code.thread_loop(rows.count, store)

    if single:
        return te.extern([dims] * 2, [x], body, "T_median", [x.dtype, INT64], scratch=order.buffers)
    return te.extern(dims, [x], body, "T_median", x.dtype, scratch=order.buffers)
