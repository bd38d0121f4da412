"""`nonzero` and `unique`, whose result extents depend on the data.

They run in two functions: the first measures the extents, the second fills the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.lazy import np
from mlcc.ops.registry import DataDependentShape, Impl
from mlcc.ops.shapes import Tensor, axis, fail, int64, product, result, scalar_argument, tensor
from mlcc.ops.sort import RowSort
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements


def infer_nonzero(call: relax.Call) -> Tensor:
    """A matrix of int64: a row for each dimension, a column for each element that is not zero."""
    return result(None, INT64, 2, tensor(call, 0).vdevice)


def _requested_results(call: relax.Call) -> list[bool]:
    """Return which optional results of `R.unique` are requested: indices, inverse indices and counts."""
    flags = []
    for index in (2, 3, 4):
        value = scalar_argument(call, index)
        number = None if value is None else tir.const_int(value)
        if number is None:
            fail(call, "E0442", "`return_index`, `return_inverse` and `return_counts` must be constants")
        flags.append(bool(number))
    return flags


def infer_unique(call: relax.Call) -> relax.StructInfo:
    """Infer the unique elements (or slices along an axis) and int64 vectors for the optional results."""
    data = tensor(call, 0)
    flags = _requested_results(call)
    at = scalar_argument(call, 5) if len(call.args) == 6 else None
    number = None if at is None else tir.const_int(at)
    if number is not None and data.ndim >= 0:
        axis(call, number, data.ndim)
    if data.ndim == 0:
        infos = [result((int64(1),), d, vdevice=data.vdevice) for d in (data.dtype, *[INT64] * sum(flags))]
    else:
        infos = [result(None, data.dtype, 1 if at is None else data.ndim, data.vdevice)]
        infos += [result(None, INT64, 1, data.vdevice)] * sum(flags)
    return infos[0] if len(infos) == 1 else relax.TupleStructInfo(tuple(infos))


def _np_unique(call: relax.Call, x: Any, ordered: Any, index: Any, inverse: Any, counts: Any, at: Any = None) -> Any:
    """Unique elements in ascending order, or in the order of their first occurrence."""
    axis = None if at is None or at == () else int(at)
    values, first, back, times = np.unique(x, True, True, True, axis=axis)
    back = np.ravel(back)
    if not ordered:
        order = np.argsort(first, kind="stable")
        moved = np.empty_like(order)
        moved[order] = np.arange(order.size)
        values = np.take(values, order, 0 if axis is None else axis)
        first, back, times = first[order], moved[back], times[order]
    wanted = [a for a, flag in ((first, index), (back, inverse), (times, counts)) if flag]
    results = (values, *(a.astype(np.int64) for a in wanted))
    return results if wanted else values


def _np_nonzero(call: relax.Call, x: Any) -> Any:
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


# ---------------------------------------------------------------- lowering


def _is_nonzero(value: Scalar) -> Any:
    return value if value.dtype.is_bool else value != te.const(0, value.dtype)


def _measure_nonzero(call: relax.Call, x: te.Tensor) -> Any:
    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, count = BufferElements(ins[0]), BufferElements(outs[0])
        one = code.grid(x.shape, lambda *i: code.if_then(_is_nonzero(data[i]), count.set(count[0] + 1, 0)), "i")
        return count.set(0, 0), one

    return te.extern((1,), [x], body, "T_nonzero_extents", INT64)


def _sized_nonzero(call: relax.Call, extents: tuple[tir.Expr, ...]) -> relax.StructInfo:
    data = tensor(call, 0)
    assert data.dims is not None
    most = construct.minimum(extents[0], product(data.dims))
    return result((int64(max(data.ndim, 1)), most), INT64, vdevice=data.vdevice)


def _lower_nonzero(call: relax.Call, x: te.Tensor) -> Any:
    """Store the indices of nonzero elements in row-major order; `at` counts them."""
    info, at = call.struct_info, code.scratch("at", (1,))
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def look(*i: Scalar) -> Any:
            indices = i or (Scalar(construct.const(0, INT64)),)
            places = [out.set(place, axis, at[0]) for axis, place in enumerate(indices)]
            return code.if_then(_is_nonzero(data[i]), [*places, at.set(at[0] + 1, 0)])

        return at.set(0, 0), code.grid(x.shape, look, "i")

    return te.extern(info.dims, [x], body, "T_nonzero", INT64, scratch=(at.buffer,))


class _EqualGroups:
    """Emit statements that group equal elements (or equal slices along an axis) of a tensor.

    Slices are sorted stably by each element, the last one first (radix sort): equal ones are adjacent in `order`, in
    their original order. `group` maps a slice to its group, `first` a group to its first slice; groups are numbered
    in ascending order, and `count` is their number.
    """

    def __init__(self, call: relax.Call, x: te.Tensor) -> None:
        at = scalar_argument(call, 5) if len(call.args) == 6 else None
        axis = None if at is None else tir.const_int(at)
        self.along = None if axis is None else axis % x.ndim
        self.shape = x.shape
        self.inner = () if self.along is None else tuple(d for a, d in enumerate(x.shape) if a != self.along)
        total = Scalar(product(x.buffer.shape))
        self.slices = total if self.along is None else x.shape[self.along]
        self.columns = Scalar(product([construct.cast(INT64, to_expr(d)) for d in self.inner]))
        self.empty = tir.const_int(total.expr) == 0
        self.row = RowSort(self.slices, x.dtype, False, True)
        self.order, self.moved, self.group, self.first = (
            code.scratch(n, (self.slices,)) for n in ("order", "moved", "group", "first")
        )
        self.count, self.differ = code.scratch("count", (1,)), code.scratch("differ", (1,), "bool")

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        own = (self.order, self.moved, self.group, self.first, self.count, self.differ)
        return (*self.row.buffers, *(c.buffer for c in own))

    def place(self, number: Any, column: Any) -> tuple[Any, ...]:
        """The indices of an element of a slice."""
        dims = self.shape if self.along is None else self.inner
        flat = number if self.along is None else column
        indices: list[Any] = []
        for extent in reversed(dims):
            indices.insert(0, flat % extent)
            flat = flat // extent
        return tuple(indices) if self.along is None else (*indices[: self.along], number, *indices[self.along :])

    def over_columns(self, body: Callable[[Scalar], Any], name: str = "column") -> Any:
        """Emit a loop over the elements of a slice; nothing for an empty tensor."""
        return () if self.empty else code.loop(self.columns, body, name)

    def group_slices(self, data: BufferElements) -> Any:
        """Fill `group`, `first` and `count`."""

        def by(back: Scalar) -> Any:
            column = self.columns - 1 - back
            load = self.row.load(lambda k: data[self.place(self.order[k], column)])
            move = code.loop(self.slices, lambda k: self.moved.set(self.order[self.row.sorted_place(k)], k), "k")
            return load, self.row.sort(), move, code.loop(self.slices, lambda k: self.order.set(self.moved[k], k), "k")

        return (
            code.loop(self.slices, lambda k: self.order.set(k, k), "k"),
            self.over_columns(by, "back"),
            self.count.set(0, 0),
            code.loop(self.slices, lambda k: self._assign(data, k), "k"),
        )

    def _assign(self, data: BufferElements, k: Scalar) -> Any:
        """Open a new group at a slice that differs from its predecessor."""
        here, before = self.order[k], self.order[k - 1]

        def compare(column: Scalar) -> Any:
            a, b = data[self.place(here, column)], data[self.place(before, column)]
            unlike: Any = a != b
            if a.dtype.is_float and self.along is None:  # NaNs are equal as elements, but not in slices
                unlike = te.all(unlike, te.logical_not(te.all(te.isnan(a), te.isnan(b))))
            return code.if_then(unlike, self.differ.set(te.const(True, "bool"), 0))

        opens = [self.first.set(here, self.count[0]), self.count.set(self.count[0] + 1, 0)]
        return (
            self.differ.set(k < 1, 0),
            code.if_then(k > 0, self.over_columns(compare)),
            code.if_then(self.differ[0], opens),
            self.group.set(self.count[0] - 1, here),
        )


def _measure_unique(call: relax.Call, x: te.Tensor, *rest: Any) -> Any:
    groups = _EqualGroups(call, x)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        return groups.group_slices(BufferElements(ins[0])), BufferElements(outs[0]).set(groups.count[0], 0)

    return te.extern((1,), [x], body, "T_unique_extents", INT64, scratch=groups.buffers)


def _sized_unique(call: relax.Call, extents: tuple[tir.Expr, ...]) -> relax.StructInfo:
    data, flags = tensor(call, 0), _requested_results(call)
    at = scalar_argument(call, 5) if len(call.args) == 6 else None
    assert data.dims is not None
    along = None if at is None else (tir.const_int(at) or 0) % data.ndim
    total = product(data.dims) if along is None else data.dims[along]
    most = construct.minimum(extents[0], total)
    dims = [most] if along is None else [most if a == along else d for a, d in enumerate(data.dims)]
    infos = [result(dims, data.dtype, vdevice=data.vdevice)]
    lengths = [length for length, flag in zip((most, total, most), flags, strict=True) if flag]
    infos += [result((length,), INT64, vdevice=data.vdevice) for length in lengths]
    return infos[0] if len(infos) == 1 else relax.TupleStructInfo(tuple(infos))


def _lower_unique(call: relax.Call, x: te.Tensor, *rest: Any) -> Any:
    """`position[g]` is where group g stands in the result: by value, or by its first slice."""
    groups, (index, inverse, counts) = _EqualGroups(call, x), _requested_results(call)
    ordered = scalar_argument(call, 1)
    info = call.struct_info
    infos = info.fields if isinstance(info, relax.TupleStructInfo) else (info,)
    position, next_position = code.scratch("name", (groups.slices,)), code.scratch("next_name", (1,))

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, values = BufferElements(ins[0]), BufferElements(outs[0])
        rest = iter(BufferElements(b) for b in outs[1:])
        first, back, times = (next(rest) if flag else None for flag in (index, inverse, counts))

        def assign_position(k: Scalar) -> Any:
            group = groups.group[k]
            take = [position.set(next_position[0], group), next_position.set(next_position[0] + 1, 0)]
            return code.if_then(groups.first[group] == k, take)

        def one(k: Scalar) -> Any:
            group = groups.group[k]
            to = position[group]
            stores = [] if back is None else [back.set(to, k)]
            stores += [] if times is None else [times.set(times[to] + 1, to)]

            def copy(column: Scalar) -> Any:
                at = groups.place(k, column)
                there = (to,) if groups.along is None else (*at[: groups.along], to, *at[groups.along + 1 :])
                return values.set(data[at], *there)

            taken = [groups.over_columns(copy)]
            taken += [] if first is None else [first.set(k, to)]
            return *stores, code.if_then(groups.first[group] == k, taken)

        known = ordered is not None and bool(tir.const_int(ordered))
        by_value = code.loop(groups.count[0], lambda g: position.set(g, g), "g")
        by_place = (next_position.set(0, 0), code.loop(groups.slices, assign_position, "k"))
        clear = () if times is None else code.loop(groups.count[0], lambda g: times.set(0, g), "g")
        return groups.group_slices(data), by_value if known else by_place, clear, code.loop(groups.slices, one, "k")

    shapes = [i.dims for i in infos]  # type: ignore[union-attr]
    scratch = (*groups.buffers, position.buffer, next_position.buffer)
    outputs = te.extern(shapes, [x], body, "T_unique", [i.dtype for i in infos], scratch=scratch)  # type: ignore[union-attr]
    return outputs if len(infos) > 1 else outputs[0]


OPS: dict[str, Impl] = {
    "nonzero": Impl("x", infer_nonzero, _np_nonzero, _lower_nonzero,
    found=DataDependentShape(_measure_nonzero, _sized_nonzero)),
    "unique": Impl(
        "x, sorted: scalar = True, return_index: scalar = False, return_inverse: scalar = False, "
        "return_counts: scalar = False, axis: scalar? = None",
        infer_unique, _np_unique, _lower_unique, found=DataDependentShape(_measure_unique, _sized_unique),
    ),
}  # fmt: skip
