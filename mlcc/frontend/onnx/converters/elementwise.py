"""Functions of single elements."""

from __future__ import annotations

from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.ir import relax


@converts("Relu", since=6)
def _relu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.relu(x)


@converts("Add", since=7)
def _add(t: OnnxTranslator, node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    return t.op.add(a, b)
