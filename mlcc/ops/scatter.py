"""Scatter operators: write elements at indices that tensors contain; repeated indices are updated in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.gather import require_extents_within, require_integers
from mlcc.ops.index_bounds import checked_indices as checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    axis,
    broadcast,
    extent_analyzer,
    extent_text,
    fail,
    int64,
    known_different,
    prove,
    same_dtype,
    scalar_argument,
    shape_text,
    simplify,
    tensor,
    tensors,
)
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements

REDUCTIONS = ("update", "add", "mul", "min", "max")


def require_one_of(call: relax.Call, attribute: str, allowed: Sequence[str]) -> str:
    """The value of an attribute, which must be one of those allowed."""
    name: str = call.attrs[attribute]
    if name not in allowed:
        fail(call, "E0442", f"`{attribute}` must be one of {', '.join(allowed)}, it is `{name}`")
    return name


# ---------------------------------------------------------------- inference


def infer_scatter_elements(call: relax.Call) -> Tensor:
    """The data's own shape; indices and updates have one shape, of as many dimensions."""
    require_one_of(call, "reduction", (*REDUCTIONS, "mean"))
    return check_scatter(call)


def check_scatter(call: relax.Call) -> Tensor:
    """Check the operands of a scatter along an axis. Return the struct info of the data."""
    data, indices, updates = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    require_integers(call, indices)
    same_dtype(call, (data, updates))
    if data.ndim < 0:
        return data
    at = axis(call, call.attrs["axis"], data.ndim)
    for what, info in (("indices", indices), ("updates", updates)):
        if info.ndim not in (-1, data.ndim):
            fail(call, "E0445", f"the data have {data.ndim} dimensions, the {what} {info.ndim}")
    if indices.dims is not None and updates.dims is not None and _differ(indices.dims, updates.dims):
        text = f"indices of shape {shape_text(indices.dims)} and updates of shape {shape_text(updates.dims)} differ"
        fail(call, "E0445", text)
    require_extents_within(call, indices.dims, data.dims, at)
    return data


def infer_scatter_nd(call: relax.Call) -> Tensor:
    """Infer the data's shape; updates have the shape (*indices.shape[:-1], *axes of the data not indexed)."""
    data, indices, updates = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    require_one_of(call, "reduction", REDUCTIONS)
    require_integers(call, indices)
    if data.dtype is None or updates.dtype is None:
        fail(call, "E0444", "the dtypes of the data and of the updates must be known")
    same_dtype(call, (data, updates))
    if data.dims is None or indices.dims is None or updates.dims is None:
        return data
    count = tir.const_int(indices.dims[-1]) if indices.dims else None
    if count is None:
        fail(call, "E0445", f"the last extent of the indices {shape_text(indices.dims)} must be a constant")
    if count > data.ndim:
        fail(call, "E0445", f"the indices index {count} dimensions, but the data have {data.ndim}")
    wanted = (*indices.dims[:-1], *data.dims[count:])
    if len(wanted) != updates.ndim or not all(_provably_equal(a, b) for a, b in zip(wanted, updates.dims, strict=True)):
        fail(call, "E0445", f"the updates must have shape {shape_text(wanted)}, they have {shape_text(updates.dims)}")
    return data


def _provably_equal(a: tir.Expr, b: tir.Expr) -> bool:
    return prove(construct.equal(*construct.match_types(a, b)))


def _differ(a: Dims, b: Dims) -> bool:
    return any(known_different(x, y) for x, y in zip(a, b, strict=True))


def infer_slice_scatter(call: relax.Call) -> Tensor:
    """The data's own shape; the source has that of the slice."""
    data, source = tensor(call, 0), tensor(call, 1)
    same_dtype(call, (data, source))
    start, end, step = (_integer_scalar(call, i) for i in (2, 3, 4))
    known = extent_analyzer(call)
    if prove(construct.less(step, 1), known):
        fail(call, "E0442", f"`step` must be at least 1, it is {extent_text(step)}")
    if prove(construct.less(end, start), known):
        fail(call, "E0442", f"the slice ends at {extent_text(end)}, before it begins at {extent_text(start)}")
    if data.ndim < 0:
        return data
    at = axis(call, call.attrs["axis"], data.ndim)
    if source.ndim not in (-1, data.ndim):
        fail(call, "E0445", f"the data have {data.ndim} dimensions, the source {source.ndim}")
    if data.dims is None or source.dims is None:
        return data
    span = construct.sub(construct.add(construct.sub(end, start), step), 1)
    wanted = list(data.dims)
    wanted[at] = simplify(construct.floordiv(span, step), known)
    if _differ(tuple(wanted), source.dims):
        fail(call, "E0445", f"the source must have shape {shape_text(wanted)}, it has {shape_text(source.dims)}")
    return data


