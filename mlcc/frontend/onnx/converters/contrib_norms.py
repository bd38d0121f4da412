"""Normalization of onnxruntime: with residual sums, root mean squares, embeddings."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import MICROSOFT, iota_along, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax


def _wants(node: OnnxNode, output: int) -> bool:
    return len(node.outputs) > output and bool(node.outputs[output])


def _refuse_statistics(node: OnnxNode) -> None:
    if _wants(node, 1) or _wants(node, 2):
        raise Unsupported("means and deviations as results are supported in training only")


def _sum_of(t: OnnxTranslator, *parts: relax.Expr | None) -> relax.Expr:
    first, *rest = (part for part in parts if part is not None)
    for part in rest:
        first = t.emit(t.op.add(first, part))
    return first


def _layer_norm(
    t: OnnxTranslator, x: relax.Expr, gamma: relax.Expr, beta: relax.Expr | None, least: float
) -> relax.Expr:
    bias = t.full(t.shape(gamma), 0, t.dtype(gamma)) if beta is None else beta
    return t.emit(t.op.nn.layer_norm(x, gamma, bias, [t.ndim(x) - 1], least))


@converts("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_norm(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    skip: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr | None = None,
    bias: relax.Expr | None = None,
) -> list[relax.Expr | None]:
    _refuse_statistics(node)
    total = _sum_of(t, x, skip, bias)
    return [_layer_norm(t, total, gamma, beta, node.attribute("epsilon", 1e-12)), None, None, total]


@converts("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms_norm(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    skip: relax.Expr,
    gamma: relax.Expr,
    bias: relax.Expr | None = None,
) -> list[relax.Expr | None]:
    _refuse_statistics(node)
    total = _sum_of(t, x, skip, bias)
    normalized = t.op.nn.rms_norm(total, gamma, [t.ndim(total) - 1], node.attribute("epsilon", 1e-12))
    return [t.emit(normalized), None, None, total]


@converts("SimplifiedLayerNormalization")
@converts("SimplifiedLayerNormalization", domain=MICROSOFT)
def _rms_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, gamma: relax.Expr) -> relax.Expr:
    if _wants(node, 1):
        raise Unsupported("deviations as results are supported in training only")
    axes = list(range(t.axis(x, node.attribute("axis", -1)), t.ndim(x)))
    return t.op.nn.rms_norm(x, t.cast(gamma, t.dtype(x)), axes, node.attribute("epsilon", 1e-5))


@converts("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_norm(
    t: OnnxTranslator,
    node: OnnxNode,
    words: relax.Expr,
    segments: relax.Expr | None,
    word_table: relax.Expr,
    position_table: relax.Expr,
    segment_table: relax.Expr | None,
    gamma: relax.Expr,
    beta: relax.Expr,
    mask: relax.Expr | None = None,
    positions: relax.Expr | None = None,
) -> list[relax.Expr | None]:
    batch, length = t.shape(words)
    if positions is None:
        positions = iota_along(t, 2, 1, length)
    places = t.emit(t.op.take(position_table, positions, 0))
    kinds = None
    if segments is not None and segment_table is not None:
        kinds = t.emit(t.op.take(segment_table, segments, 0))
    total = _sum_of(t, t.emit(t.op.take(word_table, words, 0)), places, kinds)
    normalized = _layer_norm(t, total, gamma, beta, node.attribute("epsilon", 1e-12))
    if not _wants(node, 1):
        return [normalized, None, total]
    if mask is None:
        return [normalized, t.full([batch], 0, "int32"), total]
    present = t.op.astype(t.op.equal(mask, scalar_maker(t, mask)(1)), "int32")
    return [normalized, t.emit(t.op.sum(present, [1])), total]


@converts("GroupNorm", domain=MICROSOFT)
def _group_norm(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, gamma: relax.Expr, beta: relax.Expr) -> relax.Expr:
    last, rank = bool(node.attribute("channels_last", 1)), t.ndim(x)
    axis = rank - 1 if last else 1
    space = [i for i in range(1, rank) if i != axis]
    gamma, beta = (t.cast(v, t.dtype(x)) for v in (gamma, beta))
    groups, least = node.attribute("groups"), node.attribute("epsilon", 1e-5)
    normalized = t.op.nn.group_norm(x, gamma, beta, groups, axis, space, least)
    return t.op.nn.silu(normalized) if node.attribute("activation", 0) else normalized


@converts("BiasAdd", domain=MICROSOFT)
def _bias_add(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, bias: relax.Expr, skip: relax.Expr) -> relax.Expr:
    return _sum_of(t, x, bias, skip)


@converts("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, bias: relax.Expr) -> relax.Expr:
    halves = t.emit(t.op.split(t.op.add(x, bias), 2, t.ndim(x) - 1))
    return t.op.multiply(t.emit(halves[0]), t.op.nn.gelu(t.emit(halves[1])))


@converts("BiasSoftmax", domain=MICROSOFT)
def _bias_softmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, bias: relax.Expr) -> relax.Expr:
    axis = t.axis(x, node.attribute("axis", 1))
    if axis != t.ndim(x) - 1 or not node.attribute("is_inner_broadcast", 0) and t.ndim(bias) != t.ndim(x):
        raise Unsupported("a bias repeated along leading axes, and a softmax over several axes, are not supported")
    return t.op.nn.softmax(t.op.add(x, bias), axis)
