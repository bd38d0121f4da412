"""Normalization over layers, groups, instances and batches, and of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.reductions import norm, var_mean
from mlcc.frontend.aten.converters.shapes import simplify_extent, total_size
from mlcc.frontend.aten.promotion import as_tensor, is_float
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax
from mlcc.relax import op

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def _scale_and_shift(
    t: Translator, weight: relax.Expr | None, bias: relax.Expr | None, shape: Sequence[Dim], dtype: str
) -> tuple[relax.Expr, relax.Expr]:
    """Return scale and shift, with the defaults 1 and 0."""
    given = (weight, bias)
    return tuple(  # type: ignore[return-value]
        t.full(shape, usual, dtype) if value is None else t.cast(value, dtype)
        for value, usual in zip(given, (1, 0), strict=True)
    )


def _last_axes(t: Translator, value: relax.Expr, count: int) -> list[int]:
    return list(range(t.ndim(value) - count, t.ndim(value)))


# ---------------------------------------------------------------- layers


@converts("aten.layer_norm")
def _layer_norm(
    t: Translator, input: relax.Expr, normalized_shape: list[Dim], weight: relax.Expr | None = None,
    bias: relax.Expr | None = None, eps: float = 1e-05, cudnn_enable: bool = True,
) -> relax.Expr:  # fmt: skip
    scale, shift = _scale_and_shift(t, weight, bias, normalized_shape, t.dtype(input))
    return op.nn.layer_norm(input, scale, shift, axes=_last_axes(t, input, len(normalized_shape)), epsilon=eps)


@converts("aten.native_layer_norm")
def _native_layer_norm(
    t: Translator, input: relax.Expr, normalized_shape: list[Dim], weight: relax.Expr | None,
    bias: relax.Expr | None, eps: float,
) -> list[relax.Expr]:  # fmt: skip
    normalized = t.emit(_layer_norm(t, input, normalized_shape, weight, bias, eps))
    return [normalized, *_statistics(t, input, _last_axes(t, input, len(normalized_shape)), eps, True)]


def _statistics(
    t: Translator, value: relax.Expr, axes: Sequence[int], eps: float, keepdim: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Mean and 1 / sqrt(variance + eps) along axes."""
    variance, mean = var_mean(t, value, axes, correction=0, keepdim=keepdim)
    return mean, t.emit(op.rsqrt(op.add(variance, t.scalar(eps, t.dtype(value)))))


@converts("aten.rms_norm")
def _rms_norm(
    t: Translator, input: relax.Expr, normalized_shape: list[Dim], weight: relax.Expr | None = None,
    eps: float | None = None,
) -> relax.Expr:  # fmt: skip
    dtype = t.dtype(input)
    scale, _ = _scale_and_shift(t, weight, None, normalized_shape, dtype)
    axes = _last_axes(t, input, len(normalized_shape))
    return op.nn.rms_norm(input, scale, axes=axes, epsilon=_EPSILON[dtype] if eps is None else eps)


@converts("aten._fused_rms_norm")
def _fused_rms_norm(
    t: Translator, input: relax.Expr, normalized_shape: list[Dim], weight: relax.Expr | None, eps: float | None
) -> list[relax.Expr]:
    dtype = t.dtype(input)
    least = t.scalar(_EPSILON[dtype] if eps is None else eps, dtype)
    axes = _last_axes(t, input, len(normalized_shape))
    root = op.rsqrt(op.add(op.mean(op.multiply(input, input), axis=axes, keepdims=True), least))
    return [t.emit(_rms_norm(t, input, normalized_shape, weight, eps)), t.emit(root)]


# ---------------------------------------------------------------- groups and instances


@converts("aten.group_norm")
def _group_norm(
    t: Translator, input: relax.Expr, num_groups: int, weight: relax.Expr | None = None,
    bias: relax.Expr | None = None, eps: float = 1e-05, cudnn_enabled: bool = True,
) -> relax.Expr:  # fmt: skip
    scale, shift = _scale_and_shift(t, weight, bias, [t.shape(input)[1]], t.dtype(input))
    axes = list(range(2, t.ndim(input)))
    return op.nn.group_norm(input, scale, shift, num_groups=num_groups, channel_axis=1, axes=axes, epsilon=eps)


@converts("aten.native_group_norm")
def _native_group_norm(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, N: Dim, C: Dim, HxW: Dim,
    group: int, eps: float,
) -> list[relax.Expr]:  # fmt: skip
    batch, channels, *rest = t.shape(input)
    each = simplify_extent(construct.floordiv(channels, construct.const(group, "int64")))
    lines = t.reshape(input, [batch, group, total_size([each, *rest])])
    return [t.emit(_group_norm(t, input, group, weight, bias, eps)), *_statistics(t, lines, [2], eps, False)]


