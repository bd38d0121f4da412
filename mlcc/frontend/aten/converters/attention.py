"""Scaled dot-product attention, converted to one relax operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.reductions import reduce
from mlcc.frontend.aten.converters.shapes import broadcast, broadcast_shape, permute, total_size
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op

_SWAP_HEADS_AND_LENGTH = (0, 2, 1, 3)  # (batch, heads, length, width) to (batch, length, heads, width), and back


@converts("aten.scaled_dot_product_attention")
def _attention(
    t: Translator, query: relax.Expr, key: relax.Expr, value: relax.Expr, attn_mask: relax.Expr | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> relax.Expr:  # fmt: skip
    return attention(t, query, key, value, attn_mask, dropout_p, is_causal, scale)


@converts(
    "aten._scaled_dot_product_flash_attention_for_cpu", "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention", "aten._scaled_dot_product_attention_math",
    "aten._scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
def _fused_attention(
    t: Translator, query: relax.Expr, key: relax.Expr, value: relax.Expr, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: relax.Expr | None = None, attn_bias: relax.Expr | None = None,
    scale: float | None = None, **settings: Any,
) -> list[Any]:  # fmt: skip
    mask = attn_mask if attn_bias is None else attn_bias
    unused = [None] * 8  # log-sum-exp, random states: only training reads them
    return [attention(t, query, key, value, mask, dropout_p, is_causal, scale), *unused]


def attention(
    t: Translator, query: relax.Expr, key: relax.Expr, value: relax.Expr, mask: relax.Expr | None, dropout: float,
    causal: bool, scale: float | None,
) -> relax.Expr:  # fmt: skip
    """Emit softmax(scale * query @ key.T + mask) @ value; a query whose keys are all masked gives 0."""
    if dropout:
        raise Unsupported("dropout is used only in training", "export the model in eval mode")
    if causal and mask is not None:
        raise Unsupported("a mask together with is_causal is not supported")
    shape = [*t.shape(query)[:-1], t.shape(value)[-1]]
    operands = (query, key, value)
    outer = broadcast_shape([t.shape(x)[:-3] for x in operands])
    q, k, v = (permute(t, _as_rank_4(t, x, outer), _SWAP_HEADS_AND_LENGTH) for x in operands)
    scale_factor = None if scale is None else float(scale)
    if mask is None:
        attended = t.emit(op.nn.attention(q, k, v, scale=scale_factor, causal_mask="TopLeft" if causal else None))
        return t.reshape(permute(t, attended, _SWAP_HEADS_AND_LENGTH), shape)
    if t.ndim(mask) > 4:
        mask = broadcast(t, mask, [*outer, *t.shape(mask)[-3:]])
    bias, has_key = _bias(t, _as_rank_4(t, mask), t.dtype(query))
    attended = t.emit(op.nn.attention_bias(q, k, v, bias, scale=scale_factor))
    result = permute(t, attended, _SWAP_HEADS_AND_LENGTH)
    return t.reshape(t.emit(op.where(has_key, result, t.scalar(0, t.dtype(query)))), shape)


def _as_rank_4(t: Translator, value: relax.Expr, outer: Sequence[Dim] | None = None) -> relax.Expr:
    """Reshape to four dimensions. Those before the heads are merged into one batch, broadcast to `outer` if given."""
    shape: list[Dim] = [*t.shape(value)]
    shape = [*[1] * (3 - len(shape)), *shape]
    trailing = shape[-3:]
    batch = shape[:-3] if outer is None else [*outer]
    reshaped = t.reshape(value, shape) if outer is None else broadcast(t, t.reshape(value, shape), [*batch, *trailing])
    return t.reshape(reshaped, [total_size(batch), *trailing])


def _bias(t: Translator, mask: relax.Expr, dtype: str) -> tuple[relax.Expr, relax.Expr]:
    """Return the additive bias of an attention mask, and whether each row has a key that is not masked."""
    lowest = t.scalar(-math.inf, dtype)
    if t.dtype(mask) == "bool":
        return t.emit(op.where(mask, t.scalar(0, dtype), lowest)), reduce(t, op.max, mask, -1, True)
    bias = t.cast(mask, dtype)
    return bias, reduce(t, op.max, t.emit(op.not_equal(bias, lowest)), -1, True)
