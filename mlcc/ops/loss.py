"""The negative log likelihood, and its gradient."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import construct, relax
from mlcc.ops import guard, topi
from mlcc.ops.lazy import np
from mlcc.ops.linalg import result_dtype
from mlcc.ops.places import places
from mlcc.ops.reduce import reduce_with
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, device_of, fail, known_different, result, shape_text, tensor
from mlcc.te.scalar import Scalar, raw

# ---------------------------------------------------------------- inference


def infer_nll_loss(call: relax.Call) -> Tensor:
    """A scalar, or with `reduction="none"` the predictions' shape without the classes."""
    return _checked(call, 0)


def _checked(call: relax.Call, first: int) -> Tensor:
    """Check predictions, targets and weights, the arguments from `first` on, and give the loss."""
    infos = [tensor(call, i) for i in range(first, len(call.args))]
    predictions, targets = infos[:2]
    weights = infos[2] if len(infos) > 2 else None
    reduction = call.attrs["reduction"]
    if reduction not in ("none", "sum", "mean"):
        fail(call, "E0442", f'`reduction` must be "none", "sum" or "mean", not "{reduction}"')
    if targets.dtype is not None and not targets.dtype.is_int:
        fail(call, "E0444", f"the targets are places of classes: integers, not {targets.dtype}")
    if predictions.ndim == 0:
        fail(call, "E0445", "the predictions need at least one dimension, that of the classes")
    if weights is not None and weights.ndim not in (-1, 1):
        fail(call, "E0445", f"the weights have {weights.ndim} dimensions, they need one number for each class")
    if predictions.ndim >= 0 and targets.ndim >= 0 and targets.ndim != predictions.ndim - 1:
        fail(call, "E0445", f"predictions of {predictions.ndim} dimensions need targets of {predictions.ndim - 1}")
    dtype = result_dtype(call, [predictions] if weights is None else [predictions, weights])
    dims = predictions.dims
    rest = None if dims is None else (() if len(dims) == 1 else (dims[0], *dims[2:]))
    pairs = [] if rest is None or targets.dims is None else list(zip(rest, targets.dims, strict=True))
    if any(known_different(a, b) for a, b in pairs):
        text = f"predictions {shape_text(dims)} need targets {shape_text(rest)}"
        fail(call, "E0445", f"{text}, they are {shape_text(targets.dims)}")
    each = None if weights is None else weights.dims
    if dims is not None and each is not None and known_different(dims[min(1, len(dims) - 1)], each[0]):
        fail(call, "E0445", f"predictions {shape_text(dims)} and weights {shape_text(each)} differ")
    device = device_of(infos)
    if reduction != "none":
        return result((), dtype, vdevice=device)
    return result(rest, dtype, -1 if predictions.ndim < 0 else predictions.ndim - 1, device)


def infer_nll_loss_backward(call: relax.Call) -> relax.StructInfo:
    """The predictions' own shape."""
    gradient, loss = tensor(call, 0), _checked(call, 1)
    if gradient.ndim >= 0 and loss.ndim >= 0 and gradient.ndim != loss.ndim:
        fail(call, "E0445", f"the gradient of the loss has {gradient.ndim} dimensions, the loss has {loss.ndim}")
    return tensor(call, 1)


# ---------------------------------------------------------------- lowering


def _ones(predictions: te.Tensor) -> te.Tensor:
    count = predictions.shape[min(1, predictions.ndim - 1)]
    return topi.compute_ax([count], lambda i: te.const(1, predictions.dtype), "T_full")


def _at(i: Any, c: Any) -> list[Any]:
    """Return the index of the prediction for class `c` of the target at `i`: the class axis follows the batch axis."""
    return [*i[:1], c, *i[1:]]


def _weighed(call: relax.Call, targets: te.Tensor, value: Any, dtype: Any) -> te.Tensor:
    """`value(indices, class)` for each target but those of `ignore_index`, which may stand for no class at all."""
    ignored = call.attrs["ignore_index"]

    def element(*i: Any) -> Any:
        c = targets(*i)
        told = Scalar(construct.not_equal(raw(c), ignored))
        return te.if_then_else(told, value(i, c), te.const(0, dtype))

    return topi.compute_ax(targets.shape, element, "nll_loss")


def _total(x: te.Tensor) -> te.Tensor:
    return reduce_with(te.sum, x, range(x.ndim)) if x.ndim else x


