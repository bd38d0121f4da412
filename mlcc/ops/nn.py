"""Neural network operators but convolutions and pooling: softmax, normalisation, dropout, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import reshape
from mlcc.ops.reduce import comm_reduce, count, reduce_with
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Tensor,
    axes,
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


def _normalised(call: relax.Call, places: Sequence[int], parameters: int) -> Tensor:
    """Check the parameters of a normalisation, which have the shape of the data at `places`."""
    data = tensor(call, 0)
    float_dtype(call, data)
    where = axes(call, places, data.ndim) if data.ndim >= 0 else None
    for index in range(1, parameters + 1):
        info = tensor(call, index)
        if info.dtype is not None and data.dtype is not None and info.dtype is not data.dtype:
            fail(call, "E0444", f"argument {index + 1} is of {info.dtype}, the data of {data.dtype}")
        if info.ndim >= 0 and info.ndim != len(places):
            fail(call, "E0445", f"argument {index + 1} has {info.ndim} dimensions, there are {len(places)} axes")
        if where is None or data.dims is None or info.dims is None:
            continue
        wanted = [data.dims[a] for a in where]
        if any(known_different(a, b) for a, b in zip(wanted, info.dims, strict=True)):
            text = f"argument {index + 1} has shape {shape_text(info.dims)}, the axes have {shape_text(wanted)}"
            fail(call, "E0445", text)
    return data


def infer_layer_norm(call: relax.Call) -> Tensor:
    """The data's shape; scale and shift have that of its axes."""
    return _normalised(call, call.attrs["axes"], 2)


def infer_rms_norm(call: relax.Call) -> Tensor:
    """The data's shape; the weight has that of its axes."""
    return _normalised(call, call.attrs["axes"], 1)


def infer_channel_norm(call: relax.Call) -> Tensor:
    """The data's shape; scale and shift have one number per channel."""
    data = _normalised(call, (call.attrs["channel_axis"],), 2)
    if data.ndim >= 0:
        axes(call, call.attrs["axes"], data.ndim)
    groups = call.attrs.get("num_groups")
    if groups is not None and data.dims is not None:
        channels = tir.const_int(data.dims[call.attrs["channel_axis"]])
        if channels is not None and (groups <= 0 or channels % groups):
            fail(call, "E0445", f"{channels} channels cannot make {groups} groups")
    return data


def infer_batch_norm(call: relax.Call) -> relax.StructInfo:
    """The data, and the moving mean and variance."""
    data = _normalised(call, (call.attrs["axis"],), 4)
    return relax.TupleStructInfo((data, tensor(call, 3), tensor(call, 4)))


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


# ---------------------------------------------------------------- lowering: normalisation


