"""Attention of onnxruntime: with projections and biases, padding masks, and rotary embeddings."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.onnx.attention import (
    ATTENTION_WEIGHTS,
    AttentionInputs,
    AttentionMask,
    append_to_cache,
    attend,
    difference,
    join_heads,
    padding_mask,
    split_heads,
)  # fmt: skip
from mlcc.frontend.onnx.converters.attention import rotary_embedding
from mlcc.frontend.onnx.helpers import (
    MICROSOFT,
    constant_extent,
    floor_quotient,
    iota_along,
    scalar_maker,
    slice_axis,
    swap_axes,
)
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir

FILTER = -10000.0  # added to the scores of masked keys
BEAMS = "beam search and shared buffers of past and present keys are not supported"


def _add_filter_mask(t: OnnxTranslator, node: OnnxNode, mask: AttentionMask, given: relax.Expr, keys: tir.Expr) -> None:
    """Add `mask_filter_value` to the scores of keys whose mask is 0, or that are after the end of their sequence."""
    rank = t.ndim(given)
    if rank == 1:
        seen = padding_mask(t, keys, given)
    elif rank in (2, 3):
        wide = t.emit(t.op.expand_dims(given, [1] if rank == 3 else [1, 2]))
        seen = t.emit(t.op.not_equal(wide, scalar_maker(t, wide)(0)))
    else:
        raise Unsupported(f"a mask of {rank} dimensions is not supported")
    hidden = node.attribute("mask_filter_value", FILTER)
    s = (t.scalar(v, mask.dtype) for v in (0.0, max(hidden, -65504.0) if mask.dtype == "float16" else hidden))
    mask.add(t.emit(t.op.where(seen, *s)))


@converts("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(
    t: OnnxTranslator,
    node: OnnxNode,
    query: relax.Expr,
    key: relax.Expr | None = None,
    value: relax.Expr | None = None,
    bias: relax.Expr | None = None,
    key_mask: relax.Expr | None = None,
    added: relax.Expr | None = None,
    past_key: relax.Expr | None = None,
    past_value: relax.Expr | None = None,
    past_length: relax.Expr | None = None,
    beams: relax.Expr | None = None,
) -> list[Any]:
    if past_length is not None or beams is not None:
        raise Unsupported(BEAMS)
    count = node.attribute("num_heads")
    q, k, v = _split_qkv(t, query, key, value, bias, count)
    every_key, every_value = append_to_cache(t, past_key, k), append_to_cache(t, past_value, v)
    mask, keys = AttentionMask(t, t.dtype(q)), t.shape(every_key)[2]
    if key_mask is not None:
        if t.ndim(key_mask) == 2:
            _check_mask_length(t, key_mask, keys)
        _add_filter_mask(t, node, mask, key_mask, keys)
    if added is not None:
        mask.add(added)
    if node.attribute("unidirectional", 0):
        mask.apply_causal(t.shape(q)[2], t.shape(k)[2], keys)
    wanted = ATTENTION_WEIGHTS if len(node.outputs) > 3 and node.outputs[3] else None
    heads = AttentionInputs(q, every_key, every_value, node.attribute("scale") or None)
    attended, weights = attend(t, heads, mask, wanted)
    return [join_heads(t, attended), every_key, every_value, weights]


def _check_mask_length(t: OnnxTranslator, mask: relax.Expr, keys: tir.Expr) -> None:
    missing = difference(keys, t.shape(mask)[1])
    if isinstance(missing, int) and missing:
        raise Unsupported(f"the mask has {t.shape(mask)[1]} keys, but there are {keys}")


def _split_qkv(
    t: OnnxTranslator,
    query: relax.Expr,
    key: relax.Expr | None,
    value: relax.Expr | None,
    bias: relax.Expr | None,
    count: int,
) -> list[relax.Expr]:
    """Return queries, keys and values as (batch, heads, length, width), from any of the supported input layouts."""
    if t.ndim(query) == 5:
        parts = _unpack_heads(t, query, 3)
    elif key is not None and t.ndim(key) == 5:
        parts = [split_heads(t, query, count), *_unpack_heads(t, key, 2)]
    elif key is None or value is None:
        raise Unsupported("keys and values are missing")
    else:
        parts = [split_heads(t, v, count) if t.ndim(v) == 3 else v for v in (query, key, value)]
    if bias is None:
        return parts
    projections, at = [], 0
    for part in parts:
        width = constant_extent(t.shape(part)[3], "the width of heads")
        own = slice_axis(t, bias, 0, at, at + count * width)
        projections.append(t.emit(t.op.add(part, t.reshape(own, [count, 1, width]))))
        at += count * width
    return projections


def _unpack_heads(t: OnnxTranslator, value: relax.Expr, parts: int) -> list[relax.Expr]:
    """Split (batch, length, heads, parts, width) into its parts."""
    return [swap_axes(t, t.emit(t.op.squeeze(slice_axis(t, value, 3, i, i + 1), [3])), 1, 2) for i in range(parts)]


@converts("Attention", domain=MICROSOFT)
def _projected_attention(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    weights: relax.Expr,
    bias: relax.Expr | None = None,
    given: relax.Expr | None = None,
    past: relax.Expr | None = None,
    added: relax.Expr | None = None,
    past_length: relax.Expr | None = None,
) -> list[Any]:
    if past_length is not None or node.attribute("past_present_share_buffer", 0):
        raise Unsupported(BEAMS)
    if node.attribute("do_rotary", 0):
        raise Unsupported("`do_rotary=1` is not supported")
    count = node.attribute("num_heads")
    third = constant_extent(floor_quotient(t.shape(weights)[1], 3), "the width of the projection")
    widths = list(node.attribute("qkv_hidden_sizes", ())) or [third] * 3
    projected = t.op.matmul(x, weights)
    projected = t.emit(projected if bias is None else t.op.add(projected, bias))
    ends = [sum(widths[: i + 1]) for i in range(3)]
    q, k, v = (
        split_heads(t, slice_axis(t, projected, 2, end - width, end), count)
        for end, width in zip(ends, widths, strict=True)
    )
    before = [None, None] if past is None else [
        t.emit(t.op.squeeze(slice_axis(t, past, 0, i, i + 1), [0])) for i in range(2)
    ]  # fmt: skip
    key, value = append_to_cache(t, before[0], k), append_to_cache(t, before[1], v)
    mask, keys = AttentionMask(t, t.dtype(q)), t.shape(key)[2]
    if given is not None:
        if t.ndim(given) == 1 and not _is_per_batch(t, given, x):
            raise Unsupported("a mask with the ends and starts of sequences is not supported")
        _add_filter_mask(t, node, mask, given, keys)
    if added is not None:
        mask.add(added)
    if node.attribute("unidirectional", 0):
        mask.apply_causal(t.shape(q)[2], t.shape(k)[2], keys)
    attended, _ = attend(t, AttentionInputs(q, key, value, node.attribute("scale") or None), mask)
    present = t.op.stack([key, value], 0) if len(node.outputs) > 1 and node.outputs[1] else None
    return [join_heads(t, attended), present]


def _is_per_batch(t: OnnxTranslator, mask: relax.Expr, x: relax.Expr) -> bool:
    return tir.const_int(construct.sub(t.shape(mask)[0], t.shape(x)[0])) == 0


@converts("RotaryEmbedding", domain=MICROSOFT)
def _rotary(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, positions: relax.Expr, cos: relax.Expr, sin: relax.Expr
) -> relax.Expr:
    if node.attribute("is_packed_batching", 0) or node.attribute("scale", 1.0) != 1:
        raise Unsupported("packed batches and scales are not supported")
    flat, size = t.ndim(x) == 3, node.attribute("rotary_embedding_dim", 0)
    heads = x
    if flat:
        width = 2 * constant_extent(t.shape(cos)[1], "the width of the tables")
        count = node.attribute("num_heads", 0) or constant_extent(t.shape(x)[2], "the width of the input") // width
        heads = split_heads(t, x, count)
    if t.ndim(positions) == 1:
        positions = t.emit(t.op.add(iota_along(t, 2, 1, t.shape(heads)[2]), t.cast(positions, "int64")))
    cos, sin = (t.emit(t.op.take(table, positions, 0)) for table in (cos, sin))
    turned = rotary_embedding(t, heads, cos, sin, bool(node.attribute("interleaved", 0)), size)
    return join_heads(t, turned) if flat else turned
