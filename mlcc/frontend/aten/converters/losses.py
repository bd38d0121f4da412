"""Loss functions."""

from __future__ import annotations

from mlcc.frontend.aten.converters.activations import log_sigmoid
from mlcc.frontend.aten.converters.arithmetic import xlogy
from mlcc.frontend.aten.converters.elementwise import clamp
from mlcc.frontend.aten.promotion import promote_operands
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op

_NAMES = ("none", "mean", "sum")


def _apply_reduction(t: Translator, losses: relax.Expr, reduction: int) -> relax.Expr:
    """Return the losses, their mean or their sum."""
    if reduction not in (0, 1, 2):
        raise Unsupported(f"reduction={reduction}")
    value = t.emit(losses)
    return (value, op.mean(value), op.sum(value))[reduction]


@converts("aten.mse_loss")
def _mse_loss(t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1) -> relax.Expr:
    away = t.emit(op.subtract(*promote_operands(t, self, target)))
    return _apply_reduction(t, op.multiply(away, away), reduction)


@converts("aten.l1_loss")
def _l1_loss(t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1) -> relax.Expr:
    return _apply_reduction(t, op.abs(op.subtract(*promote_operands(t, self, target))), reduction)


@converts("aten.smooth_l1_loss")
def _smooth_l1_loss(
    t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1, beta: float = 1.0
) -> relax.Expr:
    if beta == 0:
        return _l1_loss(t, self, target, reduction)
    away = t.emit(op.abs(op.subtract(*promote_operands(t, self, target))))
    dtype = t.dtype(away)
    near = op.divide(op.multiply(op.multiply(away, away), t.scalar(0.5, dtype)), t.scalar(beta, dtype))
    far = op.subtract(away, t.scalar(0.5 * beta, dtype))
    return _apply_reduction(t, op.where(op.less(away, t.scalar(beta, dtype)), near, far), reduction)


@converts("aten.huber_loss")
def _huber_loss(
    t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1, delta: float = 1.0
) -> relax.Expr:
    away = t.emit(op.abs(op.subtract(*promote_operands(t, self, target))))
    dtype = t.dtype(away)
    near = op.multiply(op.multiply(away, away), t.scalar(0.5, dtype))
    far = op.multiply(op.subtract(away, t.scalar(0.5 * delta, dtype)), t.scalar(delta, dtype))
    return _apply_reduction(t, op.where(op.less_equal(away, t.scalar(delta, dtype)), near, far), reduction)


@converts("aten.binary_cross_entropy")
def _binary_cross_entropy(
    t: Translator, self: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None, reduction: int = 1
) -> relax.Expr:
    dtype = t.dtype(self)
    one = t.scalar(1, dtype)
    low = t.scalar(-100, dtype)
    yes = clamp(t, t.emit(op.log(self)), low, None)
    no = clamp(t, t.emit(op.log1p(op.negative(self))), low, None)
    losses = op.subtract(op.multiply(op.subtract(target, one), no), op.multiply(target, yes))
    return _apply_reduction(t, losses if weight is None else op.multiply(losses, weight), reduction)


@converts("aten.binary_cross_entropy_with_logits")
def _with_logits(
    t: Translator, self: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None,
    pos_weight: relax.Expr | None = None, reduction: int = 1,
) -> relax.Expr:  # fmt: skip
    one = t.scalar(1, t.dtype(self))
    rest = op.multiply(op.subtract(one, target), self)
    log = log_sigmoid(t, self)
    if pos_weight is not None:
        log = op.multiply(op.add(op.multiply(op.subtract(pos_weight, one), target), one), log)
    losses = op.subtract(rest, log)
    return _apply_reduction(t, losses if weight is None else op.multiply(losses, weight), reduction)


@converts("aten.kl_div")
def _kl_div(
    t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1, log_target: bool = False
) -> relax.Expr:
    if log_target:
        return _apply_reduction(t, op.multiply(op.exp(target), op.subtract(target, self)), reduction)
    x, y = promote_operands(t, self, target)
    return _apply_reduction(t, op.subtract(xlogy(t, y, y, op.log), op.multiply(y, x)), reduction)


