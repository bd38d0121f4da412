"""Sorting: stable, NaN above all numbers, along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ops import parallel_sort
from mlcc.ops.lane_sort import BLOCK, MAX_LENGTH, LaneSort, lanes_of
from mlcc.ops.lazy import np
from mlcc.ops.ordered_bits import has_ordered_bits
from mlcc.ops.parallel_sort import sorts_before
from mlcc.ops.radix_sort import RadixSort
from mlcc.ops.reduce import reduced_info
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, axis, fail, int64, product, result, tensor, tensor_like
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements

# The largest k of a top-k that inserts into a sorted list; beyond, the whole row is sorted.
MAX_INSERTED = 16
# The length of runs that are sorted by insertion before they are merged.
RUN = 16
# The least length of rows that are sorted by their digits.
MIN_RADIX = 64

# ---------------------------------------------------------------- inference


def _along(call: relax.Call, data: Tensor) -> int | None:
    return None if data.ndim < 0 else axis(call, call.attrs["axis"], data.ndim)


def infer_sort(call: relax.Call) -> Tensor:
    """The tensor's own shape and dtype."""
    data = tensor(call, 0)
    _along(call, data)
    return data


def infer_argsort(call: relax.Call) -> Tensor:
    """The tensor's shape, in the dtype that `dtype` names."""
    data = tensor(call, 0)
    _along(call, data)
    return tensor_like(data, _index_dtype(call))


def _index_dtype(call: relax.Call) -> DType:
    dtype = DType.of(call.attrs["dtype"])
    if not (dtype.is_int or dtype.is_float) or dtype.is_bool:
        fail(call, "E0444", f"indices cannot have the dtype {dtype}")
    return dtype


def infer_topk(call: relax.Call) -> relax.StructInfo:
    """Infer k values and their indices, or one of both; all elements for k < 1."""
    data, k, kind = tensor(call, 0), call.attrs["k"], call.attrs["ret_type"]
    if kind not in ("both", "values", "indices"):
        fail(call, "E0442", f"`ret_type` must be both, values or indices, it is `{kind}`")
    at, places = _along(call, data), _index_dtype(call)
    if at is None or data.dims is None:
        infos = [result(None, d, data.ndim, data.vdevice) for d in (data.dtype, places)]
    else:
        dims = list(data.dims)
        extent = tir.const_int(dims[at])
        if k > 0 and (extent is None or k < extent):
            dims[at] = int64(k)
        infos = [result(dims, d, vdevice=data.vdevice) for d in (data.dtype, places)]
    if kind == "both":
        return relax.TupleStructInfo(tuple(infos))
    return infos[0 if kind == "values" else 1]


def infer_median(call: relax.Call) -> relax.StructInfo:
    """Infer as for a reduction; over a single axis, also the index of the median."""
    data = tensor(call, 0)
    values = reduced_info(call, data, call.attrs["axis"], data.dtype)
    if call.attrs["axis"] is None or len(call.attrs["axis"]) != 1:
        return values
    return relax.TupleStructInfo((values, tensor_like(values, INT64)))


# ---------------------------------------------------------------- lowering


