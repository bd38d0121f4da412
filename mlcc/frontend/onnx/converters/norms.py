"""Normalization operators."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.helpers import scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir


@converts("BatchNormalization")
def _batch_norm(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, bias: relax.Expr, mean: relax.Expr,
    variance: relax.Expr,
) -> list[relax.Expr]:  # fmt: skip
    epsilon = node.attribute("epsilon", 1e-5)
    if node.attribute("training_mode", 0):
        return _training(t, node, x, (scale, bias, mean, variance), epsilon)
    if len([name for name in node.outputs if name]) > 1:
        raise Unsupported(
            "batch statistics as results are supported in training only", "export the model for inference"
        )
    if not node.attribute("spatial", 1):
        raise Unsupported("`spatial=0`, statistics for each position, is not supported")
    return [_normalized(t, x, (scale, bias, mean, variance), epsilon)]


def _normalized(t: OnnxTranslator, x: relax.Expr, given: Sequence[relax.Expr], epsilon: float) -> relax.Expr:
    """Normalize by the given statistics, in their dtype."""
    dtype, inner = t.dtype(x), t.dtype(given[2])
    normalized = t.emit(
        t.op.nn.batch_norm(t.cast(x, inner), *(t.cast(v, inner) for v in given), 1, epsilon, training=False)
    )
    return t.cast(t.emit(normalized[0]), dtype)


def _training(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, given: Sequence[relax.Expr], epsilon: float
) -> list[relax.Expr]:
    """Normalize by the statistics of the batch, and update the running statistics."""
    scale, bias, mean, variance = given
    axes = [i for i in range(t.ndim(x)) if i != 1]
    wide = t.cast(x, t.dtype(mean))
    batch_mean, batch_variance = t.emit(t.op.mean(wide, axes)), t.emit(t.op.variance(wide, axes))
    momentum = node.attribute("momentum", 0.9)
    scalar = scalar_maker(t, mean)

    def mixed(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        return t.emit(t.op.add(t.op.multiply(old, scalar(momentum)), t.op.multiply(new, scalar(1 - momentum))))

    normalized = _normalized(t, x, (scale, bias, batch_mean, batch_variance), epsilon)
    return [normalized, mixed(mean, batch_mean), mixed(variance, batch_variance)]


@converts("LayerNormalization")
def _layer_norm(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, bias: relax.Expr | None = None
) -> list[relax.Expr]:
    axis, epsilon = t.axis(x, node.attribute("axis", -1)), node.attribute("epsilon", 1e-5)
    axes, extents = list(range(axis, t.ndim(x))), t.shape(x)[axis:]
    scale = _broadcast_parameter(t, scale, extents)
    bias = t.full(extents, 0, t.dtype(scale)) if bias is None else _broadcast_parameter(t, bias, extents)
    normalized = t.emit(t.op.nn.layer_norm(x, scale, bias, axes, epsilon))
    return [normalized, *_statistics(t, node, x, axes, epsilon)]


def _broadcast_parameter(t: OnnxTranslator, value: relax.Expr, extents: Sequence[tir.Expr]) -> relax.Expr:
    """Broadcast a parameter to the normalized shape."""
    wanted: list[Dim] = [*extents]
    shape = t.shape(value)
    if len(shape) > len(wanted):  # dimensions of extent 1 before
        shape = shape[len(shape) - len(wanted) :]
        value = t.reshape(value, shape)
    if t.static_shape(value) is not None and [tir.const_int(n) for n in shape] == [tir.const_int(n) for n in extents]:
        return value
    return t.emit(t.op.broadcast_to(value, t.shape_expr(wanted)))


def _statistics(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axes: Sequence[int], epsilon: float
) -> list[relax.Expr]:
    """Return mean and inverse standard deviation, if they are outputs."""
    if len([name for name in node.outputs if name]) < 2:
        return []
    wide = t.cast(x, "float32" if t.dtype(x) in ("float16", "bfloat16") else t.dtype(x))
    mean, variance = t.emit(t.op.mean(wide, list(axes), True)), t.op.variance(wide, list(axes), True)
    return [mean, t.op.rsqrt(t.op.add(variance, scalar_maker(t, wide)(epsilon)))]


@converts("InstanceNormalization")
def _instance_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, bias: relax.Expr) -> relax.Expr:
    return t.op.nn.instance_norm(x, scale, bias, 1, list(range(2, t.ndim(x))), node.attribute("epsilon", 1e-5))


@converts("GroupNormalization", since=21)
def _group_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, bias: relax.Expr) -> relax.Expr:
    groups, axes = node.attribute("num_groups"), list(range(2, t.ndim(x)))
    return t.op.nn.group_norm(x, scale, bias, groups, 1, axes, node.attribute("epsilon", 1e-5))


@converts("GroupNormalization", since=18)
def _group_norm_by_group(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr, bias: relax.Expr
) -> relax.Expr:
    channels, groups = tir.const_int(t.shape(x)[1]), node.attribute("num_groups")
    if channels is None or channels % groups:
        raise Unsupported(f"{t.shape(x)[1]} channels cannot be split into {groups} groups")
    scale, bias = (t.emit(t.op.repeat(v, channels // groups, 0)) for v in (scale, bias))
    return _group_norm(t, node, x, scale, bias)


@converts("RMSNormalization")
def _rms_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, scale: relax.Expr) -> relax.Expr:
    axis = t.axis(x, node.attribute("axis", -1))
    axes = list(range(axis, t.ndim(x)))
    return t.op.nn.rms_norm(x, _broadcast_parameter(t, scale, t.shape(x)[axis:]), axes, node.attribute("epsilon", 1e-5))


@converts("LRN")
def _local_response(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    size, scalar = node.attribute("size"), scalar_maker(t, x)
    if not 0 < size <= 1024:
        raise Unsupported(f"`size={size}` is not supported")
    before, rank, channels = (size - 1) // 2, t.ndim(x), t.shape(x)[1]
    pads = [0, 0, before, size - 1 - before, *[0] * (2 * (rank - 2))]
    squares = t.emit(t.op.nn.pad(t.op.multiply(x, x), pads))
    total: relax.Expr | None = None
    for i in range(size):
        part = t.emit(t.op.strided_slice(squares, [1], [i], [construct.add(channels, i)], assume_inbound=True))
        total = part if total is None else t.emit(t.op.add(total, part))
    factor = node.attribute("alpha", 1e-4) / size
    base = t.op.add(t.op.multiply(total, scalar(factor)), scalar(node.attribute("bias", 1.0)))
    return t.op.divide(x, t.op.power(base, scalar(node.attribute("beta", 0.75))))


@converts("MeanVarianceNormalization")
def _mean_variance(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    axes = list(node.attribute("axes") or [0, 2, 3])
    centred = t.emit(t.op.subtract(x, t.op.mean(x, axes, True)))
    return t.op.divide(centred, t.op.add(t.op.std(x, axes, True), scalar_maker(t, x)(1e-9)))


@converts("LpNormalization")
def _lp_normalization(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    axis, order = t.axis(x, node.attribute("axis", -1)), node.attribute("p", 2)
    if order not in (1, 2):
        raise Unsupported(f"`p={order}` is not supported, only 1 and 2")
    terms = t.op.abs(x) if order == 1 else t.op.multiply(x, x)
    total = t.op.sum(terms, [axis], True)
    norm = t.emit(total if order == 1 else t.op.sqrt(total))
    s = scalar_maker(t, x)
    nothing = t.emit(t.op.equal(norm, s(0)))
    return t.op.where(nothing, s(0), t.op.divide(x, t.op.where(nothing, s(1), norm)))
