"""Sorting by many threads: one for each element, as GPUs want it.

Runs of RUN elements are sorted by counting: an element's place is the number of those that come before it. Two runs
become one in the same way, now with a binary search: an element's place is its own in its run, plus that of the first
element of the other run that does not come before it. All orders are stable, and NaN is above all numbers.
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
from mlcc.te.statements import Cells

# An element is compared with all of so many neighbours: what the threads of a warp read lies side by side.
RUN = 32
_MOST = 40  # no row has more than 2**_MOST elements
_STATE, _LOW = 7, 5

Place = Callable[[Any], tuple[Any, ...]]  # the indices of element k of a row


def before(a: Scalar, b: Scalar, descending: bool) -> Any:
    """Return the condition that `a` sorts strictly before `b`. NaN is greater than all numbers and equal to NaN."""
    plain = a > b if descending else a < b
    if not a.dtype.is_float:
        return plain
    above, below = (a, b) if descending else (b, a)
    return te.any(plain, te.all(te.isnan(above), te.logical_not(te.isnan(below))))


class Rows:
    """The rows of a tensor over the axes `gone`, which are taken as one: `outer` are the extents of the others."""

    def __init__(self, x: te.Tensor, gone: Sequence[int]) -> None:
        self.axes = [a for a in range(x.ndim) if a not in gone]
        self.gone = [a for a in range(x.ndim) if a in gone]
        self.shape = x.shape
        self.count = Scalar(product([construct.cast(INT64, x.buffer.shape[a]) for a in self.axes]))
        self.extent = Scalar(product([construct.cast(INT64, x.buffer.shape[a]) for a in self.gone]))

    def at(self, row: Any, k: Any) -> tuple[Any, ...]:
        """The indices of element k of a row."""
        indices = self._split(row, self.axes) | self._split(k, self.gone)
        return tuple(indices[a] for a in range(len(self.shape)))

    def outer(self, row: Any, keep: bool) -> tuple[Any, ...]:
        """The indices of a row's one result: 0 along the axes that are gone, if those are kept."""
        indices = self._split(row, self.axes)
        return tuple(indices.get(a, 0) for a in range(len(self.shape)) if keep or a in indices)

    def _split(self, flat: Any, axes: Sequence[int]) -> dict[int, Any]:
        indices: dict[int, Any] = {}
        for number, axis in enumerate(reversed(axes)):
            last = number == len(axes) - 1
            indices[axis] = flat if last else flat % self.shape[axis]
            flat = flat // self.shape[axis]
        return indices