class RowSort:
    """Emit statements that sort one row of `count` elements in scratch memory: keys, and their indices on request.

    Merge sort of few elements, radix sort of many, double-buffered: `half[0]` is the half with the result.
    """

    def __init__(self, count: Any, dtype: DType, descending: bool, places: bool) -> None:
        self.count = count
        self.descending = descending
        self.keys = code.scratch("keys", (2, count), dtype)
        self.places = code.scratch("places", (2, count)) if places else None
        names = ("half", "width", "left", "right", "to", "place")
        cells = [code.scratch(n, (1,), scope="local") for n in names]
        self.half, self.width, self.left, self.right, self.to, self.place = cells
        self.key = code.scratch("key", (1,), dtype, "local")
        self._rows = [self.keys, *([self.places] if self.places else [])]
        self._cells = [*self._rows, *cells, self.key]
        self._radix: RadixSort | None = None
        self._static = tir.const_int(to_expr(count))
        if has_ordered_bits(dtype) and (self._static is None or self._static >= MIN_RADIX):
            self._radix = RadixSort(count, self._rows, self.half, descending)
            self._cells += self._radix.cells

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        return tuple(c.buffer for c in self._cells)

    def load(self, value: Callable[[Scalar], Scalar]) -> Any:
        """Fill the row."""

        def one(k: Scalar) -> Any:
            return self.keys.set(value(k), 0, k), self.places.set(k, 0, k) if self.places else ()

        return code.loop(self.count, one, "k")

    def sort(self) -> Any:
        """Sort few elements by merging, many by their digits."""
        if self._radix is None:
            return self._merge_sort()
        if self._static is not None:
            return self._radix.sort()
        return code.if_then(self.count < MIN_RADIX, self._merge_sort(), self._radix.sort())

    def _merge_sort(self) -> Any:
        """Sort runs by insertion, then merge neighbouring runs until one is left."""
        runs = (self.count + (RUN - 1)) // RUN
        merge = [self._merge(), self.half.set(1 - self.half[0], 0), self.width.set(self.width[0] * 2, 0)]
        return (
            code.loop(runs, lambda r: self._insertion(r * RUN), "run"),
            self.half.set(0, 0),
            self.width.set(RUN, 0),
            code.while_loop(self.width[0] < self.count, merge),
        )

    def _insertion(self, low: Scalar) -> Any:
        """Sort the run from `low` on in place."""
        size = te.min(Scalar(construct.const(RUN, INT64)), self.count - low)

        def insert(offset: Scalar) -> Any:
            at = low + offset
            take = [self.key.set(self.keys[0, at], 0)]
            take += [self.place.set(self.places[0, at], 0)] if self.places else []
            return take, self.to.set(at, 0), self.shift(low)

        return code.loop(size - 1, lambda i: insert(i + 1), "i")

    def shift(self, low: Any) -> Any:
        """Insert the current key into the sorted elements from `low` to the free position `to`."""
        free = self.to[0]
        behind = sorts_before(self.key[0], self.keys[0, free - 1], self.descending)
        on = te.all(free > low, te.if_then_else(free > low, behind, te.const(False, "bool")))
        move = [self.keys.set(self.keys[0, free - 1], 0, free)]
        put = [self.keys.set(self.key[0], 0, free)]
        if self.places:
            move += [self.places.set(self.places[0, free - 1], 0, free)]
            put += [self.places.set(self.place[0], 0, free)]
        return code.while_loop(on, [*move, self.to.set(free - 1, 0)]), put

    def _merge(self) -> Any:
        """Merge pairs of neighbouring runs of `width` into the other half."""
        width = self.width[0]

        def pair(number: Scalar) -> Any:
            low = number * width * 2
            middle, high = te.min(low + width, self.count), te.min(low + width * 2, self.count)
            return self.left.set(low, 0), self.right.set(middle, 0), code.loop(high - low, step(low, middle, high), "o")

        def step(low: Scalar, middle: Scalar, high: Scalar) -> Callable[[Scalar], Any]:
            def one(offset: Scalar) -> Any:
                source, left, right = self.half[0], self.left[0], self.right[0]
                overtakes = sorts_before(self.keys[source, right], self.keys[source, left], self.descending)
                rest = te.if_then_else(left >= middle, te.const(True, "bool"), overtakes)
                from_right = te.if_then_else(right < high, rest, te.const(False, "bool"))
                return code.if_then(from_right, take(self.right, low + offset), take(self.left, low + offset))

            return one

        def take(cursor: BufferElements, to: Scalar) -> list[Any]:
            source, at = self.half[0], cursor[0]
            stores = [self.keys.set(self.keys[source, at], 1 - source, to)]
            if self.places:
                stores.append(self.places.set(self.places[source, at], 1 - source, to))
            return [*stores, cursor.set(at + 1, 0)]

        return code.loop((self.count + (width * 2 - 1)) // (width * 2), pair, "pair")

    def sorted_key(self, k: Any) -> Scalar:
        return self.keys[self.half[0], k]

    def sorted_place(self, k: Any) -> Scalar:
        assert self.places is not None
        return self.places[self.half[0], k]


def _for_each_row(x: te.Tensor, at: int, body: Callable[[Callable[[Any], tuple[Any, ...]]], Any]) -> Any:
    """Emit `body(place)` for every row along an axis; `place(k)` returns the indices of its element k."""

    def row(*i: Scalar) -> Any:
        return body(lambda k: (*i[:at], k, *i[at:]))

    return code.grid([d for a, d in enumerate(x.shape) if a != at], row, "i")


def _lower_sort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    at = call.attrs["axis"] % x.ndim
    row = RowSort(x.shape[at], x.dtype, call.attrs["descending"], False)
    batch_axis = _batch_axis(x, at)
    lanes = None
    if batch_axis is not None:
        lanes = LaneSort(int(x.shape[at]), x.dtype, call.attrs["descending"])

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def one(place: Any) -> Any:
            store = code.loop(x.shape[at], lambda k: out.set(row.sorted_key(k), *place(k)), "k")
            return row.load(lambda k: data[place(k)]), row.sort(), store

        if lanes is None or batch_axis is None:
            return _for_each_row(x, at, one)
        return _for_each_batch(x, at, batch_axis, lanes, data, out, one)

    scratch = (*row.buffers, *(lanes.buffers if lanes else ()))
    return te.extern(x.buffer.shape, [x], body, "T_sort", x.dtype, scratch=scratch)  # type: ignore[no-any-return]


def _batch_axis(x: te.Tensor, at: int) -> int | None:
    """Return the axis along which rows are sorted side by side in lanes; None where that does not pay."""
    count = tir.const_int(x.buffer.shape[at])
    if count is None or not BLOCK <= count <= MAX_LENGTH or not has_ordered_bits(x.dtype):
        return None
    others = {a: tir.const_int(d) or 0 for a, d in enumerate(x.buffer.shape) if a != at}
    longest = max(others, key=lambda a: others[a], default=None)
    return longest if longest is not None and others[longest] >= lanes_of(x.dtype) else None


def _for_each_batch(
    x: te.Tensor, at: int, along: int, lanes: LaneSort, data: BufferElements, out: BufferElements,
    sort_row: Callable[[Any], Any],
) -> Any:  # fmt: skip
    """Sort rows in batches; the last one overlaps the one before. Rows with special values are sorted one by one."""
    rows, width = int(x.shape[along]), lanes.lanes
    apart = along != x.ndim - 1

    def outer(*i: Scalar) -> Any:
        def place(lane: Any, k: Any, first: Scalar) -> tuple[Any, ...]:
            indices = dict(zip((a for a in range(x.ndim) if a not in (at, along)), i, strict=True))
            return tuple(k if a == at else first + lane if a == along else indices[a] for a in range(x.ndim))

        def batch(number: Scalar) -> Any:
            first = te.min(number * width, rows - width)
            load = lanes.load(lambda lane, k: data[place(lane, k, first)], apart)
            store = lanes.store(lambda v, lane, k: out.set(v, *place(lane, k, first)), apart)
            one_by_one = code.loop(width, lambda lane: sort_row(lambda k: place(lane, k, first)), "lane")
            return load, code.if_then(lanes.special[0] > 0, one_by_one, (lanes.sort(), store))

        return code.loop(-(-rows // width), batch, "batch")

    return code.grid([d for a, d in enumerate(x.shape) if a not in (at, along)], outer, "i")


def _lower_argsort(call: relax.Call, x: te.Tensor) -> te.Tensor:
    at = call.attrs["axis"] % x.ndim
    row = RowSort(x.shape[at], x.dtype, call.attrs["descending"], True)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def one(place: Any) -> Any:
            store = code.loop(x.shape[at], lambda k: out.set(row.sorted_place(k), *place(k)), "k")
            return row.load(lambda k: data[place(k)]), row.sort(), store

        return _for_each_row(x, at, one)

    dtype = DType.of(call.attrs["dtype"])
    return te.extern(x.buffer.shape, [x], body, "T_argsort", dtype, scratch=row.buffers)  # type: ignore[no-any-return]


def _lower_topk(call: relax.Call, x: te.Tensor) -> Any:
    """Select a few elements by insertion into a sorted list, many by a full sort."""
    at, kind = call.attrs["axis"] % x.ndim, call.attrs["ret_type"]
    count = x.shape[at]
    info = call.struct_info.fields[0] if kind == "both" else call.struct_info  # type: ignore[union-attr]
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
    wanted = Scalar(info.dims[at])
    few = tir.const_int(info.dims[at]) in range(1, MAX_INSERTED + 1)
    row = RowSort(wanted if few else count, x.dtype, call.attrs["largest"], True)
    parts = [x.dtype] if kind != "indices" else []
    parts += [DType.of(call.attrs["dtype"])] if kind != "values" else []

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = BufferElements(ins[0]), [BufferElements(b) for b in outs]

        def put(place: Any, key: Any, index: Any) -> Any:
            return [o.set(v, *place) for o, v in zip(cells, (key, index)[kind == "indices" :], strict=False)]

        def one(place: Any) -> Any:
            def store(j: Scalar) -> Any:
                nothing = put(place(j), construct.const(0, x.dtype), -1)
                return code.if_then(j < count, put(place(j), row.sorted_key(j), row.sorted_place(j)), nothing)

            find = _insert_best(row, count, wanted, lambda j: data[place(j)]) if few else None
            full = (row.load(lambda j: data[place(j)]), row.sort()) if not few else ()
            return find or full, code.loop(wanted, store, "k")

        return _for_each_row(x, at, one)

    results = te.extern([info.dims] * len(parts), [x], body, "T_topk", parts, scratch=row.buffers)
    return results if kind == "both" else results[0]


def _insert_best(row: RowSort, count: Any, wanted: Scalar, value: Callable[[Scalar], Scalar]) -> Any:
    """Insert each element that sorts before the last of the full list; `width` is the length of the list."""
    length = row.width[0]

    def one(j: Scalar) -> Any:
        full = length >= wanted
        better = sorts_before(value(j), row.keys[0, wanted - 1], row.descending)
        enters = te.if_then_else(full, better, te.const(True, "bool"))
        insert = [
            row.key.set(value(j), 0),
            row.place.set(j, 0),
            row.to.set(te.min(length, wanted - 1), 0),
            row.shift(0),
            row.width.set(te.min(length + 1, wanted), 0),
        ]
        return code.if_then(enters, insert)

    return row.half.set(0, 0), row.width.set(0, 0), code.loop(count, one, "j")


def _lower_median(call: relax.Call, x: te.Tensor) -> Any:
    """Return the median of sorted elements, the lower of two middle ones; NaN (or 0) at index -1 if there are none."""
    stated, keep = call.attrs["axis"], call.attrs["keepdims"]
    reduced_axes = range(x.ndim) if stated is None else [a % x.ndim for a in stated]
    single = stated is not None and len(stated) == 1
    inner, outer = [a for a in range(x.ndim) if a in reduced_axes], [a for a in range(x.ndim) if a not in reduced_axes]
    extents = [x.shape[a] for a in inner]
    count = Scalar(product([x.buffer.shape[a] for a in inner]))
    row = RowSort(count, x.dtype, False, single)
    dims = tuple(
        int64(1) if a in reduced_axes else d for a, d in enumerate(x.buffer.shape) if keep or a not in reduced_axes
    )
    nothing = [construct.const(float("nan") if x.dtype.is_float else 0, x.dtype), construct.const(-1, INT64)]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, cells = BufferElements(ins[0]), [BufferElements(b) for b in outs]
        middle = (count - 1) // 2

        def one(*i: Scalar) -> Any:
            at = dict(zip(outer, i, strict=True))
            where = [at.get(a, 0) for a in range(x.ndim) if keep or a not in reduced_axes]

            def fill(*k: Scalar) -> Any:
                whole = {**at, **dict(zip(inner, k, strict=True))}
                place = code.row_major_offset(k, extents)
                key = row.keys.set(data[tuple(whole[a] for a in range(x.ndim))], 0, place)
                return key, row.places.set(place, 0, place) if row.places else ()

            values = [row.sorted_key(middle), *([row.sorted_place(middle)] if single else [])]
            there = [o.set(v, *where) for o, v in zip(cells, values, strict=True)]
            lacking = [o.set(v, *where) for o, v in zip(cells, nothing, strict=False)]
            return code.grid(extents, fill, "k"), row.sort(), code.if_then(count > 0, there, lacking)

        return code.grid([x.shape[a] for a in outer], one, "i")

    if single:
        return te.extern([dims] * 2, [x], body, "T_median", [x.dtype, INT64], scratch=row.buffers)
    return te.extern(dims, [x], body, "T_median", x.dtype, scratch=row.buffers)


# ---------------------------------------------------------------- NumPy


def np_argsort(x: Any, at: int, descending: bool) -> Any:
    """Stable argsort: equal elements keep their order, in descending order, too."""
    if not descending:
        return np.argsort(x, axis=at, kind="stable")
    flipped = np.flip(np.argsort(np.flip(x, at), axis=at, kind="stable"), at)
    return x.shape[at] - 1 - flipped


def _np_sort(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    return np.take_along_axis(x, np_argsort(x, at, call.attrs["descending"]), at)


def _np_argsort(call: relax.Call, x: Any) -> Any:
    return np_argsort(x, call.attrs["axis"], call.attrs["descending"])


def _np_topk(call: relax.Call, x: Any) -> Any:
    at, k, kind = call.attrs["axis"], call.attrs["k"], call.attrs["ret_type"]
    count = x.shape[at]
    info = tensor(call, 0)
    static = None if info.dims is None else tir.const_int(info.dims[at])
    wanted = count if k < 1 or (static is not None and k > static) else k
    order = np.take(np_argsort(x, at, call.attrs["largest"]), range(min(wanted, count)), at)
    values = np.take_along_axis(x, order, at)
    if wanted > count:  # the result has k entries although there are fewer elements
        width = [(0, 0)] * x.ndim
        width[at] = (0, wanted - count)
        values, order = np.pad(values, width), np.pad(order, width, constant_values=-1)
    return (values, order) if kind == "both" else values if kind == "values" else order


def _np_median(call: relax.Call, x: Any) -> Any:
    stated, keep = call.attrs["axis"], call.attrs["keepdims"]
    reduced_axes = list(range(x.ndim)) if stated is None else sorted(a % x.ndim for a in stated)
    outer = [a for a in range(x.ndim) if a not in reduced_axes]
    shape = [1 if a in reduced_axes else x.shape[a] for a in range(x.ndim) if keep or a not in reduced_axes]
    rows = np.transpose(x, [*outer, *reduced_axes]).reshape(
        [x.shape[a] for a in outer] + [math.prod(x.shape[a] for a in reduced_axes)]
    )
    if rows.shape[-1] == 0:
        nothing = np.nan if np.issubdtype(x.dtype, np.floating) else 0
        values, places = np.full(shape, nothing, x.dtype), np.full(shape, -1, np.int64)
    else:
        places = np.argsort(rows, axis=-1, kind="stable")[..., [(rows.shape[-1] - 1) // 2]]
        values, places = (v.reshape(shape) for v in (np.take_along_axis(rows, places, -1), places))
    return (values, places) if stated is not None and len(stated) == 1 else values


OPS: dict[str, Impl] = {
    "sort": Impl(
        "data, axis: int = -1, descending: bool = False", infer_sort, _np_sort, _lower_sort, many=parallel_sort.sort,
    ),
    "argsort": Impl(
        'data, axis: int = -1, descending: bool = False, dtype: dtype = "int32"', infer_argsort, _np_argsort,
        _lower_argsort, many=parallel_sort.argsort,
    ),
    "topk": Impl(
        'data, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: dtype = "int32"',
        infer_topk, _np_topk, _lower_topk, many=parallel_sort.topk,
    ),
    "median": Impl(
        "x, axis: ints? = None, keepdims: bool = False", infer_median, _np_median, _lower_median,
        many=parallel_sort.median,
    ),
}  # fmt: skip
