"""Products of onnxruntime: with transposed operands, activations behind them, and weights of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mlcc.frontend.onnx.converters.activation import hard_sigmoid
from mlcc.frontend.onnx.parts import MICROSOFT, is_float, scalars, slice_axis, standard, swap_axes
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax

Activation: TypeAlias = Callable[..., relax.Expr]  # (t, x, *parameters)

_ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda t, x: t.op.nn.relu(x),
    "Tanh": lambda t, x: t.op.tanh(x),
    "Sigmoid": lambda t, x: t.op.sigmoid(x),
    "LeakyRelu": lambda t, x, alpha=0.01: t.op.nn.leakyrelu(x, alpha),
    "Clip": lambda t, x, low, high: t.op.clip(x, low, high),
    "HardSigmoid": lambda t, x, alpha=0.2, beta=0.5: hard_sigmoid(t, x, alpha, beta),
}


def activated(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """What a node's attribute `activation` makes of a result."""
    name = node.attribute("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise Unsupported(f"activation `{name}` is not known")
    given = list(node.attribute("activation_params", ()))
    if not given:
        named = (node.attribute(f"activation_{n}") for n in ("alpha", "beta"))
        given = [value for value in named if value is not None]
    return t.emit(_ACTIVATIONS[name](t, x, *given))


@converts("FusedConv", domain=MICROSOFT)
def _fused_conv(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    bias: relax.Expr | None = None,
    other: relax.Expr | None = None,
) -> relax.Expr:
    made = standard(t, node, "Conv", 11, x, w, bias)
    return activated(t, node, made if other is None else t.emit(t.op.add(made, other)))


@converts("FusedGemm", domain=MICROSOFT)
def _fused_gemm(
    t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    return activated(t, node, standard(t, node, "Gemm", 13, a, b, bias))


@converts("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    a, b = (_turned(t, node, v, name) for v, name in ((a, "A"), (b, "B")))
    made, alpha = t.op.matmul(a, b), node.attribute("alpha", 1.0)
    return made if alpha == 1 else t.op.multiply(made, scalars(t, a)(alpha))


def _turned(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, name: str) -> relax.Expr:
    """An operand with its rows and columns, or its first and its batch dimensions, in each other's place."""
    rank = t.ndim(x)
    if node.attribute(f"transBatch{name}", 0) and rank > 2:
        x = t.emit(t.op.permute_dims(x, [*range(1, rank - 1), 0, rank - 1]))
    turned = node.attribute(f"trans{name}", 0) and rank > 1
    return swap_axes(t, x, rank - 2, rank - 1) if turned else x


@converts("MatMulNBits", domain=MICROSOFT)
def _matmul_of_few_bits(
    t: OnnxTranslator,
    node: OnnxNode,
    a: relax.Expr,
    packed: relax.Expr,
    scales: relax.Expr,
    zeros: relax.Expr | None = None,
    groups: relax.Expr | None = None,
    bias: relax.Expr | None = None,
) -> relax.Expr:
    """The product with weights of a scale and zero point for each block of a column."""
    inner, columns = node.attribute("K"), node.attribute("N")
    bits, block = node.attribute("bits", 4), node.attribute("block_size")
    if bits not in (2, 4, 8) or groups is not None or node.attribute("weight_prepacked", 0):
        raise Unsupported(f"weights of {bits} bits, in an order of their own, or packed for a device")
    blocks = -(-inner // block)
    if t.static_shape(packed) != (columns, blocks, block * bits // 8):
        raise Unsupported(f"packed weights must be {[columns, blocks, block * bits // 8]}")
    dtype = t.dtype(a)
    weights = t.cast(t.reshape(unpacked(t, packed, bits), [columns, blocks, block]), dtype)
    if zeros is None:
        centre: relax.Expr = t.scalar(1 << (bits - 1), dtype)
    elif is_float(t, zeros):
        centre = t.reshape(t.cast(zeros, dtype), [columns, blocks, 1])
    else:
        rows = t.reshape(zeros, [columns, -(-blocks * bits // 8)])
        centre = t.reshape(t.cast(slice_axis(t, unpacked(t, rows, bits), 1, 0, blocks), dtype), [columns, blocks, 1])
    factors = t.reshape(t.cast(scales, dtype), [columns, blocks, 1])
    table = t.reshape(t.emit(t.op.multiply(t.op.subtract(weights, centre), factors)), [columns, blocks * block])
    if blocks * block != inner:
        table = slice_axis(t, table, 1, 0, inner)
    made = t.op.matmul(a, t.op.permute_dims(table))
    return made if bias is None else t.op.add(made, bias)


def unpacked(t: OnnxTranslator, packed: relax.Expr, bits: int) -> relax.Expr:
    """Numbers of few bits, several of which stand in each byte of the last axis, the lowest bits first."""
    if bits == 8:
        return packed
    *outer, last = t.shape(packed)
    parts = []
    for shift in range(0, 8, bits):
        moved = packed if not shift else t.op.right_shift(packed, t.scalar(shift, "uint8"))
        parts.append(t.op.bitwise_and(moved, t.scalar((1 << bits) - 1, "uint8")))
    return t.reshape(t.emit(t.op.stack(parts, t.ndim(packed))), [*outer, construct.mul(last, 8 // bits)])
