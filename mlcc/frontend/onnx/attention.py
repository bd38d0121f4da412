"""Multi-head attention of ONNX and onnxruntime: masks, a cap on the scores, and scores as results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.helpers import floor_quotient, iota_along, scalar_maker, split_axis, swap_axes
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir

RAW_SCORES, CAPPED_SCORES, BIASED_SCORES, ATTENTION_WEIGHTS = range(4)  # stages of the scores that can be a result


@dataclass(frozen=True)
class AttentionInputs:
    """Queries, keys and values, each of shape (batch, heads, length, width), and options of attention."""

    query: relax.Expr
    key: relax.Expr
    value: relax.Expr
    scale: float | None = None  # 1 / sqrt(width)
    cap: float = 0.0
    softmax_dtype: str | None = None


@dataclass
class AttentionMask:
    """The additive attention mask: a tensor added to the scores, -inf where a query does not see a key.

    All parts broadcast to (batch, heads, queries, keys). `causal_alignment` is the `causal_mask` of `R.nn.attention`.
    """

    t: OnnxTranslator
    dtype: str
    added: relax.Expr | None = None
    seen: relax.Expr | None = None
    causal_alignment: str | None = None

    def add(self, values: relax.Expr) -> None:
        """Add numbers to the scores."""
        cast = self.t.cast(four_dimensions(self.t, values), self.dtype)
        self.added = cast if self.added is None else self.t.emit(self.t.op.add(self.added, cast))

    def mask_unless(self, seen: relax.Expr) -> None:
        """Mask out the keys where a bool mask is false."""
        wide = four_dimensions(self.t, seen)
        self.seen = wide if self.seen is None else self.t.emit(self.t.op.logical_and(self.seen, wide))

    def apply_causal(self, queries: Dim, new: Dim, keys: Dim) -> None:
        """Apply a causal mask; the first query is aligned with the first of the last `new` keys."""
        past = difference(keys, new)
        if past == 0:
            self.causal_alignment = "TopLeft"
        elif difference(queries, new) == 0:
            self.causal_alignment = "BottomRight"
        else:
            self.mask_unless(sliding_window_mask(self.t, queries, keys, past, -1, 0))

    def bias(self) -> relax.Expr | None:
        """Return one tensor for all parts of the mask except `causal_alignment`."""
        if self.seen is None:
            return self.added
        zero, least = (self.t.scalar(v, self.dtype) for v in (0.0, float("-inf")))
        return self.t.emit(self.t.op.where(self.seen, zero if self.added is None else self.added, least))

    def expand_causal(self, queries: Dim, keys: Dim) -> None:
        """Replace the causal mask in `causal_alignment` by an explicit bool mask."""
        if self.causal_alignment is not None:
            offset: Dim = 0 if self.causal_alignment == "TopLeft" else difference(keys, queries)
            self.mask_unless(sliding_window_mask(self.t, queries, keys, offset, -1, 0))
            self.causal_alignment = None


def four_dimensions(t: OnnxTranslator, mask: relax.Expr) -> relax.Expr:
    """Add leading dimensions of extent 1 to a mask, up to rank 4."""
    missing = 4 - t.ndim(mask)
    return mask if missing <= 0 else t.emit(t.op.expand_dims(mask, list(range(missing))))


def difference(one: Dim, other: Dim) -> Dim:
    """Return `one - other`, as a number if it is constant."""
    expr = construct.sub(*(construct.const(d, "int64") if isinstance(d, int) else d for d in (one, other)))
    number = tir.const_int(expr)
    return expr if number is None else number


def sliding_window_mask(
    t: OnnxTranslator, queries: Dim, keys: Dim, offset: Dim | relax.Expr, left: int, right: int
) -> relax.Expr:
    """Return a bool mask of the keys in a sliding window around each query; a size of -1 leaves a side open.

    `offset` is the position of the first query among the keys, or a vector of one position for each batch element.
    """
    rows, columns = iota_along(t, 4, 2, queries), iota_along(t, 4, 3, keys)
    if isinstance(offset, relax.Expr):
        rows = t.op.add(rows, t.reshape(t.cast(offset, "int64"), [*t.shape(offset), 1, 1, 1]))
    elif not (isinstance(offset, int) and offset == 0):
        rows = t.op.add(rows, t.op.shape_to_tensor(t.shape_expr([offset])))
    seen = []
    if right >= 0:
        seen.append(t.op.less_equal(columns, t.op.add(rows, t.scalar(right, "int64")) if right else rows))
    if left >= 0:
        seen.append(t.op.greater_equal(columns, t.op.subtract(rows, t.scalar(left, "int64"))))
    return t.emit(seen[0] if len(seen) == 1 else t.op.logical_and(*seen))


def padding_mask(t: OnnxTranslator, keys: Dim, lengths: relax.Expr) -> relax.Expr:
    """Return a bool mask of the keys inside their sequence's length (a padding mask)."""
    ends = t.reshape(t.cast(lengths, "int64"), [*t.shape(lengths), 1, 1, 1])
    return t.emit(t.op.less(iota_along(t, 4, 3, keys), ends))