def _kept(i: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [v for a, v in enumerate(i) if a not in places]


def _at(i: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [i[a] for a in places]


def _wide(x: te.Tensor) -> DType:
    """float16 is normalised in float32."""
    return FLOAT32 if str(x.dtype) == "float16" else x.dtype


def _lower_layer_norm(call: relax.Call, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    """(x - mean) * rsqrt(variance + epsilon) * gamma + beta."""
    places = [a % x.ndim for a in call.attrs["axes"]]
    dtype = _wide(x)
    number = count(x, places, dtype)
    total = comm_reduce(x, places, False, lambda i, k: te.sum(x(*i).astype(dtype), axis=k), f"{x.name}_sum")
    mean = topi.elementwise_ax(total, lambda v: v / Scalar(number), f"{x.name}_mean")

    def squared(i: list[Any], k: list[Any]) -> Any:
        distance = x(*i).astype(dtype) - mean(*_kept(i, places))
        return te.sum(distance * distance, axis=k)

    spread = comm_reduce(x, places, False, squared, f"{x.name}_var_sum")
    epsilon = te.const(call.attrs["epsilon"], dtype)

    def element(*i: Any) -> Any:
        rest = _kept(i, places)
        centred = x(*i).astype(dtype) - mean(*rest)
        scaled = (centred * te.rsqrt(spread(*rest) / Scalar(number) + epsilon)).astype(x.dtype)
        return scaled * gamma(*_at(i, places)) + beta(*_at(i, places))

    return topi.compute_ax(x.shape, element, "T_layer_norm")


def _cast_ax(x: te.Tensor, dtype: DType) -> te.Tensor:
    return topi.elementwise_ax(x, lambda v: v.astype(dtype), "T_cast")


def _lower_rms_norm(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x * rsqrt(mean(x * x) + epsilon) * weight, in float32."""
    places = [a % x.ndim for a in call.attrs["axes"]]
    wide = _cast_ax(x, FLOAT32)
    squares = reduce_with(te.sum, topi.multiply(wide, wide), places)
    number = count(x, places, FLOAT32)
    epsilon = te.const(call.attrs["epsilon"], FLOAT32)
    scale = topi.elementwise_ax(squares, lambda v: te.rsqrt(v / Scalar(number) + epsilon), "rsqrt")
    factor = _cast_ax(weight, FLOAT32)

    def element(*i: Any) -> Any:
        return scale(*_kept(i, places)) * wide(*i) * factor(*_at(i, places))

    return _cast_ax(topi.compute_ax(x.shape, element, "T_rms_norm"), x.dtype)


def _lower_batch_norm(call: relax.Call, x: te.Tensor, *given: te.Tensor) -> Any:
    """Normalised by the batch's mean and variance in training, else by the moving ones."""
    gamma, beta, moving_mean, moving_var = given
    at = call.attrs["axis"] % x.ndim
    shape = [d if i == at else int64(1) for i, d in enumerate(x.buffer.shape)]
    others = [i for i in range(x.ndim) if i != at]
    training = call.attrs["training"]
    if training:
        number = count(x, others, x.dtype)
        mean = topi.divide(reduce_with(te.sum, x, others), number)
        mean_rows = reshape(mean, shape)
        centred = topi.subtract(x, mean_rows)
        squares = topi.multiply(topi.subtract(x, mean_rows), topi.subtract(x, mean_rows))
        var = topi.divide(reduce_with(te.sum, squares, others), number)
    else:
        mean, var = moving_mean, moving_var
        centred = topi.subtract(x, reshape(mean, shape))
    epsilon = te.const(call.attrs["epsilon"], x.dtype)
    root = topi.elementwise(topi.add(reshape(var, shape), epsilon), te.sqrt)
    out = topi.divide(centred, root)
    if call.attrs["scale"]:
        out = topi.multiply(out, reshape(gamma, shape))
    if call.attrs["center"]:
        out = topi.add(out, reshape(beta, shape))
    if not training:
        one = te.const(1, x.dtype)
        return out, topi.multiply(moving_mean, one), topi.multiply(moving_var, one)
    return out, _moved(call, moving_mean, mean), _moved(call, moving_var, var)


def _moved(call: relax.Call, old: te.Tensor, new: te.Tensor) -> te.Tensor:
    momentum = call.attrs["momentum"]
    keep, take = te.const(1 - momentum, old.dtype), te.const(momentum, old.dtype)
    return topi.add(topi.multiply(keep, old), topi.multiply(take, new))


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
    power = np.exp(x - np.max(x, axis=at, keepdims=True))
    return power / np.sum(power, axis=at, keepdims=True)


def _np_log_softmax(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    moved = x - np.max(x, axis=at, keepdims=True)
    return moved - np.log(np.sum(np.exp(moved), axis=at, keepdims=True))


def _np_layer_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    places = tuple(a % x.ndim for a in call.attrs["axes"])
    mean = np.mean(x, axis=places, keepdims=True)
    var = np.mean((x - mean) ** 2, axis=places, keepdims=True)
    made = (x - mean) / np.sqrt(var + call.attrs["epsilon"])
    return made * _spread(gamma, places, x.ndim) + _spread(beta, places, x.ndim)


def _spread(value: Any, places: Sequence[int], ndim: int) -> Any:
    """A parameter of the shape of `places`, so that it broadcasts over all dimensions."""
    order = np.argsort(places)
    turned = np.transpose(value, order)
    shape = [1] * ndim
    for a, extent in zip(sorted(places), turned.shape, strict=True):
        shape[a] = extent
    return np.reshape(turned, shape)


def _np_rms_norm(call: relax.Call, x: Any, weight: Any) -> Any:
    places = tuple(a % x.ndim for a in call.attrs["axes"])
    scale = 1 / np.sqrt(np.mean(x * x, axis=places, keepdims=True) + call.attrs["epsilon"])
    return x * scale * _spread(weight, places, x.ndim)


def _np_batch_norm(call: relax.Call, x: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any) -> Any:
    at = call.attrs["axis"] % x.ndim
    others = tuple(i for i in range(x.ndim) if i != at)
    mean, var = moving_mean, moving_var
    if call.attrs["training"]:
        mean, var = np.mean(x, axis=others), np.var(x, axis=others)
    out = (x - _spread(mean, (at,), x.ndim)) / np.sqrt(_spread(var, (at,), x.ndim) + call.attrs["epsilon"])
    if call.attrs["scale"]:
        out = out * _spread(gamma, (at,), x.ndim)
    if call.attrs["center"]:
        out = out + _spread(beta, (at,), x.ndim)
    if not call.attrs["training"]:
        return out, moving_mean, moving_var
    rate = call.attrs["momentum"]
    return out, (1 - rate) * moving_mean + rate * mean, (1 - rate) * moving_var + rate * var


def _np_pad(call: relax.Call, x: Any) -> Any:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode == "constant":
        return np.pad(x, pairs, constant_values=call.attrs["pad_value"])
    return np.pad(x, pairs, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def _np_group_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    at, groups = call.attrs["channel_axis"] % x.ndim, call.attrs["num_groups"]
    split = x.reshape([*x.shape[:at], groups, x.shape[at] // groups, *x.shape[at + 1 :]])
    places = tuple(sorted({at + 1, *((a % x.ndim) + (a % x.ndim > at) for a in call.attrs["axes"])}))
    mean, var = np.mean(split, axis=places, keepdims=True), np.var(split, axis=places, keepdims=True)
    made = ((split - mean) / np.sqrt(var + call.attrs["epsilon"])).reshape(x.shape)
    return made * _spread(gamma, (at,), x.ndim) + _spread(beta, (at,), x.ndim)


def _np_instance_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    places = tuple(a % x.ndim for a in call.attrs["axes"])
    at = call.attrs["channel_axis"] % x.ndim
    mean, var = np.mean(x, axis=places, keepdims=True), np.var(x, axis=places, keepdims=True)
    made = (x - mean) / np.sqrt(var + call.attrs["epsilon"])
    return made * _spread(gamma, (at,), x.ndim) + _spread(beta, (at,), x.ndim)


def _np_cross_entropy(call: relax.Call, x: Any, y: Any) -> Any:
    return -np.sum(x * y) / (x.shape[0] if x.ndim > 1 else 1)


OPS: dict[str, Impl] = {
    "nn.softmax": Impl(infer_softmax, _np_softmax, _lower_softmax, FusionKind.OUT_EWISE_FUSABLE),
    "nn.log_softmax": Impl(infer_softmax, _np_log_softmax, _lower_log_softmax, FusionKind.OUT_EWISE_FUSABLE),
    "nn.dropout": Impl(infer_dropout, lambda call, x: (x, np.ones_like(x)), _lower_dropout, FusionKind.ELEMWISE),
    "nn.layer_norm": Impl(infer_layer_norm, _np_layer_norm, _lower_layer_norm, FusionKind.OUT_EWISE_FUSABLE),
    "nn.rms_norm": Impl(infer_rms_norm, _np_rms_norm, _lower_rms_norm, FusionKind.OUT_EWISE_FUSABLE),
    "nn.group_norm": Impl(infer_channel_norm, _np_group_norm),
    "nn.instance_norm": Impl(infer_channel_norm, _np_instance_norm),
    "nn.batch_norm": Impl(infer_batch_norm, _np_batch_norm, _lower_batch_norm),
    "nn.pad": Impl(infer_pad, _np_pad, _lower_pad, FusionKind.INJECTIVE),
    "nn.cross_entropy_with_logits": Impl(infer_cross_entropy, _np_cross_entropy, _lower_cross_entropy),
    "nn.batch_flatten": Impl(
        infer_batch_flatten, lambda call, x: np.reshape(x, (x.shape[0], -1)),
        lambda call, x: reshape(x, call.struct_info.dims), FusionKind.INJECTIVE,  # type: ignore[union-attr]
    ),
}  # fmt: skip
