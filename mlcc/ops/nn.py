"""Neural network operators that have no file of their own: softmax, dropout, pixel shuffles, cross entropy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import guard, layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import reshape
from mlcc.ops.reduce import num_elements, reduce_with
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    axis,
    fail,
    int64,
    known_different,
    require_float,
    result,
    shape_text,
    simplify,
    tensor,
)
from mlcc.te.scalar import Scalar

# ---------------------------------------------------------------- inference


def infer_softmax(call: relax.Call) -> Tensor:
    """The tensor's own shape; floats."""
    data = tensor(call, 0)
    require_float(call, data)
    if data.ndim >= 0:
        axis(call, call.attrs["axis"], data.ndim)
    return data


def infer_dropout(call: relax.Call) -> relax.StructInfo:
    """The data and the mask."""
    data = tensor(call, 0)
    return relax.TupleStructInfo((data, data))


def infer_cross_entropy(call: relax.Call) -> Tensor:
    """A scalar, from two tensors of one shape."""
    left, right = tensor(call, 0), tensor(call, 1)
    if left.ndim >= 0 and right.ndim >= 0 and left.ndim != right.ndim:
        fail(call, "E0445", f"the tensors have {left.ndim} and {right.ndim} dimensions")
    if left.dims is not None and right.dims is not None:
        for a, b in zip(left.dims, right.dims, strict=True):
            if known_different(a, b):
                fail(call, "E0445", f"{shape_text(left.dims)} and {shape_text(right.dims)} differ")
    if left.dtype is not right.dtype and left.dtype is not None and right.dtype is not None:
        fail(call, "E0444", f"the tensors have different dtypes, {left.dtype} and {right.dtype}")
    return result((), left.dtype)


def infer_batch_flatten(call: relax.Call) -> Tensor:
    """Infer (n, product of the other extents)."""
    data = tensor(call, 0)
    if data.ndim == 2:
        return data
    if data.dims is None:
        return result(None, data.dtype, 2, data.vdevice)
    if data.ndim < 2:
        fail(call, "E0445", f"needs at least 2 dimensions, the tensor has {data.ndim}")
    rest: tir.Expr = int64(1)
    for extent in data.dims[1:]:
        rest = construct.mul(rest, extent)
    return result((data.dims[0], rest), data.dtype, vdevice=data.vdevice)


def infer_pixel_shuffle(call: relax.Call) -> Tensor:
    """Infer the last three dimensions: channels are rearranged into rows and columns."""
    data, factor = tensor(call, 0), call.attrs["upscale_factor"]
    if factor <= 0:
        fail(call, "E0442", f"`upscale_factor` must be positive, not {factor}")
    if data.ndim < 3:
        known = "an unknown number of" if data.ndim < 0 else str(data.ndim)
        fail(call, "E0445", f"needs at least 3 dimensions, the tensor has {known}")
    if data.dims is None:
        return result(None, data.dtype, data.ndim, data.vdevice)
    *batch, channels, height, width = data.dims
    count = tir.const_int(channels)
    if count is not None and count % factor**2:
        fail(call, "E0445", f"{count} channels cannot be divided by {factor} x {factor}")
    wide = [simplify(construct.mul(d, int64(factor))) for d in (height, width)]
    return result([*batch, simplify(construct.floordiv(channels, int64(factor**2))), *wide], data.dtype)


# ---------------------------------------------------------------- lowering: softmax


def _shape_without(x: te.Tensor, at: int) -> list[tir.Expr]:
    return [d for i, d in enumerate(x.buffer.shape) if i != at]


def _insert(i: Sequence[Any], at: int, value: Any) -> list[Any]:
    return [*i[:at], value, *i[at:]]


def _drop(i: Sequence[Any], at: int) -> list[Any]:
    return [*i[:at], *i[at + 1 :]]


Element = Callable[[Scalar], Scalar]


def assume_number(x: Scalar) -> Scalar:
    """Mark an element as not NaN for a maximum: NaN reaches the result through the exponentials anyway."""
    return Scalar(construct.call(x.dtype, "assume_number", x.expr))


def allow_reciprocal(x: Scalar) -> Scalar:
    """Mark a divisor whose quotients may be products with its reciprocal: an error of 1.5 units in the last place."""
    return Scalar(construct.call(x.dtype, "allow_reciprocal", x.expr))


def identity(x: Scalar) -> Scalar:
    """Return the element unchanged."""
    return x


@dataclass(frozen=True)
class SoftmaxMarks:
    """Marks on the parts of a softmax: `operand` on the elements whose maximum is taken, `divisor` on the sum."""

    operand: Element = identity
    divisor: Element = identity


PLAIN = SoftmaxMarks()
MARKED = SoftmaxMarks(assume_number, allow_reciprocal)


def softmax(x: te.Tensor, at: int, marks: SoftmaxMarks = PLAIN) -> te.Tensor:
    """Numerically stable softmax along an axis."""
    k1, k2 = (te.reduce_axis((0, x.shape[at]), "k") for _ in range(2))
    outer = _shape_without(x, at)
    maxima = te.compute(
        outer, lambda *i: te.max(marks.operand(x(*_insert(i, at, k1))), axis=k1), name="T_softmax_maxelem"
    )
    exponentials = te.compute(x.shape, lambda *i: te.exp(x(*i) - maxima(*_drop(i, at))), name="T_softmax_exp")
    sums = te.compute(outer, lambda *i: te.sum(exponentials(*_insert(i, at, k2)), axis=k2), name="T_softmax_expsum")
    probabilities: te.Tensor = te.compute(
        x.shape, lambda *i: exponentials(*i) / marks.divisor(sums(*_drop(i, at))), name="T_softmax_norm",
        attrs={"axis": at},
    )  # fmt: skip
    return probabilities


