"""Neural network operators but convolutions, pooling and normalisation: softmax, dropout, padding, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import reshape
from mlcc.ops.reduce import count, reduce_with
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Tensor,
    axis,
    fail,
    float_dtype,
    int64,
    known_different,
    result,
    shape_text,
    simplify,
    tensor,
)
from mlcc.te.scalar import Scalar, raw

# ---------------------------------------------------------------- inference


def infer_softmax(call: relax.Call) -> Tensor:
    """The tensor's own shape; floats."""
    data = tensor(call, 0)
    float_dtype(call, data)
    if data.ndim >= 0:
        axis(call, call.attrs["axis"], data.ndim)
    return data


def infer_dropout(call: relax.Call) -> relax.StructInfo:
    """The data and the mask."""
    data = tensor(call, 0)
    return relax.TupleStructInfo((data, data))


def infer_pad(call: relax.Call) -> Tensor:
    """Extents grow by what is put before and after."""
    data = tensor(call, 0)
    widths = call.attrs["pad_width"]
    if data.ndim < 0 or len(widths) != 2 * data.ndim:
        known = "an unknown number of" if data.ndim < 0 else str(data.ndim)
        fail(call, "E0445", f"`pad_width` has {len(widths)} numbers for {known} dimensions: two are needed for each")
    if data.dims is None:
        return result(None, data.dtype, data.ndim)
    dims = [simplify(construct.add(d, int64(widths[2 * i] + widths[2 * i + 1]))) for i, d in enumerate(data.dims)]
    return result(dims, data.dtype, vdevice=data.vdevice)


def infer_cross_entropy(call: relax.Call) -> Tensor:
    """A scalar, from two tensors of one shape."""
    left, right = tensor(call, 0), tensor(call, 1)
    if left.ndim >= 0 and right.ndim >= 0 and left.ndim != right.ndim:
        fail(call, "E0445", f"the tensors have {left.ndim} and {right.ndim} dimensions")
    if left.dims is not None and right.dims is not None:
        for a, b in zip(left.dims, right.dims, strict=True):
            if known_different(a, b):
                fail(call, "E0445", f"{shape_text(left.dims)} and {shape_text(right.dims)} differ")
    if left.dtype is not right.dtype and left.dtype is not None and right.dtype is not None:
        fail(call, "E0444", f"the tensors have different dtypes, {left.dtype} and {right.dtype}")
    return result((), left.dtype)


def infer_batch_flatten(call: relax.Call) -> Tensor:
    """(n, all the rest)."""
    data = tensor(call, 0)
    if data.ndim == 2:
        return data
    if data.dims is None:
        return result(None, data.dtype, 2)
    if data.ndim < 2:
        fail(call, "E0445", f"needs at least 2 dimensions, the tensor has {data.ndim}")
    rest: tir.Expr = int64(1)
    for extent in data.dims[1:]:
        rest = construct.mul(rest, extent)
    return result((data.dims[0], rest), data.dtype)


# ---------------------------------------------------------------- lowering: softmax


def _without(x: te.Tensor, at: int) -> list[tir.Expr]:
    return [d for i, d in enumerate(x.buffer.shape) if i != at]


def _insert(i: Sequence[Any], at: int, value: Any) -> list[Any]:
    return [*i[:at], value, *i[at:]]


def _drop(i: Sequence[Any], at: int) -> list[Any]:
    return [*i[:at], *i[at + 1 :]]


