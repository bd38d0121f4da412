"""Normalisation: by layer, root mean square, group, instance and batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import reshape
from mlcc.ops.reduce import comm_reduce, num_elements, reduce_with
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    axes,
    fail,
    int64,
    known_different,
    require_float,
    shape_text,
    simplify,
    tensor,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def _check_parameters(call: relax.Call, norm_axes: Sequence[int], parameters: int) -> Tensor:
    """Check that the parameters of a normalisation have the shape of the data at `norm_axes`."""
    data = tensor(call, 0)
    require_float(call, data)
    where = axes(call, norm_axes, data.ndim) if data.ndim >= 0 else None
    for index in range(1, parameters + 1):
        info = tensor(call, index)
        if info.dtype is not None and data.dtype is not None and info.dtype is not data.dtype:
            fail(call, "E0444", f"argument {index + 1} is {info.dtype}, but the data are {data.dtype}")
        if info.ndim >= 0 and info.ndim != len(norm_axes):
            fail(call, "E0445", f"argument {index + 1} has {info.ndim} dimensions, there are {len(norm_axes)} axes")
        if where is None or data.dims is None or info.dims is None:
            continue
        wanted = [data.dims[a] for a in where]
        if any(known_different(a, b) for a, b in zip(wanted, info.dims, strict=True)):
            text = f"argument {index + 1} has shape {shape_text(info.dims)}, the axes have {shape_text(wanted)}"
            fail(call, "E0445", text)
    return data


def infer_layer_norm(call: relax.Call) -> Tensor:
    """The data's shape; scale and shift have that of its axes."""
    return _check_parameters(call, call.attrs["axes"], 2)


def infer_rms_norm(call: relax.Call) -> Tensor:
    """The data's shape; the weight has that of its axes."""
    return _check_parameters(call, call.attrs["axes"], 1)


def infer_channel_norm(call: relax.Call) -> Tensor:
    """The data's shape; scale and shift have one number per channel."""
    data = _check_parameters(call, (call.attrs["channel_axis"],), 2)
    if data.ndim >= 0:
        axes(call, call.attrs["axes"], data.ndim)
    groups = call.attrs.get("num_groups")
    if groups is not None and data.dims is not None:
        channels = tir.const_int(data.dims[call.attrs["channel_axis"]])
        if channels is not None and (groups <= 0 or channels % groups):
            fail(call, "E0445", f"{channels} channels cannot be divided into {groups} groups")
    return data


def infer_batch_norm(call: relax.Call) -> relax.StructInfo:
    """The data, and the moving mean and variance."""
    data = _check_parameters(call, (call.attrs["axis"],), 4)
    return relax.TupleStructInfo((data, tensor(call, 3), tensor(call, 4)))


# ---------------------------------------------------------------- lowering


def _outer_index(i: Sequence[Any], norm_axes: Sequence[int]) -> list[Any]:
    return [v for a, v in enumerate(i) if a not in norm_axes]


def _parameter_index(i: Sequence[Any], norm_axes: Sequence[int]) -> list[Any]:
    return [i[a] for a in norm_axes]


def _extent(x: te.Tensor, norm_axes: Sequence[int], dtype: DType) -> Scalar:
    """The number of elements along axes: the product of the extents as floats, as in TVM; for narrow floats the integer
    product, rounded once."""
    if dtype.bits < 32:
        return Scalar(num_elements(x, norm_axes, dtype))
    number: tir.Expr = construct.const(1, dtype)
    for a in norm_axes:
        number = construct.mul(number, to_expr(topi.convert_integer(x.buffer.shape[a], dtype)))
    return Scalar(number)


def _compute_dtype(x: te.Tensor) -> DType:
    """The dtype to normalise in: float32 for float16."""
    return FLOAT32 if str(x.dtype) == "float16" else x.dtype