class Order:
    """The statements that sort rows of `extent` elements in scratch memory, with their places if wanted."""

    def __init__(self, rows: Any, extent: Any, dtype: DType, descending: bool, places: bool) -> None:
        self.rows, self.extent = rows, extent
        self.descending = descending
        known = tir.const_int(self.extent.expr)
        place = INT32 if known is not None and known < 1 << 31 else INT64
        self.keys = code.scratch("keys", (2, self.rows, self.extent), dtype)
        self.places = code.scratch("places", (2, self.rows, self.extent), place) if places else None
        # What a thread knows, in memory of its own, so that it is computed once: in a merge its row, its place there,
        # where the run starts, where its neighbour does, where that ends, and what is left of a search.
        self.rank = code.scratch("rank", (1,), scope="local")
        self.states = [code.scratch(f"state_{half}", (_STATE,), scope="local") for half in (0, 1)]

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        cells = [self.keys, self.rank, *self.states, *([self.places] if self.places else [])]
        return tuple(c.buffer for c in cells)

    def each(self, body: Callable[[Scalar, Scalar], Any]) -> Any:
        """`body(row, k)` by a thread for each element."""
        if tir.const_int(self.rows.expr) == 1:
            return code.threads(self.extent, lambda i: body(Scalar(int64(0)), i))
        return code.threads(self.rows * self.extent, lambda i: body(i // self.extent, i % self.extent))

    def sort(self, value: Callable[[Scalar, Scalar], Scalar]) -> Any:
        """Sort the rows of `value(row, k)`: the result is `key` and `place`."""
        known = tir.const_int(self.extent.expr)
        most = 1 << _MOST if known is None else known
        times = next(n for n in range(_MOST) if RUN << (2 * n) >= most)
        merges = code.loop(times, self._twice, "merge") if times else ()
        return self.each(lambda row, k: self._count(value, row, k)), merges

    def key(self, row: Any, k: Any) -> Scalar:
        return self.keys[0, row, k]

    def place(self, row: Any, k: Any) -> Scalar:
        assert self.places is not None
        return self.places[0, row, k]

    def _put(self, half: Any, row: Any, to: Any, key: Scalar, place: Any) -> Any:
        stores = [self.keys.set(key, half, row, to)]
        return [*stores, self.places.set(place.astype(self.places.dtype), half, row, to)] if self.places else stores

    def _count(self, value: Callable[[Scalar, Scalar], Scalar], row: Scalar, k: Scalar) -> Any:
        start = k // RUN * RUN

        def compare(j: Scalar) -> Any:
            other, mine = value(row, start + j), value(row, k)
            first = before(other, mine, self.descending)
            level = te.logical_not(before(mine, other, self.descending))
            precedes = te.any(first, te.all(start + j < k, level))
            return code.when(precedes, self.rank.set(self.rank[0] + 1, 0))

        size = te.min(Scalar(int64(RUN)), self.extent - start)
        return (
            self.rank.set(0, 0),
            code.loop(size, compare, "j"),
            self._put(0, row, start + self.rank[0], value(row, k), k),
        )

    def _twice(self, number: Scalar) -> Any:
        """Two merges, so that the result is where the start was; the second one may have nothing to do."""
        width = Scalar(int64(RUN)) << (number * 2)

        def merge(half: int) -> Any:
            return self.each(lambda row, k: self._merge(width << half, half, row, k))

        passes = [merge(0), merge(1)]
        return passes if tir.const_int(self.extent.expr) is not None else code.when(width < self.extent, passes)

    def _merge(self, width: Any, half: int, row: Scalar, k: Scalar) -> Any:
        """Merge step: store element k of a run at its position in the run merged from this one and its neighbour."""
        at = self.states[half]
        here, place, start, middle, end, low, high = (at[n] for n in range(_STATE))
        between = (low + high) // 2
        mine, other = self.keys[half, here, place], self.keys[half, here, between]

        def search(first: Any, last: Any, precedes: Any) -> Any:
            step = code.when(precedes, at.set(between + 1, _LOW), at.set(between, _LOW + 1))
            return at.set(first, _LOW), at.set(last, _LOW + 1), code.repeat(low < high, step)

        known = (row, k, k - k % (width * 2), te.min(start + width, self.extent), te.min(middle + width, self.extent))
        level = te.logical_not(before(mine, other, self.descending))  # of equal ones the left run's come first
        left = search(middle, end, before(other, mine, self.descending))
        old = self.places[half, here, place] if self.places else place
        return (
            [at.set(value, number) for number, value in enumerate(known)],
            code.when(place < middle, left, search(start, middle, level)),
            self._put(1 - half, here, place + low - middle, mine, old),
        )


# ---------------------------------------------------------------- operators


def sort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return _ordered(call, x, "T_sort", x.dtype, False)


def argsort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return _ordered(call, x, "T_argsort", DType.of(call.attrs["dtype"]), True)


def _ordered(call: relax.Call, x: te.Tensor, name: str, dtype: DType, places: bool) -> te.Tensor:
    rows = Rows(x, [call.attrs["axis"] % x.ndim])
    order = Order(rows.count, rows.extent, x.dtype, call.attrs["descending"], places)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = Cells(ins[0]), Cells(outs[0])

        def store(row: Scalar, k: Scalar) -> Any:
            value = order.place(row, k) if places else order.key(row, k)
            return out.set(value.astype(dtype), *rows.at(row, k))

        return order.sort(lambda row, k: data[rows.at(row, k)]), order.each(store)

    return te.extern(x.buffer.shape, [x], body, name, dtype, scratch=order.buffers)  # type: ignore[no-any-return]


def topk(call: relax.Call, x: te.Tensor) -> Any:
    """The first of all in order; -1 and 0 where there are fewer than wanted."""
    at, kind = call.attrs["axis"] % x.ndim, call.attrs["ret_type"]
    info = call.struct_info.fields[0] if kind == "both" else call.struct_info  # type: ignore[union-attr]
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
    wanted = Scalar(construct.cast(INT64, info.dims[at]))
    rows = Rows(x, [at])
    order = Order(rows.count, rows.extent, x.dtype, call.attrs["largest"], kind != "values")
    place = DType.of(call.attrs["dtype"])
    parts = [x.dtype] if kind != "indices" else []
    parts += [place] if kind != "values" else []

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = Cells(ins[0]), [Cells(b) for b in outs]

        def store(i: Scalar) -> Any:
            row, j = i // wanted, i % wanted
            values = [order.key(row, j)] if kind != "indices" else []
            values += [order.place(row, j).astype(place)] if kind != "values" else []
            lacking = [construct.const(0, x.dtype), construct.const(-1, place)][kind == "indices" :]
            where = rows.at(row, j)
            there = [o.set(v, *where) for o, v in zip(cells, values, strict=True)]
            return code.when(j < rows.extent, there, [o.set(v, *where) for o, v in zip(cells, lacking, strict=False)])

        load = order.sort(lambda row, k: data[rows.at(row, k)])
        return load, code.threads(rows.count * wanted, store)

    results = te.extern([info.dims] * len(parts), [x], body, "T_topk", parts, scratch=order.buffers)
    return results if kind == "both" else results[0]


def median(call: relax.Call, x: te.Tensor) -> Any:
    """Return the median, the lower of two middle elements; NaN (or 0) at index -1 for an empty row."""
    given, keep = call.attrs["axis"], call.attrs["keepdims"]
    gone = list(range(x.ndim)) if given is None else [a % x.ndim for a in given]
    single = given is not None and len(given) == 1
    rows = Rows(x, gone)
    order = Order(rows.count, rows.extent, x.dtype, False, single)
    dims = tuple(int64(1) if a in gone else d for a, d in enumerate(x.buffer.shape) if keep or a not in gone)
    nothing = [construct.const(float("nan") if x.dtype.is_float else 0, x.dtype), construct.const(-1, INT64)]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = Cells(ins[0]), [Cells(b) for b in outs]
        middle = (rows.extent - 1) // 2

        def store(row: Scalar) -> Any:
            values = [order.key(row, middle), *([order.place(row, middle).astype(INT64)] if single else [])]
            where = rows.outer(row, keep)
            there = [o.set(v, *where) for o, v in zip(cells, values, strict=True)]
            return code.when(rows.extent > 0, there, [o.set(v, *where) for o, v in zip(cells, nothing, strict=False)])

        return order.sort(lambda row, k: data[rows.at(row, k)]), code.threads(rows.count, store)

    if single:
        return te.extern([dims] * 2, [x], body, "T_median", [x.dtype, INT64], scratch=order.buffers)
    return te.extern(dims, [x], body, "T_median", x.dtype, scratch=order.buffers)