def _lower_softmax(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """exp(x - max) / sum, so that nothing overflows."""
    at = call.attrs["axis"] % x.ndim
    k1, k2 = (te.reduce_axis((0, x.shape[at]), "k") for _ in range(2))
    outer = _without(x, at)
    most = te.compute(outer, lambda *i: te.max(x(*_insert(i, at, k1)), axis=k1), name="T_softmax_maxelem")
    power = te.compute(x.shape, lambda *i: te.exp(x(*i) - most(*_drop(i, at))), name="T_softmax_exp")
    total = te.compute(outer, lambda *i: te.sum(power(*_insert(i, at, k2)), axis=k2), name="T_softmax_expsum")
    made: te.Tensor = te.compute(
        x.shape, lambda *i: power(*i) / total(*_drop(i, at)), name="T_softmax_norm", attrs={"axis": at}
    )
    return made


def _lower_log_softmax(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """x - max - log(sum(exp(x - max)))."""
    at = call.attrs["axis"] % x.ndim
    k1, k2 = (te.reduce_axis((0, x.shape[at]), "k") for _ in range(2))
    outer = _without(x, at)
    most = te.compute(outer, lambda *i: te.max(x(*_insert(i, at, k1)), axis=k1), name="T_softmax_maxelem")
    total = te.compute(outer, lambda *i: te.sum(te.exp(x(*_insert(i, at, k2)) - most(*i)), axis=k2), name="compute")
    made: te.Tensor = te.compute(
        x.shape,
        lambda *i: x(*i) - most(*_drop(i, at)) - te.log(total(*_drop(i, at))),
        name="compute",
        attrs={"axis": at},
    )
    return made


# ---------------------------------------------------------------- lowering: the rest


def _lower_dropout(call: relax.Call, x: te.Tensor) -> Any:
    """Inference drops nothing."""
    mask = topi.compute_ax(x.shape, lambda *i: te.const(1, x.dtype), "T_full_like")
    return topi.elementwise(x, lambda v: v), mask


def pad(
    x: te.Tensor, before: Sequence[int], after: Sequence[int], value: Any, name: str, ax: bool = False
) -> te.Tensor:
    """The tensor with a border of `value`."""
    shape = [simplify(construct.add(d, int64(b + a))) for d, b, a in zip(x.buffer.shape, before, after, strict=True)]

    def element(*i: Any) -> Any:
        conditions, places = [], []
        for index, extent, low, high in zip(i, x.buffer.shape, before, after, strict=True):
            moved = raw(index) if low == 0 else construct.sub(raw(index), int64(low))
            places.append(Scalar(moved))
            if low:
                conditions.append(Scalar(construct.greater_equal(raw(index), int64(low))))
            if high:
                conditions.append(Scalar(construct.less(raw(index), construct.add(extent, int64(low)))))
        inside = x(*places)
        return te.if_then_else(te.all(*conditions), inside, value) if conditions else inside

    if ax:
        return topi.compute_ax(shape, element, name)
    made: te.Tensor = te.compute(shape, element, name=name)
    return made


def _lower_pad(call: relax.Call, x: te.Tensor) -> te.Tensor:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    if mode != "constant":
        fail(call, "E0442", f'`pad_mode="{mode}"` cannot be lowered yet; "constant" can')
    return pad(x, widths[::2], widths[1::2], te.const(call.attrs["pad_value"], x.dtype), "PadInput")


def _lower_cross_entropy(call: relax.Call, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """-sum(x * y), over the batch's size where there is one."""
    total = reduce_with(te.sum, topi.multiply(x, y), list(range(x.ndim)))
    negative = topi.multiply(total, te.const(-1, x.dtype))
    return topi.divide(negative, count(x, [0], x.dtype)) if x.ndim > 1 else negative


# ---------------------------------------------------------------- NumPy


def _np_softmax(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    power = np.exp(x - np.max(x, axis=at, keepdims=True, initial=-np.inf))
    return power / np.sum(power, axis=at, keepdims=True)


def _np_log_softmax(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    moved = x - np.max(x, axis=at, keepdims=True, initial=-np.inf)
    return moved - np.log(np.sum(np.exp(moved), axis=at, keepdims=True))


def _np_pad(call: relax.Call, x: Any) -> Any:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode == "constant":
        return np.pad(x, pairs, constant_values=call.attrs["pad_value"])
    return np.pad(x, pairs, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def _np_cross_entropy(call: relax.Call, x: Any, y: Any) -> Any:
    return -np.sum(x * y) / (x.shape[0] if x.ndim > 1 else 1)


OPS: dict[str, Impl] = {
    "nn.softmax": Impl(infer_softmax, _np_softmax, _lower_softmax, FusionKind.OUT_EWISE_FUSABLE),
    "nn.log_softmax": Impl(infer_softmax, _np_log_softmax, _lower_log_softmax, FusionKind.OUT_EWISE_FUSABLE),
    "nn.dropout": Impl(infer_dropout, lambda call, x: (x, np.ones_like(x)), _lower_dropout, FusionKind.ELEMWISE),
    "nn.pad": Impl(infer_pad, _np_pad, _lower_pad, FusionKind.INJECTIVE),
    "nn.cross_entropy_with_logits": Impl(infer_cross_entropy, _np_cross_entropy, _lower_cross_entropy),
    "nn.batch_flatten": Impl(
        infer_batch_flatten, lambda call, x: np.reshape(x, (x.shape[0], -1)),
        lambda call, x: reshape(x, call.struct_info.dims), FusionKind.INJECTIVE,  # type: ignore[union-attr]
    ),
}  # fmt: skip
