"""Converters of onnxruntime's products: with transposed operands, activation epilogues, and weights of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mlcc.frontend.onnx.converters.activation import hard_sigmoid
from mlcc.frontend.onnx.helpers import (
    MICROSOFT,
    constant_extent,
    convert_standard,
    is_float,
    scalar_maker,
    slice_axis,
    swap_axes,
)
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.ir.narrow_floats import encode
from mlcc.ops.quantize import FLOATS

Activation: TypeAlias = Callable[..., relax.Expr]  # (t, x, *parameters)

_ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda t, x: t.op.nn.relu(x),
    "Tanh": lambda t, x: t.op.tanh(x),
    "Sigmoid": lambda t, x: t.op.sigmoid(x),
    "LeakyRelu": lambda t, x, alpha=0.01: t.op.nn.leakyrelu(x, alpha),
    "Clip": lambda t, x, low, high: t.op.clip(x, low, high),
    "HardSigmoid": lambda t, x, alpha=0.2, beta=0.5: hard_sigmoid(t, x, alpha, beta),
}


def apply_epilogue(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Apply the epilogue that a node's attribute `activation` names. Raises Unsupported for unknown names."""
    name = node.attribute("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise Unsupported(f"activation `{name}` is not supported")
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
    convolved = convert_standard(t, node, "Conv", 11, x, w, bias)
    return apply_epilogue(t, node, convolved if other is None else t.emit(t.op.add(convolved, other)))


@converts("FusedGemm", domain=MICROSOFT)
def _fused_gemm(
    t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    return apply_epilogue(t, node, convert_standard(t, node, "Gemm", 13, a, b, bias))


@converts("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    a, b = (_transpose_operand(t, node, v, name) for v, name in ((a, "A"), (b, "B")))
    product, alpha = t.op.matmul(a, b), node.attribute("alpha", 1.0)
    return product if alpha == 1 else t.op.multiply(product, scalar_maker(t, a)(alpha))


def _transpose_operand(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, name: str) -> relax.Expr:
    """Transpose an operand as its attributes say: rows and columns, and the first and the batch axes."""
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
    """Emit the product with packed weights that have a scale and a zero point for each block of a column."""
    inner, columns = node.attribute("K"), node.attribute("N")
    bits, block = node.attribute("bits", 4), node.attribute("block_size")
    if bits not in (2, 4, 8) or groups is not None or node.attribute("weight_prepacked", 0):
        raise Unsupported(f"weights of {bits} bits, with group indices, or prepacked, are not supported")
    blocks = -(-inner // block)
    if t.static_shape(packed) != (columns, blocks, block * bits // 8):
        raise Unsupported(f"packed weights must have the shape {[columns, blocks, block * bits // 8]}")
    dtype = t.dtype(a)
    rows = _transposed_weight(t, packed, (columns, blocks * block * bits // 8), "int")
    factors = _transposed_weight(t, scales, (columns, blocks), "scale")
    table = _dequantize_rows(
        t, _unpack_bits(t, rows, bits), factors, _zero_points(t, zeros, (columns, blocks), bits), dtype
    )
    if blocks * block != inner:
        table = slice_axis(t, table, 0, 0, inner)
    product = t.op.matmul(a, table)
    return product if bias is None else t.op.add(product, bias)


def _dequantize_rows(
    t: OnnxTranslator, rows: relax.Expr, scales: relax.Expr, zeros: relax.Expr, dtype: str
) -> relax.Expr:
    """Return (rows - zeros) * scales in a dtype; scales and tensor-valued zeros are per group of rows."""
    if not is_float(t, zeros):
        if t.dtype(scales) not in FLOATS:
            scales = t.cast(scales, "float32")
        floats = t.emit(t.op.dequantize(rows, scales, zeros, 0, dtype if dtype in FLOATS else "float32"))
        return t.cast(floats, dtype)
    each = constant_extent(t.shape(rows)[0], "the rows") // constant_extent(t.shape(scales)[0], "the groups")
    points, factors = (t.emit(t.op.repeat(t.cast(v, dtype), each, 0)) for v in (zeros, scales))
    return t.emit(t.op.multiply(t.op.subtract(t.cast(rows, dtype), points), factors))


def _zero_points(t: OnnxTranslator, zeros: relax.Expr | None, shape: tuple[int, int], bits: int) -> relax.Expr:
    """Return the zero points of groups, with columns last, or one for all."""
    if zeros is None:
        return t.scalar(1 << (bits - 1), "uint8")
    if is_float(t, zeros):
        return _transposed_weight(t, zeros, shape, "zero_point")
    columns, blocks = shape
    packed = _transposed_weight(t, zeros, (columns, -(-blocks * bits // 8)), "zero_point")
    return slice_axis(t, _unpack_bits(t, packed, bits), 0, 0, blocks)


def _unpack_bits(t: OnnxTranslator, packed: relax.Expr, bits: int) -> relax.Expr:
    """Unpack numbers that share bytes along the first axis."""
    return packed if bits == 8 else t.emit(t.op.unpack_bits(packed, 0, bits))


def _transposed_weight(t: OnnxTranslator, value: relax.Expr, shape: tuple[int, int], what: str) -> relax.Expr:
    """Transpose a matrix with a row for each column of a product; constants are folded, under a new name."""
    array = t.constant_array(value)
    if array is None or not isinstance(value, relax.Constant):
        return t.emit(t.op.permute_dims(t.reshape(value, shape)))
    data = value.data
    stored = encode(array.reshape(shape).T, data.dtype)
    return t.constant(stored, str(data.dtype), f"{data.key}.{what}" if data.key else "")
