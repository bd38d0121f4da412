"""Attention of onnxruntime with a KV cache that grows, or that is a preallocated buffer."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.attention import (
    AttentionInputs,
    AttentionMask,
    attend,
    difference,
    join_heads,
    padding_mask,
    sliding_window_mask,
    split_heads,
)
from mlcc.frontend.onnx.converters.attention import rotary_embedding
from mlcc.frontend.onnx.dynamic_axes import bounded_extents, pad_or_crop
from mlcc.frontend.onnx.helpers import MICROSOFT, constant_extent, floor_quotient, iota_along, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir

_PLAIN = {"smooth_softmax": 0, "qk_output": 0, "k_quant_type": "NONE", "v_quant_type": "NONE"}  # the supported values


@converts("GroupQueryAttention", domain=MICROSOFT)
def _group_query_attention(
    t: OnnxTranslator,
    node: OnnxNode,
    query: relax.Expr,
    key: relax.Expr | None,
    value: relax.Expr | None,
    past_key: relax.Expr | None,
    past_value: relax.Expr | None,
    last: relax.Expr,
    total: relax.Expr,
    cos: relax.Expr | None = None,
    sin: relax.Expr | None = None,
    positions: relax.Expr | None = None,
    bias: relax.Expr | None = None,
    *others: relax.Expr | None,
) -> list[Any]:
    if any(other is not None for other in others) or len([name for name in node.outputs if name]) > 3:
        raise Unsupported("head sinks, quantized caches and scores as results are not supported")
    for name, plain in _PLAIN.items():
        if node.attribute(name, plain) not in (plain, -1 if isinstance(plain, int) else plain):
            raise Unsupported(f"`{name}={node.attribute(name)}` is not supported")
    q, k, v = _heads(t, node, query, key, value)
    cache = _Cache(t, k, past_key, last, total)
    if node.attribute("do_rotary", 0):
        if cos is None or sin is None:
            raise Unsupported("`do_rotary` needs tables of cosines and sines")
        at = cache.positions() if positions is None else positions
        cosines, sines = (t.emit(t.op.take(table, at, 0)) for table in (cos, sin))
        turned = bool(node.attribute("rotary_interleaved", 0))
        size = 2 * constant_extent(t.shape(cos)[1], "the width of the tables")
        q, k = (rotary_embedding(t, x, cosines, sines, turned, size) for x in (q, k))
    keys, values = cache.extended(past_key, k), cache.extended(past_value, v)
    mask, reach = AttentionMask(t, t.dtype(q)), node.attribute("local_window_size", -1)
    mask.mask_unless(
        sliding_window_mask(t, cache.length, cache.capacity, cache.before, reach - 1 if reach > 0 else -1, 0)
    )
    if cache.length_is_open:
        mask.mask_unless(padding_mask(t, cache.capacity, cache.counts))
    if bias is not None:
        mask.add(cache.over_all_keys(bias))
    heads = AttentionInputs(q, keys, values, node.attribute("scale") or None, node.attribute("softcap", 0.0))
    attended, _ = attend(t, heads, mask)
    return [join_heads(t, attended), keys, values]


def _heads(
    t: OnnxTranslator, node: OnnxNode, query: relax.Expr, key: relax.Expr | None, value: relax.Expr | None
) -> list[relax.Expr]:
    """Return queries, keys and values as (batch, heads, length, width); the inputs may be one packed tensor."""
    own, shared = node.attribute("num_heads"), node.attribute("kv_num_heads")
    if key is None or value is None:
        width = constant_extent(floor_quotient(t.shape(query)[2], own + 2 * shared), "the width of heads")
        ends = [own * width, (own + shared) * width, (own + 2 * shared) * width]
        parts = [slice_axis(t, query, 2, begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        query, key, value = parts
    batch, length, _ = t.shape(query)
    key, value = (t.with_stated_shape(x, [batch, length, t.shape(x)[2]]) for x in (key, value))
    return [split_heads(t, x, count) for x, count in ((query, own), (key, shared), (value, shared))]


class _Cache:
    """A KV cache: past keys or values, with the new ones of each sequence appended to its own."""

    def __init__(
        self, t: OnnxTranslator, new: relax.Expr, past: relax.Expr | None, last: relax.Expr, total: relax.Expr
    ) -> None:
        """`last` is the index of the last key of each sequence; `total` is the number of keys of the longest one."""
        self.t = t
        self.batch, _, self.length, _ = t.shape(new)
        self.past: Dim = 0 if past is None else t.shape(past)[2]
        (every,) = bounded_extents(t, t.reshape(total, [1]), [t.simplify(construct.add(self.length, self.past))])
        self.capacity: Dim = every if past is None else t.simplify(construct.maximum(self.past, every))
        places = t.reshape(t.cast(last, "int64"), [self.batch])
        self.counts = t.emit(t.op.add(places, t.scalar(1, "int64")))  # number of keys of each sequence
        self.before = self._before(every)

    @property
    def length_is_open(self) -> bool:
        """True if a sequence may have fewer new keys than others."""
        return tir.const_int(self.length) != 1

    def _before(self, every: Dim) -> relax.Expr:
        """Return the number of cached keys of each sequence; 0 if all keys are new."""
        t, zero = self.t, self.t.scalar(0, "int64")
        lengths = t.integer_tensor([self.length, every], "int64")
        new, whole = (slice_axis(t, lengths, 0, i, i + 1) for i in range(2))
        return t.emit(t.op.where(t.op.equal(new, whole), zero, t.op.subtract(self.counts, new)))

    def positions(self) -> relax.Expr:
        """Return the positions of the new keys in their sequences: (batch, length)."""
        t = self.t
        return t.emit(t.op.add(t.op.expand_dims(self.before, [1]), iota_along(t, 2, 1, self.length)))

    def extended(self, past: relax.Expr | None, new: relax.Expr) -> relax.Expr:
        """Return the cache with new keys or values: (batch, heads, capacity, width). Unused positions are 0."""
        t, (_, heads, _, width) = self.t, self.t.shape(new)
        if past is None:
            return t.with_stated_shape(new, [self.batch, heads, self.capacity, width])
        more = t.simplify(construct.sub(self.capacity, self.past))
        base = past = t.with_stated_shape(past, [self.batch, heads, self.past, width])
        if more != 0:
            rest = t.full([self.batch, heads, more, width], 0, t.dtype(new))
            base = t.with_stated_shape(t.emit(t.op.concat([past, rest], 2)), [self.batch, heads, self.capacity, width])
        places = t.reshape(self.positions(), [self.batch, 1, self.length, 1])
        spread = t.op.broadcast_to(places, t.shape_expr(t.shape(new)))
        written = t.emit(t.op.scatter_elements(base, spread, new, 2))
        ends = t.op.add(self.before, t.integer_tensor([self.length], "int64"))
        used = t.op.less(iota_along(t, 4, 2, self.capacity), t.op.expand_dims(ends, [1, 2, 3]))
        return t.emit(t.op.where(used, written, t.scalar(0, t.dtype(new))))

    def over_all_keys(self, bias: relax.Expr) -> relax.Expr:
        """Pad a bias to one element for each position of the cache."""
        t, shape = self.t, [*self.t.shape(bias)[:3], self.capacity]
        if difference(self.capacity, t.shape(bias)[3]) == 0:
            return bias
        return pad_or_crop(t, bias, t.integer_tensor([0] * 4, "int64"), shape, "constant", t.scalar(0, t.dtype(bias)))
