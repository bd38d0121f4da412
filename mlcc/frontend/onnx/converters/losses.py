"""Classification losses."""

from __future__ import annotations

from mlcc.frontend.onnx.helpers import one_of
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.ir import relax

REDUCTIONS = ("none", "sum", "mean")
NO_CLASS = -100  # the default ignored index, which is not a class


@converts("NegativeLogLikelihoodLoss", since=12)
def _nll(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None
) -> relax.Expr:
    return _loss(t, node, x, target, weight)


@converts("SoftmaxCrossEntropyLoss", since=12)
def _cross_entropy(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None
) -> list[relax.Expr]:
    likelihoods = t.emit(t.op.nn.log_softmax(x, 1))
    return [_loss(t, node, likelihoods, target, weight), likelihoods]


def _loss(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, target: relax.Expr, weight: relax.Expr | None
) -> relax.Expr:
    reduction = one_of(node.attribute("reduction", "mean"), REDUCTIONS, "reduction")
    ignored = node.attribute("ignore_index", NO_CLASS)
    given = [] if weight is None else [weight]
    return t.op.nn.nll_loss(x, target, *given, reduction=reduction, ignore_index=ignored)
