"""Gather operators: elements at indices that tensors contain, and slices with bounds from tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops import layout_rules, topi
from mlcc.ops.index_bounds import checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.registry import DataDependentShape, FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    axis,
    broadcast,
    fail,
    known_different,
    known_larger,
    result,
    shape_text,
    tensor,
    tensors,
)
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements


def require_integers(call: relax.Call, info: Tensor, what: str = "the indices") -> None:
    """Refuse indices that are not integers."""
    if info.dtype is not None and not info.dtype.is_int:
        fail(call, "E0444", f"{what} must be integers, not {info.dtype}", "convert them with `R.astype`")


def require_extents_within(call: relax.Call, indices: Dims | None, data: Dims | None, at: int) -> None:
    """Refuse indices whose shape exceeds that of the data in a dimension other than the indexed axis `at`."""
    for number, (extent, limit) in enumerate(zip(indices or (), data or (), strict=False)):
        if number != at and known_larger(extent, limit):
            text = f"the indices {shape_text(indices)} exceed the data {shape_text(data)} in dimension {number}"
            fail(call, "E0445", text)


# ---------------------------------------------------------------- inference


def infer_gather_elements(call: relax.Call) -> Tensor:
    """The shape of the indices, which have as many dimensions as the data."""
    data, indices = tensor(call, 0), tensor(call, 1)
    require_integers(call, indices)
    if data.ndim < 0 or indices.ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    at = axis(call, call.attrs["axis"], data.ndim)
    if data.ndim != indices.ndim:
        fail(call, "E0445", f"the data have {data.ndim} dimensions, the indices {indices.ndim}")
    require_extents_within(call, indices.dims, data.dims, at)
    return relax.TensorStructInfo(indices.shape, data.dtype, indices.ndim, data.vdevice)


def infer_gather_nd(call: relax.Call) -> Tensor:
    """Infer the indices' shape without its last dimension, followed by the data's dimensions that are not indexed."""
    data, indices = tensor(call, 0), tensor(call, 1)
    batch = call.attrs["batch_dims"]
    if indices.dtype is not None and indices.dtype is not INT64:
        fail(call, "E0444", f"needs indices of int64, not of {indices.dtype}", "convert them with `R.astype`")
    if batch < 0:
        fail(call, "E0442", f"`batch_dims` must not be negative, it is {batch}")
    if data.ndim < 0 or indices.ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    if batch > data.ndim or batch > indices.ndim - 1:
        text = f"data of {data.ndim} and indices of {indices.ndim} dimensions do not share {batch} batch dimensions"
        fail(call, "E0445", text)
    count = None if indices.dims is None else tir.const_int(indices.dims[-1])
    if count is None or indices.dims is None:
        return result(None, data.dtype, -1, data.vdevice)
    if count > data.ndim - batch:
        text = f"indices of shape {shape_text(indices.dims)} index {count} dimensions"
        fail(call, "E0445", f"{text}, but the data have {data.ndim - batch} after `batch_dims`")
    if data.dims is None:
        return result(None, data.dtype, indices.ndim - 1 + data.ndim - count - batch, data.vdevice)
    return result((*indices.dims[:-1], *data.dims[batch + count :]), data.dtype, vdevice=data.vdevice)


def infer_index_tensor(call: relax.Call) -> Tensor:
    """Infer the broadcast shape of the indices, followed by the data's dimensions that are not indexed."""
    data, indices = tensor(call, 0), tensors(call, 1)
    if indices is None:
        return result(None, data.dtype, -1, data.vdevice)
    if not indices:
        fail(call, "E0443", "needs at least one tensor of indices")
    for number, info in enumerate(indices):
        require_integers(call, info, f"index tensor {number}")
    if data.ndim < 0 or any(i.ndim < 0 for i in indices):
        return result(None, data.dtype, -1, data.vdevice)
    if len(indices) > data.ndim:
        fail(call, "E0445", f"{len(indices)} tensors of indices for {data.ndim} dimensions")
    rest = data.ndim - len(indices)
    ndim = max(i.ndim for i in indices)
    shape: Dims | None = ()
    for info in indices:
        shape = None if shape is None or info.dims is None else broadcast(call, shape, info.dims, "the index shapes")
    if shape is None or data.dims is None:
        return result(None, data.dtype, ndim + rest, data.vdevice)
    return result((*shape, *data.dims[len(indices) :]), data.dtype, vdevice=data.vdevice)