@converts("aten.instance_norm")
def _instance_norm(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None,
    running_mean: relax.Expr | None, running_var: relax.Expr | None, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> relax.Expr:  # fmt: skip
    if not use_input_stats:
        return _normalize_with(t, input, weight, bias, running_mean, running_var, eps)
    _refuse_training(running_mean)
    scale, shift = _scale_and_shift(t, weight, bias, [t.shape(input)[1]], t.dtype(input))
    axes = list(range(2, t.ndim(input)))
    return op.nn.instance_norm(input, scale, shift, channel_axis=1, axes=axes, epsilon=eps)


# ---------------------------------------------------------------- batches


def _refuse_training(running_mean: relax.Expr | None) -> None:
    if running_mean is not None:
        raise Unsupported("running statistics are updated only in training", "export the model in eval mode")


def _normalize_with(
    t: Translator, value: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, mean: relax.Expr | None,
    variance: relax.Expr | None, eps: float,
) -> relax.Expr:  # fmt: skip
    if mean is None or variance is None:
        raise Unsupported("running statistics are missing")
    dtype = t.dtype(value)
    scale, shift = _scale_and_shift(t, weight, bias, [t.shape(value)[1]], dtype)
    normalized = op.nn.batch_norm(
        value, scale, shift, t.cast(mean, dtype), t.cast(variance, dtype), axis=1, epsilon=eps, training=False
    )
    return t.emit(t.emit(normalized)[0])


def _normalize_by_batch(
    t: Translator, value: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, eps: float
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Normalize by the batch's own statistics. Return the result, and the mean and variance of each channel."""
    axes = [0, *range(2, t.ndim(value))]
    variance, mean = var_mean(t, value, axes, correction=0)
    return _normalize_with(t, value, weight, bias, mean, variance, eps), mean, variance


@converts("aten.batch_norm", "aten._batch_norm_impl_index")
def _batch_norm(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None,
    running_mean: relax.Expr | None, running_var: relax.Expr | None, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> relax.Expr:  # fmt: skip
    if not training:
        return _normalize_with(t, input, weight, bias, running_mean, running_var, eps)
    _refuse_training(running_mean)
    return _normalize_by_batch(t, input, weight, bias, eps)[0]


@converts("aten._native_batch_norm_legit_no_training")
def _no_training(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, running_mean: relax.Expr,
    running_var: relax.Expr, momentum: float, eps: float,
) -> list[relax.Expr | None]:  # fmt: skip
    empty = t.full([0], 0, t.dtype(running_mean))
    return [_normalize_with(t, input, weight, bias, running_mean, running_var, eps), empty, empty]


@converts("aten._native_batch_norm_legit.no_stats")
def _no_stats(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, training: bool,
    momentum: float, eps: float,
) -> list[relax.Expr]:  # fmt: skip
    normalized, mean, variance = _normalize_by_batch(t, input, weight, bias, eps)
    return [normalized, mean, t.emit(op.rsqrt(op.add(variance, t.scalar(eps, t.dtype(variance)))))]


@converts("aten._native_batch_norm_legit.default")
def _native_batch_norm(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, running_mean: relax.Expr,
    running_var: relax.Expr, training: bool, momentum: float, eps: float,
) -> list[Any]:  # fmt: skip
    if training:
        _refuse_training(running_mean)
    return _no_training(t, input, weight, bias, running_mean, running_var, momentum, eps)


@converts("aten._native_batch_norm_legit_functional")
def _functional(
    t: Translator, input: relax.Expr, weight: relax.Expr | None, bias: relax.Expr | None, running_mean: relax.Expr,
    running_var: relax.Expr, training: bool, momentum: float, eps: float,
) -> list[Any]:  # fmt: skip
    if not training:
        return [
            *_no_training(t, input, weight, bias, running_mean, running_var, momentum, eps),
            running_mean,
            running_var,
        ]
    normalized, mean, inverse = _no_stats(t, input, weight, bias, True, momentum, eps)
    axes = [0, *range(2, t.ndim(input))]
    unbiased, _ = var_mean(t, input, axes, correction=1)
    moved = [
        t.emit(op.add(op.multiply(old, t.scalar(1 - momentum, t.dtype(old))),
                      op.multiply(t.cast(new, t.dtype(old)), t.scalar(momentum, t.dtype(old)))))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]  # fmt: skip
    return [normalized, mean, inverse, *moved]


# ---------------------------------------------------------------- weights


@converts("aten._weight_norm")
def _weight_norm(t: Translator, v: relax.Expr, g: relax.Expr, dim: int = 0) -> relax.Expr:
    return op.multiply(v, op.divide(g, _norm_except(t, v, dim)))


@converts("aten._weight_norm_interface")
def _weight_norm_interface(t: Translator, v: relax.Expr, g: relax.Expr, dim: int = 0) -> list[relax.Expr]:
    size = _norm_except(t, v, dim)
    return [t.emit(op.multiply(v, op.divide(g, size))), size]


@converts("aten.norm_except_dim")
def _norm_except_dim(t: Translator, v: relax.Expr, pow: int = 2, dim: int = 0) -> relax.Expr:
    return _norm_except(t, v, dim, pow)


def _norm_except(t: Translator, value: relax.Expr, dim: int, p: int = 2) -> relax.Expr:
    """Norms over all axes but one; over all for -1."""
    axes = None if dim == -1 else [a for a in range(t.ndim(value)) if a != dim]
    return norm(t, value, float(p), axes, dim != -1)


@converts("aten.cosine_similarity")
def _cosine_similarity(t: Translator, x1: relax.Expr, x2: relax.Expr, dim: int = 1, eps: float = 1e-08) -> relax.Expr:
    dtype = t.dtype(x1)
    if not is_float(dtype):
        raise Unsupported("cosine similarity of integers is not supported")
    least = as_tensor(t, eps, dtype)
    axis = [t.axis(x1, dim)]
    one, two = (t.emit(op.divide(x, op.maximum(norm(t, x, 2.0, axis, True), least))) for x in (x1, x2))
    return op.sum(op.multiply(one, two), axis=axis)


@converts("aten.pairwise_distance")
def _pairwise_distance(
    t: Translator, x1: relax.Expr, x2: relax.Expr, p: float = 2, eps: float = 1e-06, keepdim: bool = False
) -> relax.Expr:
    away = t.emit(op.add(op.subtract(x1, x2), t.scalar(eps, t.dtype(x1))))
    return norm(t, away, p, [-1], keepdim)