@converts("aten.soft_margin_loss")
def _soft_margin_loss(t: Translator, self: relax.Expr, target: relax.Expr, reduction: int = 1) -> relax.Expr:
    return _apply_reduction(t, op.log1p(op.exp(op.multiply(op.negative(target), self))), reduction)


@converts("aten.hinge_embedding_loss")
def _hinge_embedding_loss(
    t: Translator, self: relax.Expr, target: relax.Expr, margin: float = 1.0, reduction: int = 1
) -> relax.Expr:
    dtype = t.dtype(self)
    target = t.cast(target, dtype)
    zero, one = t.scalar(0, dtype), t.scalar(1, dtype)
    beyond = clamp(t, t.emit(op.subtract(t.scalar(margin, dtype), self)), zero, None)
    unlike = op.where(op.equal(target, one), zero, beyond)
    alike = op.where(op.equal(target, op.negative(one)), zero, self)
    return _apply_reduction(t, op.add(unlike, alike), reduction)


@converts("aten.margin_ranking_loss")
def _margin_ranking_loss(
    t: Translator, input1: relax.Expr, input2: relax.Expr, target: relax.Expr, margin: float = 0.0, reduction: int = 1
) -> relax.Expr:
    dtype = t.dtype(input1)
    away = op.multiply(op.negative(t.cast(target, dtype)), op.subtract(input1, input2))
    return _apply_reduction(
        t, clamp(t, t.emit(op.add(away, t.scalar(margin, dtype))), t.scalar(0, dtype), None), reduction
    )


# ---------------------------------------------------------------- classes


@converts("aten.nll_loss", "aten.nll_loss2d", "aten.nll_loss_nd")
def _nll_loss(
    t: Translator, self: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None, reduction: int = 1,
    ignore_index: int = -100,
) -> relax.Expr:  # fmt: skip
    return _class_loss(t, self, target, weight, reduction, ignore_index)


@converts("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def _nll_loss_forward(
    t: Translator, self: relax.Expr, target: relax.Expr, weight: relax.Expr | None, reduction: int, ignore_index: int
) -> list[relax.Expr | None]:
    return [t.emit(_class_loss(t, self, target, weight, reduction, ignore_index)), None]


def _class_loss(
    t: Translator, predictions: relax.Expr, target: relax.Expr, weight: relax.Expr | None, reduction: int, ignored: int
) -> relax.Expr:
    name = _NAMES[reduction]
    if weight is None:
        return op.nn.nll_loss(predictions, target, reduction=name, ignore_index=ignored)
    return op.nn.nll_loss(predictions, target, weight, reduction=name, ignore_index=ignored)


@converts("aten.cross_entropy_loss")
def _cross_entropy_loss(
    t: Translator, self: relax.Expr, target: relax.Expr, weight: relax.Expr | None = None, reduction: int = 1,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> relax.Expr:  # fmt: skip
    axis = 1 if t.ndim(self) > 1 else 0
    logs = t.emit(op.nn.log_softmax(self, axis))
    if t.ndim(target) == t.ndim(self) and t.dtype(target) == t.dtype(self):
        return _of_probabilities(t, logs, target, weight, reduction, label_smoothing, axis)
    if label_smoothing:
        raise Unsupported("label_smoothing with class indices is not supported")
    return _class_loss(t, logs, target, weight, reduction, ignore_index)


def _of_probabilities(
    t: Translator, logs: relax.Expr, target: relax.Expr, weight: relax.Expr | None, reduction: int, smoothing: float,
    axis: int,
) -> relax.Expr:  # fmt: skip
    dtype = t.dtype(logs)
    classes = t.shape(logs)[axis]
    if smoothing:
        from mlcc.frontend.aten.promotion import as_tensor

        spread = op.divide(t.scalar(smoothing, dtype), as_tensor(t, classes, dtype))
        target = op.add(op.multiply(target, t.scalar(1 - smoothing, dtype)), spread)
    losses = op.multiply(op.negative(logs), target)
    if weight is not None:
        losses = op.multiply(losses, t.reshape(weight, [classes, *[1] * (t.ndim(logs) - axis - 1)]))
    value = t.emit(op.sum(losses, axis=[axis]))
    if reduction != 1 or not t.ndim(value):
        return _apply_reduction(t, value, reduction)
    return op.mean(value)
