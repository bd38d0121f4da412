"""The negative log likelihood, and its gradient."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import construct, relax
from mlcc.ops import guard, topi
from mlcc.ops.index_bounds import checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.linalg import result_dtype
from mlcc.ops.reduce import reduce_with
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, device_of, fail, known_different, result, shape_text, tensor
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def infer_nll_loss(call: relax.Call) -> Tensor:
    """Infer a scalar, or with `reduction="none"` the predictions' shape without the class axis."""
    return _check_nll(call, 0)


def _check_nll(call: relax.Call, first: int) -> Tensor:
    """Check predictions, targets and weights, the arguments from `first` on. Return the struct info of the loss."""
    infos = [tensor(call, i) for i in range(first, len(call.args))]
    predictions, targets = infos[:2]
    weights = infos[2] if len(infos) > 2 else None
    reduction = call.attrs["reduction"]
    if reduction not in ("none", "sum", "mean"):
        fail(call, "E0442", f'`reduction` must be "none", "sum" or "mean", not "{reduction}"')
    if targets.dtype is not None and not targets.dtype.is_int:
        fail(call, "E0444", f"the targets are class indices: they must be integers, not {targets.dtype}")
    if predictions.ndim == 0:
        fail(call, "E0445", "the predictions need at least one dimension, that of the classes")
    if weights is not None and weights.ndim not in (-1, 1):
        fail(
            call, "E0445", f"the weights must be a vector of one number per class, they have {weights.ndim} dimensions"
        )
    if predictions.ndim >= 0 and targets.ndim >= 0 and targets.ndim != predictions.ndim - 1:
        fail(call, "E0445", f"predictions of {predictions.ndim} dimensions need targets of {predictions.ndim - 1}")
    dtype = result_dtype(call, [predictions] if weights is None else [predictions, weights])
    dims = predictions.dims
    rest = None if dims is None else (() if len(dims) == 1 else (dims[0], *dims[2:]))
    pairs = [] if rest is None or targets.dims is None else list(zip(rest, targets.dims, strict=True))
    if any(known_different(a, b) for a, b in pairs):
        text = f"predictions {shape_text(dims)} need targets {shape_text(rest)}"
        fail(call, "E0445", f"{text}, they are {shape_text(targets.dims)}")
    weight_dims = None if weights is None else weights.dims
    if dims is not None and weight_dims is not None and known_different(dims[min(1, len(dims) - 1)], weight_dims[0]):
        fail(call, "E0445", f"predictions {shape_text(dims)} and weights {shape_text(weight_dims)} differ")
    device = device_of(infos)
    if reduction != "none":
        return result((), dtype, vdevice=device)
    return result(rest, dtype, -1 if predictions.ndim < 0 else predictions.ndim - 1, device)


def infer_nll_loss_backward(call: relax.Call) -> relax.StructInfo:
    """The predictions' own shape."""
    gradient, loss = tensor(call, 0), _check_nll(call, 1)
    if gradient.ndim >= 0 and loss.ndim >= 0 and gradient.ndim != loss.ndim:
        fail(call, "E0445", f"the gradient of the loss has {gradient.ndim} dimensions, the loss has {loss.ndim}")
    return tensor(call, 1)


# ---------------------------------------------------------------- lowering


def _ones(predictions: te.Tensor) -> te.Tensor:
    count = predictions.shape[min(1, predictions.ndim - 1)]
    return topi.compute_ax([count], lambda i: te.const(1, predictions.dtype), "T_full")


def _prediction_index(i: Any, c: Any) -> list[Any]:
    """Return the index of the prediction for class `c` of the target at `i`: the class axis follows the batch axis."""
    return [*i[:1], c, *i[1:]]


def _per_target(call: relax.Call, targets: te.Tensor, value: Any, dtype: Any) -> te.Tensor:
    """Compute `value(indices, class)` for each target, 0 for targets equal to `ignore_index`."""
    ignored = call.attrs["ignore_index"]

    def element(*i: Any) -> Any:
        c = targets(*i)
        counted = Scalar(construct.not_equal(to_expr(c), ignored))
        return te.if_then_else(counted, value(i, c), te.const(0, dtype))

    return topi.compute_ax(targets.shape, element, "nll_loss")