def _lower_layer_norm(call: relax.Call, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    """(x - mean) * rsqrt(variance + epsilon) * gamma + beta."""
    norm_axes = [a % x.ndim for a in call.attrs["axes"]]
    dtype = _compute_dtype(x)
    number = _extent(x, norm_axes, dtype)
    total = comm_reduce(x, norm_axes, False, lambda i, k: te.sum(x(*i).astype(dtype), axis=k), f"{x.name}_sum")
    mean = topi.elementwise_ax(total, lambda v: v / number, f"{x.name}_mean")

    def squared(i: list[Any], k: list[Any]) -> Any:
        distance = x(*i).astype(dtype) - mean(*_outer_index(i, norm_axes))
        return te.sum(distance * distance, axis=k)

    squared_sum = comm_reduce(x, norm_axes, False, squared, f"{x.name}_var_sum")
    epsilon = topi.float_constant(call.attrs["epsilon"], dtype)

    def element(*i: Any) -> Any:
        rest = _outer_index(i, norm_axes)
        centred = x(*i).astype(dtype) - mean(*rest)
        scaled = (centred * te.rsqrt(squared_sum(*rest) / number + epsilon)).astype(x.dtype)
        return scaled * gamma(*_parameter_index(i, norm_axes)) + beta(*_parameter_index(i, norm_axes))

    return topi.compute_ax(x.shape, element, "T_layer_norm")


def _cast_ax(x: te.Tensor, dtype: DType) -> te.Tensor:
    return topi.elementwise_ax(x, lambda v: v.astype(dtype), "T_cast")


def _lower_rms_norm(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x * rsqrt(mean(x * x) + epsilon) * weight, in float32; of float64 in float64."""
    norm_axes = [a % x.ndim for a in call.attrs["axes"]]
    dtype = x.dtype if x.dtype.bits == 64 else FLOAT32
    wide = _cast_ax(x, dtype)
    squares = reduce_with(te.sum, topi.multiply(wide, wide), norm_axes)
    number = _extent(x, norm_axes, dtype)
    epsilon = topi.float_constant(call.attrs["epsilon"], dtype)
    scale = topi.elementwise_ax(squares, lambda v: te.rsqrt(v / number + epsilon), "rsqrt")
    factor = _cast_ax(weight, dtype)

    def element(*i: Any) -> Any:
        return scale(*_outer_index(i, norm_axes)) * wide(*i) * factor(*_parameter_index(i, norm_axes))

    return _cast_ax(topi.compute_ax(x.shape, element, "T_rms_norm"), x.dtype)


def _lower_batch_norm(call: relax.Call, x: te.Tensor, *given: te.Tensor) -> Any:
    """Normalise by the batch's mean and variance in training, else by the moving ones."""
    gamma, beta, moving_mean, moving_var = given
    at = call.attrs["axis"] % x.ndim
    shape = [d if i == at else int64(1) for i, d in enumerate(x.buffer.shape)]
    others = [i for i in range(x.ndim) if i != at]
    training = call.attrs["training"]
    if training:
        number = num_elements(x, others, x.dtype)
        mean = topi.divide(reduce_with(te.sum, x, others), number)
        mean_rows = reshape(mean, shape)
        centred = topi.subtract(x, mean_rows)
        squares = topi.multiply(topi.subtract(x, mean_rows), topi.subtract(x, mean_rows))
        var = topi.divide(reduce_with(te.sum, squares, others), number)
    else:
        mean, var = moving_mean, moving_var
        centred = topi.subtract(x, reshape(mean, shape))
    epsilon = topi.float_constant(call.attrs["epsilon"], x.dtype)
    root = topi.elementwise(topi.add(reshape(var, shape), epsilon), te.sqrt)
    out = topi.divide(centred, root)
    if call.attrs["scale"]:
        out = topi.multiply(out, reshape(gamma, shape))
    if call.attrs["center"]:
        out = topi.add(out, reshape(beta, shape))
    if not training:
        one = te.const(1, x.dtype)
        return out, topi.multiply(moving_mean, one), topi.multiply(moving_var, one)
    return out, _moving_average(call, moving_mean, mean), _moving_average(call, moving_var, var)


def _moving_average(call: relax.Call, old: te.Tensor, new: te.Tensor) -> te.Tensor:
    momentum = call.attrs["momentum"]
    keep, take = topi.float_constant(1 - momentum, old.dtype), topi.float_constant(momentum, old.dtype)
    return topi.add(topi.multiply(keep, old), topi.multiply(take, new))


def _moments(x: te.Tensor, norm_axes: Sequence[int], name: str) -> Any:
    """The sums of the values and of their squares, in one reduction."""
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda s, t: (te.const(0, s), te.const(0, t)), name="moments"
    )
    return comm_reduce(x, norm_axes, False, lambda i, k: both((x(*i), x(*i) * x(*i)), axis=k), name)


def _by_moments(
    x: te.Tensor, norm_axes: Sequence[int], scale: Any, shift: Any, epsilon: float, names: tuple[str, str]
) -> te.Tensor:
    """(x - mean) * rsqrt(mean of squares - mean * mean + epsilon) * scale + shift; the last two by index."""
    dtype = _compute_dtype(x)
    wide = x if dtype is x.dtype else _cast_ax(x, dtype)
    sums, squares = _moments(wide, norm_axes, names[0])
    number = _extent(x, norm_axes, dtype)

    def element(*i: Any) -> Any:
        rest = _outer_index(i, norm_axes)
        mean = sums(*rest) / number
        variance = squares(*rest) / number - mean * mean
        normalized = (wide(*i) - mean) * te.rsqrt(variance + topi.float_constant(epsilon, dtype))
        return normalized.astype(x.dtype) * scale(i) + shift(i)

    return topi.compute_ax(x.shape, element, names[1])


def _lower_instance_norm(call: relax.Call, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    """Normalise each channel of each batch element by its own mean and variance."""
    norm_axes = sorted(a % x.ndim for a in call.attrs["axes"])
    at = call.attrs["channel_axis"] % x.ndim
    names = (f"{x.name}_red_temp", "T_instance_norm")
    return _by_moments(x, norm_axes, lambda i: gamma(i[at]), lambda i: beta(i[at]), call.attrs["epsilon"], names)


def _lower_group_norm(call: relax.Call, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    """Normalise each group of channels by its own mean and variance."""
    at, groups = call.attrs["channel_axis"] % x.ndim, call.attrs["num_groups"]
    dims = x.buffer.shape
    each = simplify(construct.floordiv(dims[at], int64(groups)))
    split = reshape(x, [*dims[:at], int64(groups), each, *dims[at + 1 :]])
    norm_axes = sorted({at + 1, *((a % x.ndim) + (a % x.ndim > at) for a in call.attrs["axes"])})
    scale, shift = (reshape(p, [int64(groups), each]) for p in (gamma, beta))
    names = (f"{x.name}_red_temp", "T_group_norm")
    normalized = _by_moments(
        split,
        norm_axes,
        lambda i: scale(i[at], i[at + 1]),
        lambda i: shift(i[at], i[at + 1]),
        call.attrs["epsilon"],
        names,
    )
    return reshape(normalized, dims)


# ---------------------------------------------------------------- NumPy


def _np_layer_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    norm_axes = tuple(a % x.ndim for a in call.attrs["axes"])
    mean = np.mean(x, axis=norm_axes, keepdims=True)
    var = np.mean((x - mean) ** 2, axis=norm_axes, keepdims=True)
    normalized = (x - mean) / np.sqrt(var + call.attrs["epsilon"])
    return normalized * _np_expand(gamma, norm_axes, x.ndim) + _np_expand(beta, norm_axes, x.ndim)


def _np_expand(value: Any, norm_axes: Sequence[int], ndim: int) -> Any:
    """Reshape a parameter of the extents at `norm_axes` so that it broadcasts against the data."""
    order = np.argsort(norm_axes)
    transposed = np.transpose(value, order)
    shape = [1] * ndim
    for a, extent in zip(sorted(norm_axes), transposed.shape, strict=True):
        shape[a] = extent
    return np.reshape(transposed, shape)


def _np_rms_norm(call: relax.Call, x: Any, weight: Any) -> Any:
    norm_axes = tuple(a % x.ndim for a in call.attrs["axes"])
    scale = 1 / np.sqrt(np.mean(x * x, axis=norm_axes, keepdims=True) + call.attrs["epsilon"])
    return x * scale * _np_expand(weight, norm_axes, x.ndim)


def _np_batch_norm(call: relax.Call, x: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any) -> Any:
    at = call.attrs["axis"] % x.ndim
    others = tuple(i for i in range(x.ndim) if i != at)
    mean, var = moving_mean, moving_var
    if call.attrs["training"]:
        mean, var = np.mean(x, axis=others), np.var(x, axis=others)
    out = (x - _np_expand(mean, (at,), x.ndim)) / np.sqrt(_np_expand(var, (at,), x.ndim) + call.attrs["epsilon"])
    if call.attrs["scale"]:
        out = out * _np_expand(gamma, (at,), x.ndim)
    if call.attrs["center"]:
        out = out + _np_expand(beta, (at,), x.ndim)
    if not call.attrs["training"]:
        return out, moving_mean, moving_var
    rate = call.attrs["momentum"]
    return out, (1 - rate) * moving_mean + rate * mean, (1 - rate) * moving_var + rate * var


def _np_group_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    at, groups = call.attrs["channel_axis"] % x.ndim, call.attrs["num_groups"]
    split = x.reshape([*x.shape[:at], groups, x.shape[at] // groups, *x.shape[at + 1 :]])
    norm_axes = tuple(sorted({at + 1, *((a % x.ndim) + (a % x.ndim > at) for a in call.attrs["axes"])}))
    mean, var = np.mean(split, axis=norm_axes, keepdims=True), np.var(split, axis=norm_axes, keepdims=True)
    normalized = ((split - mean) / np.sqrt(var + call.attrs["epsilon"])).reshape(x.shape)
    return normalized * _np_expand(gamma, (at,), x.ndim) + _np_expand(beta, (at,), x.ndim)


def _np_instance_norm(call: relax.Call, x: Any, gamma: Any, beta: Any) -> Any:
    norm_axes = tuple(a % x.ndim for a in call.attrs["axes"])
    at = call.attrs["channel_axis"] % x.ndim
    mean, var = np.mean(x, axis=norm_axes, keepdims=True), np.var(x, axis=norm_axes, keepdims=True)
    normalized = (x - mean) / np.sqrt(var + call.attrs["epsilon"])
    return normalized * _np_expand(gamma, (at,), x.ndim) + _np_expand(beta, (at,), x.ndim)


_SCALE_PARAMS = "epsilon: float = 1e-05, center: bool = True, scale: bool = True"

OPS: dict[str, Impl] = {
    "nn.layer_norm": Impl(
        f"data, gamma, beta, axes: ints, {_SCALE_PARAMS}",
        infer_layer_norm, _np_layer_norm, _lower_layer_norm, FusionKind.OUT_EWISE_FUSABLE, precision=Precision.FOLLOW,
        layout=layout_rules.norm,
    ),
    "nn.rms_norm": Impl(
        "data, weight, axes: ints = -1, epsilon: float = 1e-05", infer_rms_norm, _np_rms_norm, _lower_rms_norm,
        FusionKind.OUT_EWISE_FUSABLE, precision=Precision.FOLLOW, layout=layout_rules.norm,
    ),
    "nn.group_norm": Impl(
        f"data, gamma, beta, num_groups: int, channel_axis: int, axes: ints, {_SCALE_PARAMS}",
        infer_channel_norm, _np_group_norm, _lower_group_norm, precision=Precision.FOLLOW, layout=layout_rules.norm,
    ),
    "nn.instance_norm": Impl(
        f"data, gamma, beta, channel_axis: int, axes: ints, {_SCALE_PARAMS}",
        infer_channel_norm, _np_instance_norm, _lower_instance_norm, precision=Precision.FOLLOW,
        layout=layout_rules.norm,
    ),
    "nn.batch_norm": Impl(
        f"data, gamma, beta, moving_mean, moving_var, axis: int, {_SCALE_PARAMS}, momentum: float = 0.1, training: "
        f"bool = True",
        infer_batch_norm, _np_batch_norm, _lower_batch_norm, layout=layout_rules.batch_norm,
    ),
}  # fmt: skip
