"""Indexing operators: `strided_slice` and `take`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.index_bounds import checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    axes,
    axis,
    describe,
    extent_analyzer,
    extent_text,
    fail,
    int64,
    known_larger,
    prove,
    result,
    simplify,
    tensor,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- strided_slice


def _scalar_values(call: relax.Call, index: int) -> list[tir.Expr] | None:
    """Return the values of a tuple of scalars or of a shape, None if they are unknown."""
    argument = call.args[index]
    if isinstance(argument, relax.ShapeExpr):
        return list(argument.values)
    info = argument.struct_info
    if isinstance(argument, relax.Tuple):
        values = [f.value if isinstance(f, relax.PrimValue) else _scalar_field(call, f, index) for f in argument.fields]
        return None if any(v is None for v in values) else [v for v in values if v is not None]
    if isinstance(info, relax.TupleStructInfo):
        values = [f.value if isinstance(f, relax.PrimStructInfo) else None for f in info.fields]
        return None if any(v is None for v in values) else [v for v in values if v is not None]
    if not isinstance(info, relax.ObjectStructInfo):
        fail(call, "E0443", f"argument {index + 1} must be a tuple of integers, it is {describe(info)}")
    return None


def _scalar_field(call: relax.Call, field: relax.Expr, index: int) -> tir.Expr | None:
    info = field.struct_info
    if not isinstance(info, relax.PrimStructInfo):
        fail(call, "E0443", f"argument {index + 1} must be a tuple of integers, one field is {describe(info)}")
    return info.value


def _slices(call: relax.Call, data: Tensor) -> list[tuple[int, tir.Expr, tir.Expr, tir.Expr]] | None:
    """Return axis, begin, end and stride of every slice, as int64; None if unknown."""
    arguments = [_scalar_values(call, i) for i in range(1, len(call.args))]
    lengths = {len(g) for g in arguments if g is not None}
    if len(lengths) > 1:
        counts = ", ".join(str(len(g)) for g in arguments if g is not None)
        fail(call, "E0442", f"axes, begin, end and strides must be of one length, they have {counts}")
    if any(g is None for g in arguments):
        return None
    for values in arguments:
        for value in values or ():
            if not value.dtype.is_int:
                fail(call, "E0444", f"axes, begin, end and strides must be integers, not {value.dtype}")
    numbers = [tir.const_int(v) for v in arguments[0] or ()]
    if any(n is None for n in numbers):
        fail(call, "E0442", "`axes` must be constants")
    if data.ndim < 0:
        return None
    places = axes(call, [n for n in numbers if n is not None], data.ndim)
    strides = arguments[3] if len(arguments) > 3 else [int64(1)] * len(places)
    assert arguments[1] is not None and arguments[2] is not None and strides is not None
    slices = []
    for at, begin, end, stride in zip(places, arguments[1], arguments[2], strides, strict=True):
        if tir.const_int(stride) == 0:
            fail(call, "E0442", f"the stride of axis {at} is 0")
        slices.append((at, *(construct.cast("int64", v) for v in (begin, end, stride))))
    return slices  # type: ignore[return-value]


def canonicalize_bound(
    index: tir.Expr, extent: tir.Expr, stride: tir.Expr, assume_inbound: bool, known: Analyzer
) -> tir.Expr:
    """`index` counted from the front and clamped to what a slice of that direction can reach."""
    if assume_inbound:
        return index
    return _by_direction(stride, known, lambda backward: _clamp_bound(index, extent, backward, known))


def _by_direction(stride: tir.Expr, known: Analyzer, make: Callable[[bool], tir.Expr]) -> tir.Expr:
    """Return `make(True)` for a negative stride, else `make(False)`; a select of both if the sign is unknown."""
    if isinstance(stride, tir.IntImm) or prove(construct.greater_equal(stride, int64(0)), known):
        return make((tir.const_int(stride) or 1) < 0)
    negative = construct.less(stride, int64(0))
    if prove(negative, known):
        return make(True)
    return te.if_then_else(Scalar(negative), Scalar(make(True)), Scalar(make(False))).expr


def _clamp_bound(index: tir.Expr, extent: tir.Expr, backward: bool, known: Analyzer) -> tir.Expr:
    number, size = tir.const_int(index), tir.const_int(extent)
    if number is not None and size is not None:
        number += size if number < 0 else 0
        low, high = (-1, size - 1) if backward else (0, size)
        return int64(min(max(number, low), high))
    negative = construct.less(index, int64(0))
    if prove(construct.greater_equal(index, int64(0)), known):
        wrapped = index
    elif number is not None:
        wrapped = construct.add(extent, index)
    else:
        wrapped = te.if_then_else(Scalar(negative), Scalar(construct.add(index, extent)), Scalar(index)).expr
    bounds = (int64(-1), construct.sub(extent, int64(1))) if backward else (int64(0), extent)
    if wrapped is not index:
        wrapped = construct.maximum(wrapped, bounds[0])
    return simplify(construct.minimum(wrapped, bounds[1]), known)


def _slice_extent(begin: tir.Expr, end: tir.Expr, stride: tir.Expr, known: Analyzer) -> tir.Expr:
    """The number of steps from begin to end."""
    sign_known = isinstance(stride, tir.IntImm) or prove(construct.greater_equal(stride, int64(0)), known)

    def steps(backward: bool) -> tir.Expr:
        span = construct.sub(begin, end) if backward else construct.sub(end, begin)
        step = construct.negate(stride) if backward else stride
        if not sign_known:  # the other direction is computed, too
            step = construct.maximum(step, int64(1))
        count = simplify(construct.floordiv(construct.sub(construct.add(span, step), int64(1)), step), known)
        return count if sign_known else construct.maximum(count, int64(0))

    extent = _by_direction(stride, known, steps)
    return int64(0) if isinstance(extent, tir.IntImm) and extent.value < 0 else extent


def infer_strided_slice(call: relax.Call) -> Tensor:
    """Infer the extents of the slices; bounds are clamped unless `assume_inbound`."""
    data = tensor(call, 0)
    slices = _slices(call, data)
    if slices is None or data.dims is None:
        return result(None, data.dtype, data.ndim, data.vdevice)
    inbound = call.attrs["assume_inbound"]
    known = extent_analyzer(call)
    dims = list(data.dims)
    for at, begin, end, stride in slices:
        low = canonicalize_bound(begin, dims[at], stride, inbound, known)
        high = canonicalize_bound(end, dims[at], stride, inbound, known)
        if inbound:
            _refuse_outside(call, at, low, high, stride, dims[at])
        dims[at] = _slice_extent(low, high, stride, known)
    return result(dims, data.dtype, vdevice=data.vdevice)


def _refuse_outside(
    call: relax.Call, at: int, begin: tir.Expr, end: tir.Expr, stride: tir.Expr, extent: tir.Expr
) -> None:
    """Refuse slices that are provably out of bounds: with `assume_inbound` they are not clamped."""
    step = tir.const_int(stride)
    if step is None:
        return
    low, high = (begin, end) if step > 0 else (construct.add(end, 1), construct.add(begin, 1))
    if known_larger(int64(0), low) or known_larger(high, extent):
        text = f"{extent_text(begin)} to {extent_text(end)} is not inside axis {at} of {extent_text(extent)}"
        fail(call, "E0445", text, "`assume_inbound` requires it")


def _lower_strided_slice(call: relax.Call, x: te.Tensor, *slices: Any) -> te.Tensor:
    info = call.args[0].struct_info
    assert isinstance(info, relax.TensorStructInfo) and isinstance(call.struct_info, relax.TensorStructInfo)
    known = _slices(call, info)
    dims = call.struct_info.dims
    if known is None or dims is None:
        fail(call, "E0445", "the slice cannot be lowered: its bounds are not known expressions")
    begins = {}
    static = True
    sizes = extent_analyzer(call)
    for at, begin, end, stride in known:
        extent = x.buffer.shape[at]
        static = static and all(isinstance(v, tir.IntImm) for v in (begin, end, stride, extent))
        begins[at] = (canonicalize_bound(begin, extent, stride, call.attrs["assume_inbound"], sizes), stride)

    def element(*i: Any) -> Any:
        def moved(at: int) -> Any:
            if at not in begins:
                return i[at]
            low, stride = begins[at]
            return Scalar(construct.add(low, construct.mul(to_expr(i[at]), stride)))

        return x(*(moved(a) for a in range(x.ndim)))

    name = "T_strided_slice_with_axes" if static else "T_dynamic_strided_slice_with_axes"
    return topi.compute_ax(dims, element, name)


def np_slice(x: Any, places: Any, begin: Any, end: Any, strides: Any = None, *, inbound: bool = False) -> Any:
    """Slice an array along some axes, clamping bounds as Python does.

    With `inbound` bounds are neither clamped nor wrapped: -1 as the end of a backward slice means the front.
    """
    for position, at in enumerate(places):
        step = int(strides[position]) if strides is not None else 1
        size = x.shape[at]
        low, high = int(begin[position]), int(end[position])
        if not inbound:
            low, high = low + size if low < 0 else low, high + size if high < 0 else high
            first, last = (0, size) if step > 0 else (-1, size - 1)
            low, high = min(max(low, first), last), min(max(high, first), last)
        x = np.take(x, np.array(list(range(low, high, step)), np.int64), at)
    return x


def _np_strided_slice(call: relax.Call, *values: Any) -> Any:
    return np_slice(*values, inbound=bool(call.attrs["assume_inbound"]))


# ---------------------------------------------------------------- take

MAX_INSPECTED = 1 << 20  # elements of a constant whose range is looked at


def infer_take(call: relax.Call) -> Tensor:
    """Infer the data's shape with `axis` replaced by the indices' shape; a scalar index removes the axis."""
    data = tensor(call, 0)
    info = call.args[1].struct_info
    if isinstance(info, relax.PrimStructInfo):
        index_dims: tuple[tir.Expr, ...] | None = ()
        index_ndim, index_dtype = 0, info.dtype
    else:
        indices = tensor(call, 1)
        index_dims, index_ndim, index_dtype = indices.dims, indices.ndim, indices.dtype  # type: ignore[assignment]
    if index_dtype is not None and not index_dtype.is_int:
        fail(call, "E0444", f"needs integer indices, not {index_dtype}")
    at = call.attrs["axis"]
    if at is None:
        if data.ndim not in (-1, 1):
            fail(call, "E0446", f"`axis` must be given for a tensor of {data.ndim} dimensions")
        at = 0
    if data.ndim >= 0:
        at = axis(call, at, data.ndim)
    if data.ndim < 0 or index_ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    if data.dims is None or index_dims is None:
        return result(None, data.dtype, data.ndim - 1 + index_ndim, data.vdevice)
    if call.attrs["mode"] == "fast":
        _refuse_constant_outside(call, at, tir.const_int(data.dims[at]))
    return result((*data.dims[:at], *index_dims, *data.dims[at + 1 :]), data.dtype, vdevice=data.vdevice)


def _refuse_constant_outside(call: relax.Call, at: int, extent: int | None) -> None:
    """Refuse constant indices that are out of bounds; negative ones count from the end."""
    index_range = constant_index_range(call.args[1])
    if extent is None or index_range is None:
        return
    wrong = [i for i in index_range if not -extent <= i < extent]
    if wrong:
        help = 'negative indices count from the end; `mode="clip"` and `mode="wrap"` accept any index'
        fail(call, "E0445", f"index {wrong[0]} is outside dimension {at}, which has {extent}", help)


def constant_index_range(expr: relax.Expr) -> tuple[int, int] | None:
    """Return the smallest and the largest of constant indices; None if unknown or too many to inspect."""
    info = expr.struct_info
    if isinstance(info, relax.PrimStructInfo):
        number = None if info.value is None else tir.const_int(info.value)
        return None if number is None else (number, number)
    if not isinstance(expr, relax.Constant) or expr.data.array is None or not expr.data.dtype.is_int:
        return None
    array = expr.data.array
    return (int(array.min()), int(array.max())) if 0 < array.size <= MAX_INSPECTED else None


def _lower_take(call: relax.Call, x: te.Tensor, indices: Any) -> te.Tensor:
    assert isinstance(call.struct_info, relax.TensorStructInfo)
    dims = call.struct_info.dims
    assert dims is not None
    mode, at = call.attrs["mode"], call.attrs["axis"]
    rank = indices.ndim if isinstance(indices, te.Tensor) else 0
    flat = at is None
    at = 0 if at is None else at % x.ndim
    extent = x.buffer.shape[at]

    def element(*i: Any) -> Any:
        picked = indices(*i[at : at + rank]).expr if isinstance(indices, te.Tensor) else to_expr(indices)
        if mode == "fast" and (tir.const_int(picked) or 0) < 0:
            picked = construct.add(extent, picked)
        index = _apply_mode(picked, extent, mode, flat)
        return x(*i[:at], Scalar(index), *i[at + rank :])

    return topi.compute_ax(dims, element, "T_take")


def _apply_mode(index: tir.Expr, extent: tir.Expr, mode: str, flat: bool) -> tir.Expr:
    """Clamp the index, wrap it around, or leave it, as the mode says."""
    if mode == "clip":
        index = topi.saturate_to_int64(index)
        return construct.minimum(construct.maximum(construct.const(0, index.dtype), index), construct.sub(extent, 1))
    if mode == "wrap":
        if index.dtype == topi.UINT64:
            index = construct.cast("int64", construct.truncmod(index, construct.cast(topi.UINT64, extent)))
        return construct.truncmod(construct.add(construct.truncmod(index, extent), extent), extent)
    return construct.floormod(index, extent) if flat else index


def _np_take(call: relax.Call, x: Any, indices: Any) -> Any:
    mode, at = call.attrs["mode"], (call.attrs["axis"] or 0) % x.ndim
    count, positions = x.shape[at], np.asarray(indices)
    if mode in ("clip", "wrap"):
        if positions.dtype == np.uint64:
            positions = np.minimum(positions, 2**63 - 1) if mode == "clip" else positions % np.uint64(max(count, 1))
        positions = positions.astype(np.int64)
    if mode == "clip":
        positions = np.minimum(np.maximum(positions, 0), count - 1)
    elif mode == "wrap":
        positions = positions % count if count else np.zeros_like(positions)
    return np.take(x, checked_indices(positions, count, at, mode not in ("clip", "wrap")), at)


OPS: dict[str, Impl] = {
    "strided_slice": Impl(
        "x, axes: scalars, begin: scalars, end: scalars, strides: scalars? = None, assume_inbound: bool = False",
        infer_strided_slice, _np_strided_slice, _lower_strided_slice, FusionKind.INJECTIVE, checks_scalars=False,
        precision=Precision.FOLLOW, cost=Cost.VIEW, layout=layout_rules.strided_slice,
    ),
    "take": Impl('x, indices, axis: int? = None, mode: str = "fast"',
        infer_take, _np_take, _lower_take, from_end=True
    ),  # indices come from memory: nothing is fused into it
}  # fmt: skip