def _lower_softmax(call: relax.Call, x: te.Tensor, marks: SoftmaxMarks = PLAIN) -> te.Tensor:
    return softmax(x, call.attrs["axis"] % x.ndim, marks)


def _lower_log_softmax(call: relax.Call, x: te.Tensor, max_operand: Element = identity) -> te.Tensor:
    """x - max - log(sum(exp(x - max)))."""
    at = call.attrs["axis"] % x.ndim
    k1, k2 = (te.reduce_axis((0, x.shape[at]), "k") for _ in range(2))
    outer = _shape_without(x, at)
    maxima = te.compute(
        outer, lambda *i: te.max(max_operand(x(*_insert(i, at, k1))), axis=k1), name="T_softmax_maxelem"
    )
    sums = te.compute(outer, lambda *i: te.sum(te.exp(x(*_insert(i, at, k2)) - maxima(*i)), axis=k2), name="compute")
    log_probabilities: te.Tensor = te.compute(
        x.shape,
        lambda *i: x(*i) - maxima(*_drop(i, at)) - te.log(sums(*_drop(i, at))),
        name="compute",
        attrs={"axis": at},
    )
    return log_probabilities


# ---------------------------------------------------------------- lowering: the rest


def _lower_dropout(call: relax.Call, x: te.Tensor) -> Any:
    """Return the data and a mask of ones: in inference nothing is dropped."""
    mask = topi.compute_ax(x.shape, lambda *i: te.const(1, x.dtype), "T_full_like")
    return topi.elementwise(x, lambda v: v), mask


def _lower_cross_entropy(call: relax.Call, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """-sum(x * y), divided by the batch size if there is a batch axis."""
    guard.floats_only(x.dtype)
    sums = reduce_with(te.sum, topi.multiply(x, y), list(range(x.ndim)))
    negative = topi.multiply(sums, te.const(-1, x.dtype))
    return topi.divide(negative, num_elements(x, [0], x.dtype)) if x.ndim > 1 else negative


def _lower_pixel_shuffle(call: relax.Call, x: te.Tensor) -> te.Tensor:
    factor = call.attrs["upscale_factor"]

    def element(*i: Any) -> Any:
        *batch, c, h, w = i
        channel = c * factor * factor + h % factor * factor + w % factor
        return x(*batch, channel, h // factor, w // factor)

    assert isinstance(call.struct_info, relax.TensorStructInfo)
    shuffled: te.Tensor = te.compute(call.struct_info.dims, element, name="PixelShuffle")
    return shuffled


# ---------------------------------------------------------------- NumPy


def _np_softmax(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    exponentials = np.exp(x - np.max(x, axis=at, keepdims=True, initial=-np.inf))
    return exponentials / np.sum(exponentials, axis=at, keepdims=True)


def _np_log_softmax(call: relax.Call, x: Any) -> Any:
    at = call.attrs["axis"]
    shifted = x - np.max(x, axis=at, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=at, keepdims=True))


def _np_pixel_shuffle(call: relax.Call, x: Any) -> Any:
    factor = call.attrs["upscale_factor"]
    *batch, channels, height, width = x.shape
    parts = np.reshape(x, (*batch, channels // factor**2, factor, factor, height, width))
    shuffled = np.moveaxis(parts, (-4, -3), (-3, -1))
    return np.reshape(shuffled, (*batch, channels // factor**2, height * factor, width * factor))


def _np_cross_entropy(call: relax.Call, x: Any, y: Any) -> Any:
    guard.floats_only(x.dtype)
    return -np.sum(x * y) / (x.shape[0] if x.ndim > 1 else 1)


OPS: dict[str, Impl] = {
    "nn.softmax": Impl(
        "data, axis: int = -1", infer_softmax, _np_softmax, _lower_softmax, FusionKind.OUT_EWISE_FUSABLE,
        layout=layout_rules.along_axis, accurate=functools.partial(_lower_softmax, marks=MARKED),
    ),
    "nn.log_softmax": Impl(
        "data, axis: int = -1", infer_softmax, _np_log_softmax, _lower_log_softmax, FusionKind.OUT_EWISE_FUSABLE,
        free_layout=layout_rules.along_axis, accurate=functools.partial(_lower_log_softmax, max_operand=assume_number),
    ),
    "nn.dropout": Impl(
        "data, rate: float = 0.5", infer_dropout, lambda call, x: (x, np.ones_like(x)), _lower_dropout,
        FusionKind.ELEMWISE, precision=Precision.FOLLOW, layout=layout_rules.dropout,
    ),
    "nn.pixel_shuffle": Impl(
        "data, upscale_factor: int", infer_pixel_shuffle, _np_pixel_shuffle, _lower_pixel_shuffle,
        FusionKind.INJECTIVE,
    ),
    "nn.cross_entropy_with_logits": Impl(
        "predictions, labels", infer_cross_entropy, _np_cross_entropy, _lower_cross_entropy,
    ),
    "nn.batch_flatten": Impl(
        "x", infer_batch_flatten, lambda call, x: np.reshape(x, (x.shape[0], math.prod(x.shape[1:]))),
        lambda call, x: reshape(x, call.struct_info.dims), FusionKind.INJECTIVE, tir_name="reshape",
        precision=Precision.FOLLOW,
    ),
}  # fmt: skip