def split_heads(t: OnnxTranslator, value: relax.Expr, heads: int) -> relax.Expr:
    """Convert (batch, length, heads * width) to (batch, heads, length, width)."""
    if heads <= 0:
        raise Unsupported("3-dimensional tensors need a positive number of heads")
    width = floor_quotient(t.shape(value)[2], heads)
    return swap_axes(t, split_axis(t, value, 2, [heads, width]), 1, 2)


def join_heads(t: OnnxTranslator, value: relax.Expr) -> relax.Expr:
    """Convert (batch, heads, length, width) to (batch, length, heads * width)."""
    batch, heads, length, width = t.shape(value)
    return t.reshape(swap_axes(t, value, 1, 2), [batch, length, construct.mul(heads, width)])


def append_to_cache(t: OnnxTranslator, past: relax.Expr | None, new: relax.Expr) -> relax.Expr:
    """Append new keys or values to the past ones."""
    return new if past is None else t.emit(t.op.concat([past, new], 2))


def attend(
    t: OnnxTranslator, heads: AttentionInputs, mask: AttentionMask, wanted: int | None = None
) -> tuple[relax.Expr, Any]:
    """Emit attention. Return its result, (batch, heads, length, width), and the scores of the stage `wanted`."""
    if wanted is None and not heads.cap:
        return _fused(t, heads, mask), None
    return _decomposed(t, heads, mask, wanted)


def _fused(t: OnnxTranslator, heads: AttentionInputs, mask: AttentionMask) -> relax.Expr:
    """Emit attention as `R.nn.attention`."""
    q, k, v = (
        swap_axes(t, value, 1, 2) for value in (heads.query, heads.key, t.cast(heads.value, t.dtype(heads.query)))
    )
    bias = mask.bias()
    if bias is None:
        attended = t.op.nn.attention(q, k, v, scale=heads.scale, causal_mask=mask.causal_alignment)
    else:
        bias = _broadcast_to_keys(t, bias, t.shape(k)[1])
        attended = t.op.nn.attention_bias(q, k, v, bias, scale=heads.scale, causal_mask=mask.causal_alignment)
    turned = swap_axes(t, t.emit(attended), 1, 2)
    return _zero_fully_masked(t, turned, bias)


def _broadcast_to_keys(t: OnnxTranslator, bias: relax.Expr, keys: Dim) -> relax.Expr:
    """Broadcast a bias to one element per key."""
    shape = t.shape(bias)
    if tir.const_int(shape[3]) != 1 or (keys if isinstance(keys, int) else tir.const_int(keys)) == 1:
        return bias
    return t.emit(t.op.broadcast_to(bias, t.shape_expr([*shape[:3], keys])))


def _zero_fully_masked(t: OnnxTranslator, value: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    """Set the result to 0 for queries that see no key."""
    if bias is None:
        return value
    array = t.constant_array(bias)
    if array is not None and not (array.max(-1) == float("-inf")).any():
        return value
    hidden = t.op.equal(bias, t.scalar(float("-inf"), t.dtype(bias)))
    blind = t.emit(t.op.min(hidden, [3], keepdims=True))  # all of them
    return t.emit(t.op.where(blind, scalar_maker(t, value)(0), value))


def _decomposed(
    t: OnnxTranslator, heads: AttentionInputs, mask: AttentionMask, wanted: int | None
) -> tuple[relax.Expr, Any]:
    """Emit attention as matmuls and a softmax."""
    query, key, value = heads.query, heads.key, heads.value
    own, shared = (t.shape(v)[1] for v in (query, key))
    groups = tir.const_int(construct.floordiv(own, shared))
    if groups is None:
        raise Unsupported("the numbers of heads must be constant")
    if groups != 1:
        key, value = (t.emit(t.op.repeat(v, groups, 1)) for v in (key, value))
    scale = heads.scale
    if scale is None:
        width = tir.const_int(t.shape(query)[3])
        if not width:
            raise Unsupported("the width of the heads must be constant")
        scale = width**-0.5
    s = scalar_maker(t, query)
    scores = t.emit(t.op.matmul(t.op.multiply(query, s(scale)), t.op.permute_dims(key, [0, 1, 3, 2])))
    stages = {RAW_SCORES: scores}
    if heads.cap:
        scores = t.emit(t.op.multiply(t.op.tanh(t.op.divide(scores, s(heads.cap))), s(heads.cap)))
    stages[CAPPED_SCORES] = scores
    mask.expand_causal(t.shape(query)[2], t.shape(key)[2])
    bias = mask.bias()
    if bias is not None:
        scores = t.emit(t.op.add(scores, bias))
    stages[BIASED_SCORES] = scores
    weights = t.emit(t.op.nn.softmax(t.cast(scores, heads.softmax_dtype or t.dtype(scores)), -1))
    weights = _zero_fully_masked(t, t.cast(weights, t.dtype(query)), bias)
    stages[ATTENTION_WEIGHTS] = weights
    return t.emit(t.op.matmul(weights, t.cast(value, t.dtype(query)))), stages.get(wanted)  # type: ignore[arg-type]