def _lower_nll_loss(
    call: relax.Call, predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor | None = None
) -> te.Tensor:
    guard.floats_only(predictions.dtype)
    factors = _ones(predictions) if weights is None else weights
    dtype, reduction = predictions.dtype, call.attrs["reduction"]
    loss = _weighed(
        call, targets, lambda i, c: Scalar(construct.negate(raw(predictions(*_at(i, c))))) * factors(c), dtype
    )
    if reduction == "none":
        return loss
    if reduction == "sum":
        return _total(loss)
    used = _weighed(call, targets, lambda i, c: factors(c), dtype)
    return topi.divide(_total(loss), _total(used))


def _lower_nll_loss_backward(
    call: relax.Call, gradient: te.Tensor, predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor | None = None
) -> te.Tensor:
    """-weight at the class of each target, times what comes back to its loss."""
    guard.floats_only(predictions.dtype)
    factors = _ones(predictions) if weights is None else weights
    dtype, reduction = predictions.dtype, call.attrs["reduction"]
    used = _weighed(call, targets, lambda i, c: factors(c), dtype)
    total = _total(used) if reduction == "mean" else None

    def element(*i: Any) -> Any:
        own = 0 if predictions.ndim == 1 else 1
        place = (*i[:own], *i[own + 1 :])
        back = gradient(*place) if reduction == "none" else gradient()
        share = back if total is None else back / total()
        hit = Scalar(construct.equal(raw(i[own]), raw(targets(*place))))
        return te.select(hit, Scalar(construct.negate(raw(used(*place)))) * share, te.const(0, dtype))

    pred_grad: te.Tensor = te.compute(predictions.shape, element, name="pred_grad")
    return pred_grad


# ---------------------------------------------------------------- NumPy


def _np_weights(call: relax.Call, predictions: Any, targets: Any, weights: Any) -> tuple[Any, Any]:
    """The class of each target, 0 for those that are ignored, and its weight."""
    told = targets != call.attrs["ignore_index"]
    own = min(1, predictions.ndim - 1)
    count = predictions.shape[own]
    classes = np.where(told, targets, 0)
    places(targets[told], count, own, False)
    each = np.ones(count, predictions.dtype) if weights is None else weights
    return classes, np.where(told, each[classes] if count else 0, 0)


def _np_nll_loss(call: relax.Call, predictions: Any, targets: Any, weights: Any = None) -> Any:
    guard.floats_only(predictions.dtype)
    classes, used = _np_weights(call, predictions, targets, weights)
    own = 0 if predictions.ndim == 1 else 1
    picked = np.squeeze(np.take_along_axis(predictions, np.expand_dims(classes, own), own), own)
    loss = np.where(targets != call.attrs["ignore_index"], -picked * used, 0)
    reduction = call.attrs["reduction"]
    if reduction == "none":
        return loss
    return np.sum(loss) if reduction == "sum" else np.sum(loss) / np.sum(used)


def _np_nll_loss_backward(call: relax.Call, gradient: Any, predictions: Any, targets: Any, weights: Any = None) -> Any:
    guard.floats_only(predictions.dtype)
    classes, used = _np_weights(call, predictions, targets, weights)
    own = 0 if predictions.ndim == 1 else 1
    share = gradient / np.sum(used) if call.attrs["reduction"] == "mean" else gradient
    pred_grad = np.zeros_like(predictions)
    np.put_along_axis(
        pred_grad, np.expand_dims(classes, own), np.expand_dims(-used * share, own).astype(pred_grad.dtype), own
    )
    return pred_grad


OPS: dict[str, Impl] = {
    "nn.nll_loss": Impl(
        'predictions, targets, weights = None, reduction: str = "mean", ignore_index: int = -100', infer_nll_loss,
        _np_nll_loss, _lower_nll_loss,
        tir_name=lambda call: "nll_loss" if len(call.args) == 3 else "nll_loss_without_weight",
    ),
    "grad.nll_loss_backward": Impl(
        'output_grad, predictions, targets, weights = None, reduction: str = "mean", ignore_index: int = -100',
        infer_nll_loss_backward, _np_nll_loss_backward, _lower_nll_loss_backward,
        tir_name=lambda call: "nll_loss_backward" if len(call.args) == 4 else "te_nll_loss_backward_no_weight",
    ),
}  # fmt: skip