def _sum_all(x: te.Tensor) -> te.Tensor:
    return reduce_with(te.sum, x, range(x.ndim)) if x.ndim else x


def _lower_nll_loss(
    call: relax.Call, predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor | None = None
) -> te.Tensor:
    guard.floats_only(predictions.dtype)
    factors = _ones(predictions) if weights is None else weights
    dtype, reduction = predictions.dtype, call.attrs["reduction"]
    loss = _per_target(
        call,
        targets,
        lambda i, c: Scalar(construct.negate(to_expr(predictions(*_prediction_index(i, c))))) * factors(c),
        dtype,
    )
    if reduction == "none":
        return loss
    if reduction == "sum":
        return _sum_all(loss)
    target_weights = _per_target(call, targets, lambda i, c: factors(c), dtype)
    return topi.divide(_sum_all(loss), _sum_all(target_weights))


def _lower_nll_loss_backward(
    call: relax.Call, gradient: te.Tensor, predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor | None = None
) -> te.Tensor:
    """Scale -weight at the class of each target by the incoming gradient of its loss."""
    guard.floats_only(predictions.dtype)
    factors = _ones(predictions) if weights is None else weights
    dtype, reduction = predictions.dtype, call.attrs["reduction"]
    target_weights = _per_target(call, targets, lambda i, c: factors(c), dtype)
    weight_sum = _sum_all(target_weights) if reduction == "mean" else None

    def element(*i: Any) -> Any:
        class_axis = 0 if predictions.ndim == 1 else 1
        place = (*i[:class_axis], *i[class_axis + 1 :])
        incoming = gradient(*place) if reduction == "none" else gradient()
        share = incoming if weight_sum is None else incoming / weight_sum()
        is_target = Scalar(construct.equal(to_expr(i[class_axis]), to_expr(targets(*place))))
        return te.select(
            is_target, Scalar(construct.negate(to_expr(target_weights(*place)))) * share, te.const(0, dtype)
        )

    pred_grad: te.Tensor = te.compute(predictions.shape, element, name="pred_grad")
    return pred_grad


# ---------------------------------------------------------------- NumPy


def _np_weights(call: relax.Call, predictions: Any, targets: Any, weights: Any) -> tuple[Any, Any]:
    """The class of each target, 0 for those that are ignored, and its weight."""
    counted = targets != call.attrs["ignore_index"]
    class_axis = min(1, predictions.ndim - 1)
    count = predictions.shape[class_axis]
    classes = np.where(counted, targets, 0)
    checked_indices(targets[counted], count, class_axis, False)
    class_weights = np.ones(count, predictions.dtype) if weights is None else weights
    return classes, np.where(counted, class_weights[classes] if count else 0, 0)


def _np_nll_loss(call: relax.Call, predictions: Any, targets: Any, weights: Any = None) -> Any:
    guard.floats_only(predictions.dtype)
    classes, target_weights = _np_weights(call, predictions, targets, weights)
    class_axis = 0 if predictions.ndim == 1 else 1
    picked = np.squeeze(np.take_along_axis(predictions, np.expand_dims(classes, class_axis), class_axis), class_axis)
    loss = np.where(targets != call.attrs["ignore_index"], -picked * target_weights, 0)
    reduction = call.attrs["reduction"]
    if reduction == "none":
        return loss
    return np.sum(loss) if reduction == "sum" else np.sum(loss) / np.sum(target_weights)


def _np_nll_loss_backward(call: relax.Call, gradient: Any, predictions: Any, targets: Any, weights: Any = None) -> Any:
    guard.floats_only(predictions.dtype)
    classes, target_weights = _np_weights(call, predictions, targets, weights)
    class_axis = 0 if predictions.ndim == 1 else 1
    share = gradient / np.sum(target_weights) if call.attrs["reduction"] == "mean" else gradient
    pred_grad = np.zeros_like(predictions)
    np.put_along_axis(
        pred_grad,
        np.expand_dims(classes, class_axis),
        np.expand_dims(-target_weights * share, class_axis).astype(pred_grad.dtype),
        class_axis,
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