def _integer_scalar(call: relax.Call, index: int) -> tir.Expr:
    value = scalar_argument(call, index)
    if value is None:
        fail(call, "E0442", "`start`, `end` and `step` must be known expressions")
    if not value.dtype.is_int:
        fail(call, "E0444", f"`start`, `end` and `step` must be integers, not {value.dtype}")
    return construct.cast("int64", value)


def infer_index_put(call: relax.Call) -> Tensor:
    """Infer the data's shape; there is one tensor of indices for each of the leading dimensions."""
    data, values = tensor(call, 0), tensor(call, 2)
    info = call.args[1].struct_info
    indices = (info,) if isinstance(info, relax.TensorStructInfo) else tensors(call, 1)
    same_dtype(call, (data, values))
    if indices is None or data.ndim < 0:
        return data
    for number, each in enumerate(indices):
        require_integers(call, each, f"index tensor {number}")
    if not 1 <= len(indices) <= data.ndim:
        fail(call, "E0445", f"{len(indices)} tensors of indices for {data.ndim} dimensions")
    shape: Dims | None = ()
    for each in indices:
        shape = None if shape is None or each.dims is None else broadcast(call, shape, each.dims, "the index shapes")
    if shape is not None and values.dims is not None and data.dims is not None:
        _check_broadcast(call, values.dims, (*shape, *data.dims[len(indices) :]))
    return data


def _check_broadcast(call: relax.Call, values: Dims, shape: Dims) -> None:
    """Refuse values that do not broadcast to the indexed shape."""
    pairs = zip(reversed(values), reversed(shape), strict=False)
    if len(values) > len(shape) or any(tir.const_int(v) != 1 and known_different(v, s) for v, s in pairs):
        fail(
            call,
            "E0445",
            f"values of shape {shape_text(values)} do not broadcast to the indexed shape {shape_text(shape)}",
        )


# ---------------------------------------------------------------- lowering


def copy_data(x: te.Tensor) -> Callable[[BufferElements, BufferElements], Any]:
    """Return a builder of statements that copy the data to the output."""
    return lambda source, out: code.grid(x.shape, lambda *i: out.set(source[i], *i))


def combine(name: str, old: Scalar, new: Scalar) -> Any:
    match name:
        case "add":
            return old + new
        case "mul":
            return old * new
        case "mean":
            return te.div(old + new, 2)
        case "min":
            return te.min(old, new)
        case "max":
            return te.max(old, new)
    return new


def wrap_negative_index(index: Scalar, extent: tir.Expr) -> Scalar:
    """Wrap a negative index, which counts from the end."""
    place = construct.cast("int64", index.expr)
    if index.dtype.kind == "uint":
        return Scalar(place)
    return Scalar(
        to_expr(te.select(Scalar(construct.less(place, 0)), Scalar(construct.add(place, extent)), Scalar(place)))
    )