def infer_dynamic_strided_slice(call: relax.Call) -> Tensor:
    """Infer the rank only: the extents depend on the values of begin, end and strides."""
    data = tensor(call, 0)
    for index, what in ((1, "begin"), (2, "end"), (3, "strides")):
        info = tensor(call, index)
        if info.dtype is not None and info.dtype is not INT64:
            fail(call, "E0444", f"`{what}` must be int64, not {info.dtype}", "convert it with `R.astype`")
        if info.ndim not in (-1, 1):
            fail(call, "E0445", f"`{what}` must be a vector, it has {info.ndim} dimensions")
        length = None if info.dims is None else tir.const_int(info.dims[0])
        if length is not None and data.ndim >= 0 and length != data.ndim:
            fail(call, "E0445", f"`{what}` has {length} elements, the data have {data.ndim} dimensions")
    return result(None, data.dtype, data.ndim, data.vdevice)


def infer_reverse_sequence(call: relax.Call) -> Tensor:
    """The data's own shape."""
    data, lengths = tensor(call, 0), tensor(call, 1)
    require_integers(call, lengths, "the lengths")
    if lengths.ndim not in (-1, 1):
        fail(call, "E0445", f"the lengths must be a vector, they have {lengths.ndim} dimensions")
    if data.ndim < 0:
        return data
    along, batch = axis(call, call.attrs["seq_axis"], data.ndim), axis(call, call.attrs["batch_axis"], data.ndim)
    if along == batch:
        fail(call, "E0446", f"`seq_axis` and `batch_axis` are the same axis, {along}")
    if data.dims is not None and lengths.dims is not None and known_different(data.dims[batch], lengths.dims[0]):
        text = f"{shape_text(lengths.dims)} lengths for data of shape {shape_text(data.dims)} with batches on axis"
        fail(call, "E0445", f"{text} {batch}")
    return data


# ---------------------------------------------------------------- lowering


def _clamp_bound(index: Scalar, extent: Any, stride: Scalar) -> Scalar:
    """Wrap a negative slice bound and clamp it to the range of a slice in that direction."""
    wrapped = te.if_then_else(index < 0, index + extent, index)
    forward = te.max(te.min(wrapped, extent), te.const(0, "int64"))
    backward = te.max(te.min(wrapped, extent - 1), te.const(-1, "int64"))
    return te.if_then_else(stride > 0, forward, backward)


