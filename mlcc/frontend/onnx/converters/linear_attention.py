"""Linear attention, a recurrence over outer products, and the causal convolution before it."""

from __future__ import annotations

from mlcc.frontend.onnx.attention import difference, join_heads, split_heads
from mlcc.frontend.onnx.helpers import constant_extent, one_of, scalar_maker, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir

RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@converts("LinearAttention", since=27)
def _linear_attention(
    t: OnnxTranslator,
    node: OnnxNode,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    past: relax.Expr | None = None,
    decay: relax.Expr | None = None,
    beta: relax.Expr | None = None,
) -> list[relax.Expr]:
    """Unroll the recurrence, in float32."""
    rule = one_of(node.attribute("update_rule", "gated_delta"), list(RULES), "update_rule")
    if (decay is not None, beta is not None) != RULES[rule]:
        raise Unsupported(f'`update_rule="{rule}"` needs other inputs')
    own, shared = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
    if own <= 0 or shared <= 0 or own % shared:
        raise Unsupported(f"{own} query heads cannot be grouped over {shared} key heads")
    wide = [t.cast(split_heads(t, v, n), "float32") for v, n in ((query, own), (key, shared), (value, shared))]
    gate = None if decay is None else t.emit(t.op.exp(_of_heads(t, decay, shared)))
    rate = None if beta is None else _of_heads(t, beta, shared)
    batch, _, length, width = t.shape(wide[1])
    steps, depth = constant_extent(length, "the length of the sequence"), constant_extent(width, "the width of keys")
    state = (
        t.full([batch, shared, width, t.shape(wide[2])[3]], 0, "float32") if past is None else t.cast(past, "float32")
    )
    scale = node.attribute("scale", 0.0) or depth**-0.5
    outputs = []
    for i in range(steps):
        q, k, v = (slice_axis(t, x, 2, i, i + 1) for x in wide)  # (batch, heads, 1, width)
        column = t.emit(t.op.permute_dims(k, [0, 1, 3, 2]))
        if gate is not None:
            now = t.op.permute_dims(slice_axis(t, gate, 2, i, i + 1), [0, 1, 3, 2])
            state = t.emit(t.op.multiply(state, now))
        if rate is not None:
            kept = t.op.subtract(v, t.op.matmul(k, state))
            v = t.emit(t.op.multiply(slice_axis(t, rate, 2, i, i + 1), kept))
        state = t.emit(t.op.add(state, t.op.multiply(column, v)))
        read = state if own == shared else t.op.repeat(state, own // shared, 1)
        outputs.append(t.emit(t.op.matmul(q, read)))
    every = t.emit(t.op.concat(outputs, 2)) if len(outputs) > 1 else outputs[0]
    every = t.emit(t.op.multiply(every, scalar_maker(t, every)(scale)))
    kind = t.dtype(query if past is None else past)
    return [t.cast(join_heads(t, every), t.dtype(query)), t.cast(state, kind)]


def _of_heads(t: OnnxTranslator, value: relax.Expr, heads: int) -> relax.Expr:
    """Split numbers by head: one per head, one per key element, or one for all heads."""
    last = tir.const_int(t.shape(value)[2])
    return t.cast(split_heads(t, value, 1 if last == 1 else heads), "float32")


@converts("CausalConvWithState", since=27)
def _causal_conv(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None = None,
    past: relax.Expr | None = None,
) -> list[relax.Expr]:
    batch, channels, length = t.shape(x)
    reach = constant_extent(t.shape(weight)[2], "the width of the kernel") - 1
    groups = constant_extent(channels, "the number of channels")
    before = t.full([batch, channels, reach], 0, t.dtype(x)) if past is None else past
    whole = t.emit(t.op.concat([before, x], 2)) if reach else x
    convolved = t.op.nn.conv1d(whole, weight, groups=groups)
    if bias is not None:
        convolved = t.op.add(convolved, t.reshape(bias, [groups, 1]))
    if one_of(node.attribute("activation", "none"), ("none", "silu", "swish"), "activation") != "none":
        convolved = t.op.nn.silu(convolved)
    end = construct.add(length, reach)
    return [t.emit(convolved), slice_axis(t, whole, 2, difference(end, reach), end)]