def _lower_scatter_elements(call: relax.Call, x: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
    at, name = call.attrs["axis"] % x.ndim, call.attrs["reduction"]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, places, new, out = (BufferElements(b) for b in (*ins, *outs))

        def update(*i: Scalar) -> Any:
            where = [wrap_negative_index(places[i], x.buffer.shape[at]) if a == at else i[a] for a in range(x.ndim)]
            return out.set(combine(name, out[tuple(where)], new[i]), *where)

        return copy_data(x)(data, out), code.grid(indices.shape, update, "i")

    return te.extern(x.buffer.shape, [x, indices, updates], body, "T_scatter_elements", x.dtype)  # type: ignore[no-any-return]


def _lower_scatter_nd(call: relax.Call, x: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
    name = call.attrs["reduction"]
    outer, count = indices.ndim - 1, tir.const_int(indices.buffer.shape[-1]) or 0

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, places, new, out = (BufferElements(b) for b in (*ins, *outs))

        def update(*i: Scalar) -> Any:
            where = [wrap_negative_index(places[(*i[:outer], n)], x.buffer.shape[n]) for n in range(count)] + list(
                i[outer:]
            )
            return out.set(combine(name, out[tuple(where)], new[i]), *where)

        return copy_data(x)(data, out), code.grid(updates.shape, update, "i")

    return te.extern(x.buffer.shape, [x, indices, updates], body, "T_scatter_nd", x.dtype)  # type: ignore[no-any-return]


def _lower_slice_scatter(
    call: relax.Call, x: te.Tensor, source: te.Tensor, start: tir.Expr, end: tir.Expr, step: tir.Expr
) -> te.Tensor:
    at = call.attrs["axis"] % x.ndim
    start, end, step = (construct.cast("int64", v) for v in (start, end, step))

    def element(*i: Any) -> Any:
        offset = construct.sub(to_expr(i[at]), start)
        checked_indices = te.all(
            Scalar(construct.greater_equal(offset, int64(0))),
            Scalar(construct.less(to_expr(i[at]), end)),
            Scalar(construct.equal(construct.floormod(offset, step), int64(0))),
        )
        return te.if_then_else(
            checked_indices, source(*i[:at], Scalar(construct.floordiv(offset, step)), *i[at + 1 :]), x(*i)
        )

    return topi.compute_ax(x.shape, element, "T_slice_scatter")


def _lower_index_put(call: relax.Call, x: te.Tensor, indices: Any, values: te.Tensor) -> te.Tensor:
    index_tensors: list[te.Tensor] = list(indices) if isinstance(indices, (list, tuple)) else [indices]
    name = "add" if call.attrs["accumulate"] else "update"
    index_shape = topi.broadcast_shape(*(i.buffer.shape for i in index_tensors))
    shape, outer = (*index_shape, *x.buffer.shape[len(index_tensors) :]), len(index_shape)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, *places, new = (BufferElements(b) for b in ins)
        out = BufferElements(outs[0])

        def update(*i: Scalar) -> Any:
            at = [
                cells[tuple(topi.broadcast_index(t, index_shape, i[:outer]))]
                for t, cells in zip(index_tensors, places, strict=True)
            ]
            where = [wrap_negative_index(index, x.buffer.shape[a]) for a, index in enumerate(at)] + list(i[outer:])
            value = new[tuple(topi.broadcast_index(values, shape, i))]
            return out.set(combine(name, out[tuple(where)], value), *where)

        return copy_data(x)(data, out), code.grid(shape, update, "i")

    return te.extern(x.buffer.shape, [x, *index_tensors, values], body, "T_index_put", x.dtype)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- NumPy


def np_combine(name: str, old: Any, new: Any) -> Any:
    match name:
        case "add":
            return old + new
        case "mul":
            return old * new
        case "mean":
            total = old + new
            return total / 2 if np.issubdtype(total.dtype, np.floating) else np.trunc(total / 2).astype(total.dtype)
        case "min":
            return np.where(np.less(old, new), old, new)
        case "max":
            return np.where(np.greater(old, new), old, new)
    return new


def _np_scatter_elements(call: relax.Call, x: Any, indices: Any, updates: Any) -> Any:
    """Scatter one slice of indices along the axis at a time, in which no target repeats."""
    out, at = np.array(x), call.attrs["axis"] % x.ndim
    indices = checked_indices(indices, x.shape[at], at)
    for step in range(indices.shape[at]):
        where = np.take(indices, [step], at)
        old = np.take_along_axis(cropped_view(out, where, at), where, at)
        new = np_combine(call.attrs["reduction"], old, np.take(updates, [step], at))
        np.put_along_axis(cropped_view(out, where, at), where, new.astype(out.dtype), at)
    return out


def cropped_view(x: Any, like: Any, at: int) -> Any:
    """A view of `x` cropped to the extents of `like` in all axes but `at`."""
    at %= x.ndim
    return x[tuple(slice(None) if a == at else slice(n) for a, n in enumerate(like.shape))]


def _np_scatter_nd(call: relax.Call, x: Any, indices: Any, updates: Any) -> Any:
    out = np.array(x)
    picked = [checked_indices(indices[..., n], x.shape[n], n) for n in range(indices.shape[-1])]
    for place in np.ndindex(indices.shape[:-1]):
        where = tuple(int(p[place]) for p in picked)
        out[where] = np_combine(call.attrs["reduction"], out[where], updates[place])
    return out


def _np_slice_scatter(call: relax.Call, x: Any, source: Any, start: Any, end: Any, step: Any) -> Any:
    out = np.array(x)
    moved, pieces = np.moveaxis(out, call.attrs["axis"], 0), np.moveaxis(source, call.attrs["axis"], 0)
    for number, place in enumerate(range(start, end, step)):
        if 0 <= place < moved.shape[0]:
            moved[place] = pieces[number]
    return out


def _np_index_put(call: relax.Call, x: Any, indices: Any, values: Any) -> Any:
    out = np.array(x)
    index_arrays = indices if isinstance(indices, (tuple, list)) else (indices,)
    where = tuple(checked_indices(i, x.shape[at], at) for at, i in enumerate(index_arrays))
    if call.attrs["accumulate"]:
        np.add.at(out, where, values)
    else:
        out[where] = values
    return out


OPS: dict[str, Impl] = {
    "scatter_elements": Impl(
        'data, indices, updates, axis: int = 0, reduction: str = "update"', infer_scatter_elements,
        _np_scatter_elements, _lower_scatter_elements, from_end=True, layout=layout_rules.scatter,
    ),
    "scatter_nd": Impl(
        'data, indices, updates, reduction: str = "update"', infer_scatter_nd, _np_scatter_nd, _lower_scatter_nd,
        from_end=True, layout=layout_rules.scatter_nd,
    ),
    "slice_scatter": Impl(
        "input_tensor, src, start: scalar, end: scalar, step: scalar, axis: int = 0", infer_slice_scatter,
        _np_slice_scatter, _lower_slice_scatter, FusionKind.INJECTIVE,
    ),
    "index_put": Impl(
        "data, indices: exprs, values, accumulate: bool = False", infer_index_put, _np_index_put, _lower_index_put,
        from_end=True,
    ),
}  # fmt: skip
