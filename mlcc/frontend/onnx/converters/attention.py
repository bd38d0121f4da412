"""Attention, rotary embeddings, and the recurrences of linear attention."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.onnx.attention import (
    AttentionInputs,
    AttentionMask,
    append_to_cache,
    attend,
    difference,
    join_heads,
    padding_mask,
    sliding_window_mask,
    split_heads,
)  # fmt: skip
from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.helpers import constant_extent, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir


@converts("Attention", since=23)
def _attention(
    t: OnnxTranslator,
    node: OnnxNode,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    given: relax.Expr | None = None,
    past_key: relax.Expr | None = None,
    past_value: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
) -> list[Any]:
    flat = t.ndim(q) == 3
    if flat:
        counts = (node.attribute("q_num_heads", 0), *[node.attribute("kv_num_heads", 0)] * 2)
        q, k, v = (split_heads(t, value, count) for value, count in zip((q, k, v), counts, strict=True))
    if (past_key is None) != (past_value is None) or past_key is not None and lengths is not None:
        raise Unsupported("past keys and past values must be given together, and without lengths")
    key, value = append_to_cache(t, past_key, k), append_to_cache(t, past_value, v)
    mask = AttentionMask(t, t.dtype(q))
    if given is not None:
        given = _pad_mask(t, given, t.shape(key)[2])
        (mask.mask_unless if t.dtype(given) == "bool" else mask.add)(given)
    _causal(t, node, mask, q, k, key, lengths)
    precision = node.attribute("softmax_precision")
    heads = AttentionInputs(
        q, key, value, node.attribute("scale"), node.attribute("softcap", 0.0),
        None if precision is None else dtype_of(precision),
    )  # fmt: skip
    scores = len(node.outputs) > 3 and bool(node.outputs[3])
    wanted = node.attribute("qk_matmul_output_mode", 0) if scores else None
    if wanted not in (None, 0, 1, 2, 3):
        raise Unsupported(f"`qk_matmul_output_mode={wanted}` is not supported")
    attended, seen = attend(t, heads, mask, wanted)
    return [join_heads(t, attended) if flat else attended, key, value, seen]


def _pad_mask(t: OnnxTranslator, mask: relax.Expr, keys: tir.Expr) -> relax.Expr:
    """Pad the mask to the number of keys; added keys are masked out."""
    rank = t.ndim(mask)
    missing = difference(keys, t.shape(mask)[rank - 1])
    if isinstance(missing, int) and missing <= 0 or tir.const_int(t.shape(mask)[rank - 1]) == 1:
        return mask
    if not isinstance(missing, int):
        raise Unsupported("the mask's last extent must equal the number of keys")
    width = [0] * (2 * rank - 1) + [missing]
    hidden = 0.0 if t.dtype(mask) == "bool" else float("-inf")
    return t.emit(t.op.nn.pad(mask, width, "constant", hidden))


def _causal(
    t: OnnxTranslator,
    node: OnnxNode,
    mask: AttentionMask,
    q: relax.Expr,
    new: relax.Expr,
    key: relax.Expr,
    lengths: relax.Expr | None,
) -> None:
    """Mask out keys after the query, outside its window, and after the end of their sequence."""
    queries, keys = t.shape(q)[2], t.shape(key)[2]
    causal = bool(node.attribute("is_causal", 0))
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    if causal:
        right = min(right, 0) if right >= 0 else 0
    if lengths is not None:
        mask.mask_unless(padding_mask(t, keys, lengths))
    if left < 0 and right < 0:
        return
    if lengths is None and left < 0 and right == 0:
        mask.apply_causal(queries, t.shape(new)[2], keys)
        return
    offset: Any = difference(keys, t.shape(new)[2])
    if lengths is not None:
        offset = t.op.subtract(t.cast(lengths, "int64"), t.op.shape_to_tensor(t.shape_expr([queries])))
        offset = t.emit(offset)
    mask.mask_unless(sliding_window_mask(t, queries, keys, offset, left, right))


@converts("RotaryEmbedding", since=23)
def _rotary(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    cos: relax.Expr,
    sin: relax.Expr,
    positions: relax.Expr | None = None,
) -> relax.Expr:
    flat = t.ndim(x) == 3
    heads = split_heads(t, x, node.attribute("num_heads", 0)) if flat else x
    if positions is not None:
        cos, sin = (t.emit(t.op.take(table, positions, 0)) for table in (cos, sin))
    turned = rotary_embedding(
        t, heads, cos, sin, bool(node.attribute("interleaved", 0)), node.attribute("rotary_embedding_dim", 0)
    )
    return join_heads(t, turned) if flat else turned


def rotary_embedding(
    t: OnnxTranslator, x: relax.Expr, cos: relax.Expr, sin: relax.Expr, interleaved: bool, size: int
) -> relax.Expr:
    """Rotate pairs of elements of the last axis: `x` is (batch, heads, length, width), the cosines and sines of the
    angles are (batch, length, width / 2)."""
    width = constant_extent(t.shape(x)[3], "the width of heads")
    turned = size or width
    rest = None if turned == width else slice_axis(t, x, 3, turned, width)
    part = x if rest is None else slice_axis(t, x, 3, 0, turned)
    half = turned // 2
    c, s = (slice_axis(t, t.emit(t.op.expand_dims(v, [1])), 3, 0, half) for v in (cos, sin))
    c, s = t.cast(c, t.dtype(x)), t.cast(s, t.dtype(x))
    if interleaved:
        pairs = t.reshape(part, [*t.shape(part)[:3], half, 2])
        one, other = (t.emit(t.op.squeeze(slice_axis(t, pairs, 4, i, i + 1), [4])) for i in range(2))
    else:
        one, other = slice_axis(t, part, 3, 0, half), slice_axis(t, part, 3, half, turned)
    real = t.emit(t.op.subtract(t.op.multiply(c, one), t.op.multiply(s, other)))
    imaginary = t.emit(t.op.add(t.op.multiply(s, one), t.op.multiply(c, other)))
    if interleaved:
        rotated_part = t.reshape(t.emit(t.op.stack([real, imaginary], 4)), t.shape(part))
    else:
        rotated_part = t.emit(t.op.concat([real, imaginary], 3))
    return rotated_part if rest is None else t.emit(t.op.concat([rotated_part, rest], 3))
