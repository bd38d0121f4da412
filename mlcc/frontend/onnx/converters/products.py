"""Matrix products and einsum."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import is_float, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax


@converts("MatMul")
def _matmul(t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    return t.op.matmul(a, b)


@converts("Gemm")
def _gemm(
    t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    a = t.emit(t.op.permute_dims(a)) if node.attribute("transA", 0) else a
    b = t.emit(t.op.permute_dims(b)) if node.attribute("transB", 0) else b
    product = _scaled(t, t.emit(t.op.matmul(a, b)), node.attribute("alpha", 1.0))
    return product if bias is None else t.op.add(product, _scaled(t, bias, node.attribute("beta", 1.0)))


def _scaled(t: OnnxTranslator, value: relax.Expr, factor: float) -> relax.Expr:
    if factor == 1:
        return value
    if not is_float(t, value) and factor != int(factor):
        raise Unsupported(f"a product of integers and {factor} is not supported")
    return t.emit(t.op.multiply(value, scalar_maker(t, value)(factor)))


@converts("Einsum")
def _einsum(t: OnnxTranslator, node: OnnxNode, *operands: relax.Expr) -> relax.Expr:
    return t.op.einsum(list(operands), node.attribute("equation").replace(" ", ""))