def _measure_dynamic_strided_slice(
    call: relax.Call, x: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor
) -> Any:
    """The number of steps from begin to end; none for a stride of 0."""

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        _, first, last, step = (BufferElements(b) for b in ins)

        def extent(axis: int) -> Any:
            size = x.shape[axis]
            longest = size + 1  # a longer step takes the first element, too, and sums with it would wrap
            stride = te.max(te.min(step[axis], longest), -longest)
            low, high = _clamp_bound(first[axis], size, stride), _clamp_bound(last[axis], size, stride)
            divisor = te.max(te.abs(stride), te.const(1, "int64"))
            span = te.if_then_else(stride > 0, high - low, low - high)
            steps = te.max((span + divisor - 1) // divisor, te.const(0, "int64"))
            return te.if_then_else(te.any(stride > 0, stride < 0), steps, te.const(0, "int64"))

        return [BufferElements(outs[0]).set(extent(axis), axis) for axis in range(x.ndim)]

    return te.extern((x.ndim,), [x, begin, end, strides], body, "T_dynamic_strided_slice_extents", INT64)


def _sized_dynamic_strided_slice(call: relax.Call, extents: tuple[tir.Expr, ...]) -> relax.StructInfo:
    data = tensor(call, 0)
    assert data.dims is not None
    dims = [construct.minimum(n, d) for n, d in zip(extents, data.dims, strict=True)]
    return result(dims, data.dtype, vdevice=data.vdevice)


def _lower_dynamic_strided_slice(
    call: relax.Call, x: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor
) -> Any:
    info = call.struct_info
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None

    def element(*i: Any) -> Any:
        places = (_clamp_bound(begin(a), x.shape[a], strides(a)) + i[a] * strides(a) for a in range(x.ndim))
        return x(*places)

    return topi.compute_ax(info.dims, element, "T_dynamic_strided_slice")


def _lower_gather_elements(call: relax.Call, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    at = call.attrs["axis"] % x.ndim
    return topi.compute_ax(
        indices.buffer.shape, lambda *i: x(*(indices(*i) if a == at else i[a] for a in range(x.ndim))), "T_gather"
    )


def _lower_gather_nd(call: relax.Call, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    batch, outer = call.attrs["batch_dims"], indices.ndim - 1
    shape = indices.buffer.shape
    transposed = topi.compute_ax((shape[-1], *shape[:-1]), lambda *i: indices(*i[1:], i[0]), "T_transpose")
    count = tir.const_int(shape[-1]) or 0

    def element(*i: Any) -> Any:
        picked = [transposed(construct.const(n), *i[:outer]) for n in range(count)]
        return x(*i[:batch], *picked, *i[outer:])

    return topi.compute_ax((*shape[:-1], *x.buffer.shape[batch + count :]), element, "T_gather_nd")


def _lower_index_tensor(call: relax.Call, x: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    shape = topi.broadcast_shape(*(i.buffer.shape for i in indices))
    broadcasted = [_broadcast_to(i, shape) for i in indices] if len(indices) > 1 else list(indices)
    rest = x.buffer.shape[len(indices) :]
    return topi.compute_ax(
        (*shape, *rest),
        lambda *i: x(*(w(*i[: len(shape)]) for w in broadcasted), *i[len(shape) :]),
        "advanced_index",
    )


def _broadcast_to(x: te.Tensor, shape: Dims) -> te.Tensor:
    return topi.compute_ax(shape, lambda *i: x(*topi.broadcast_index(x, shape, i)), "T_broadcast_to")


def _lower_reverse_sequence(call: relax.Call, x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    along, batch = call.attrs["seq_axis"] % x.ndim, call.attrs["batch_axis"] % x.ndim
    extent = x.shape[along]

    def element(*i: Any) -> Any:
        length, at = Scalar(construct.cast("int64", topi.saturate_to_int64(lengths(i[batch]).expr))), i[along]
        reversed_at = te.if_then_else(length > extent, extent - 1 - at, length - 1 - at)
        place = te.if_then_else(te.any(length <= 1, length <= at), at, reversed_at)
        return x(*i[:along], Scalar(to_expr(place)), *i[along + 1 :])

    return topi.compute_ax(x.shape, element, "T_reverse_sequence")


# ---------------------------------------------------------------- NumPy


def _np_gather_elements(call: relax.Call, x: Any, indices: Any) -> Any:
    at = call.attrs["axis"] % x.ndim
    picked = np.indices(indices.shape, sparse=True)
    return x[tuple(checked_indices(indices, x.shape[a], a) if a == at else picked[a] for a in range(x.ndim))]


def _np_gather_nd(call: relax.Call, x: Any, indices: Any) -> Any:
    batch = call.attrs["batch_dims"]
    picked = [checked_indices(indices[..., n], x.shape[batch + n], batch + n) for n in range(indices.shape[-1])]
    lead = np.indices(indices.shape[:-1], sparse=True)[:batch]
    return x[(*lead, *picked)] if batch + indices.shape[-1] else _np_repeat(x, indices.shape[:-1])


def _np_repeat(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, (*shape, *x.shape)).copy()


def _np_index_tensor(call: relax.Call, x: Any, indices: Any) -> Any:
    return x[tuple(checked_indices(i, x.shape[at], at) for at, i in enumerate(indices))]


def _np_dynamic_strided_slice(call: relax.Call, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    from mlcc.ops.index import np_slice

    return np_slice(x, range(x.ndim), begin, end, strides)


def _np_reverse_sequence(call: relax.Call, x: Any, lengths: Any) -> Any:
    along, batch = call.attrs["seq_axis"], call.attrs["batch_axis"]
    moved = np.moveaxis(x, (batch, along), (0, 1)).copy()
    for row, length in enumerate(lengths):
        count = min(max(int(length), 0), moved.shape[1])
        moved[row, :count] = moved[row, :count][::-1].copy()
    return np.moveaxis(moved, (0, 1), (batch, along))


OPS: dict[str, Impl] = {
    # indices come from memory: nothing is fused into a gather
    "gather_elements": Impl(
        "data, indices, axis: int = 0", infer_gather_elements, _np_gather_elements, _lower_gather_elements,
        tir_name="gather", from_end=True, layout=layout_rules.gather,
    ),
    "gather_nd": Impl(
        "data, indices, batch_dims: int = 0", infer_gather_nd, _np_gather_nd, _lower_gather_nd,
        tir_name="te_gather_nd", from_end=True,
    ),
    "index_tensor": Impl(
        "data, indices: exprs", infer_index_tensor, _np_index_tensor, _lower_index_tensor, from_end=True,
    ),
    "dynamic_strided_slice": Impl(
        "x, begin, end, strides", infer_dynamic_strided_slice, _np_dynamic_strided_slice, _lower_dynamic_strided_slice,
        found=DataDependentShape(_measure_dynamic_strided_slice, _sized_dynamic_strided_slice),
        precision=Precision.FOLLOW,
    ),
    "reverse_sequence": Impl(
        "data, seq_lengths, seq_axis: int = 1, batch_axis: int = 0", infer_reverse_sequence, _np_reverse_sequence,
        _lower_reverse_sequence, FusionKind.INJECTIVE,
    ),
}  # fmt: skip
