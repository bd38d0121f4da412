"""Elementwise unary operators: mathematics, rounding, predicates, activations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import BOOL
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Tensor,
    fail,
    known_different,
    require_float,
    scalar_argument,
    shape_text,
    tensor,
    tensor_like,
)
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.tensor import Tensor as TeTensor

# ---------------------------------------------------------------- inference


def infer_any(call: relax.Call) -> Tensor:
    """Shape and dtype of the argument."""
    return tensor(call, 0)


def infer_float(call: relax.Call) -> Tensor:
    """Shape and dtype of the argument, which must hold floats."""
    info = tensor(call, 0)
    require_float(call, info)
    return info


def infer_bool(call: relax.Call) -> Tensor:
    """Shape of the argument; bool."""
    return tensor_like(tensor(call, 0), BOOL)


def infer_clip(call: relax.Call) -> Tensor:
    """Shape and dtype of the argument; the limits are scalars."""
    for index in (1, 2):
        scalar_argument(call, index)
    return tensor(call, 0)


def infer_prelu(call: relax.Call) -> Tensor:
    """Shape and dtype of the data; one slope per channel, or one for all."""
    from mlcc.ops.shapes import axis

    data, slopes = tensor(call, 0), tensor(call, 1)
    if data.ndim >= 0:
        channel = axis(call, call.attrs["axis"], data.ndim)
        if data.dims is not None and slopes.dims is not None and slopes.ndim == 1:
            shared = tir.const_int(slopes.dims[0]) == 1
            if not shared and known_different(slopes.dims[0], data.dims[channel]):
                text = f"the slopes are {shape_text(slopes.dims)}, the data {shape_text(data.dims)}"
                fail(call, "E0445", f"{text}: there must be one slope per index along axis {channel}, or one for all")
    return data


# ---------------------------------------------------------------- NumPy


def erf(x: Any) -> Any:
    """The error function, which NumPy lacks."""
    flat = np.asarray(x, np.float64)
    return np.vectorize(math.erf, otypes=[np.float64])(flat) if flat.size else flat


def _np_sign(x: Any) -> Any:
    """The sign as 1, -1 or 0; 0 for NaN."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _np_clip(call: relax.Call, x: Any, low: Any, high: Any) -> Any:
    """Clip by min, then max, with the limits in the tensor's dtype."""
    return np.maximum(np.minimum(x, np.asarray(high).astype(x.dtype)), np.asarray(low).astype(x.dtype))


def _np_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def _np_softplus(call: relax.Call, x: Any) -> Any:
    beta, threshold = call.attrs["beta"], call.attrs["threshold"]
    scaled = x * beta
    return np.where(scaled > threshold, x, np.log1p(np.exp(np.minimum(scaled, threshold))) / beta)


def _np_prelu(call: relax.Call, x: Any, slope: Any) -> Any:
    shape = [1] * x.ndim
    shape[call.attrs["axis"]] = -1
    return np.where(x > 0, x, x * np.reshape(slope, shape))


def _np_selu(x: Any) -> Any:
    return SELU_SCALE * (np.maximum(x, 0) + np.minimum(0, SELU_ALPHA * (np.exp(x) - 1)))


def _np_gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * x * (1 + 0.044715 * x * x)))


# ---------------------------------------------------------------- lowering

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
SQRT_2_OVER_PI = 0.79788456080286541


def _logical_not(v: Scalar) -> Scalar:
    """Return the logical negation of a number in its dtype: 1 for 0, else 0."""
    return (
        te.logical_not(v)
        if v.dtype.is_bool
        else Scalar(construct.cast(v.dtype, construct.equal(to_expr(v), construct.const(0, v.dtype))))
    )


def _negative(v: Scalar) -> Scalar:
    """Unsigned integers wrap; bools have no negative."""
    if v.dtype.is_bool:
        raise TypeError("bools have no negative")
    return te.const(0, v.dtype) - v if v.dtype.is_uint else -v


def _lower_erf(x: TeTensor) -> TeTensor:
    """float16 is computed in float32."""
    if str(x.dtype) == "float16":
        return topi.cast(topi.elementwise(topi.cast(x, "float32"), te.erf), "float16")
    return topi.elementwise(x, te.erf)


def _lower_gelu(x: TeTensor) -> TeTensor:
    """x * (0.5 + erf(x * sqrt(0.5)) * 0.5)."""
    part = topi.multiply(_lower_erf(topi.multiply(x, _const(x, math.sqrt(0.5)))), _const(x, 0.5))
    return topi.multiply(x, topi.add(_const(x, 0.5), part))


def _lower_gelu_tanh(x: TeTensor) -> TeTensor:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x * x)))."""
    half = topi.multiply(_const(x, 0.5), x)
    inner = topi.multiply(_const(x, SQRT_2_OVER_PI), x)
    cubic = topi.multiply(topi.multiply(_const(x, 0.044715), x), x)
    tanh = topi.elementwise(topi.multiply(inner, topi.add(_const(x, 1.0), cubic)), te.tanh)
    return topi.multiply(half, topi.add(_const(x, 1.0), tanh))


def _expm1_element(v: Scalar) -> Scalar:
    """exp(x) - 1; near 0, where that cancels, 2 t / (1 - t) with t = tanh(x / 2)."""
    one, half = topi.float_constant(1.0, v.dtype), topi.float_constant(0.5, v.dtype)
    tanh = te.tanh(v * half)
    return te.select(te.abs(v) < half, (tanh + tanh) / (one - tanh), te.exp(v) - one)


def _lower_selu(x: TeTensor) -> TeTensor:
    positive = topi.maximum(x, _const(x, 0.0))
    below = topi.subtract(topi.elementwise(x, te.exp), _const(x, 1.0))
    negative = topi.minimum(_const(x, 0.0), topi.multiply(_const(x, SELU_ALPHA), below))
    return topi.multiply(_const(x, SELU_SCALE), topi.add(positive, negative))


def _lower_silu(x: TeTensor) -> TeTensor:
    return topi.multiply(x, topi.elementwise(x, te.sigmoid))


def _lower_sign(x: TeTensor) -> TeTensor:
    one, zero = te.const(1, x.dtype), te.const(0, x.dtype)
    minus = te.const(-1, x.dtype) if not x.dtype.is_uint and not x.dtype.is_bool else zero
    return topi.elementwise_ax(x, lambda v: te.select(v > zero, one, te.select(v < zero, minus, zero)), "T_sign")


def _lower_softplus(call: relax.Call, x: TeTensor) -> TeTensor:
    beta, threshold = call.attrs["beta"], call.attrs["threshold"]

    def element(v: te.Scalar) -> te.Scalar:
        scaled = v * _const(x, beta)
        curve = te.log(_const(x, 1.0) + te.exp(scaled)) / _const(x, beta)
        return te.select(scaled > _const(x, threshold), v, curve)

    return topi.elementwise(x, element)


def _lower_leaky(call: relax.Call, x: TeTensor) -> TeTensor:
    slope = _const(x, call.attrs["alpha"])
    return topi.elementwise(x, lambda v: te.select(v > _const(x, 0), v, v * slope))


def _lower_prelu(call: relax.Call, x: TeTensor, slope: TeTensor) -> TeTensor:
    channel = call.attrs["axis"] % x.ndim
    if slope.ndim != 1:
        fail(call, "E0445", f"the slopes must have 1 dimension, they have {slope.ndim}")
    if tir.const_int(slope.buffer.shape[0]) == 1:
        shared = slope
        slope = te.compute((x.shape[channel],), lambda c: shared(0), name="slope_broadcasted")

    def element(*i: te.Scalar) -> te.Scalar:
        return te.select(x(*i) > _const(x, 0), x(*i), x(*i) * slope(i[channel]))

    activated: TeTensor = te.compute(x.shape, element, name="compute")
    return activated


def _lower_clip(call: relax.Call, x: TeTensor, low: Any, high: Any) -> TeTensor:
    from mlcc.ir import construct
    from mlcc.te.scalar import Scalar, to_expr

    least, most = construct.cast(x.dtype, to_expr(low)), construct.cast(x.dtype, to_expr(high))
    return topi.elementwise(x, lambda v: Scalar(construct.maximum(construct.minimum(v.expr, most), least)))


def _const(x: TeTensor, value: float) -> te.Scalar:
    return topi.float_constant(value, x.dtype)


# ---------------------------------------------------------------- the table


def _entry(
    infer: Callable[[relax.Call], relax.StructInfo], numpy: Callable[[Any], Any], lower: Callable[[TeTensor], TeTensor],
    cost: Cost = Cost.COSTLY, activation: bool = False,
) -> Impl:  # fmt: skip
    """The entry of an operator whose reference and lowering take only the tensor."""
    return Impl(
        "x", infer, lambda call, x: numpy(x), lambda call, x: lower(x), FusionKind.ELEMWISE, activation=activation,
        cost=cost, precision=Precision.FOLLOW, layout=layout_rules.elementwise,
    )  # fmt: skip


def _float_op(name: str, fn: Callable[[Any], Any], numpy: Callable[[Any], Any] | None = None) -> Impl:
    """The entry of a float operator that is a single intrinsic."""
    reference = numpy or (lambda x: getattr(np, name)(x))
    return _entry(infer_float, reference, lambda x: topi.elementwise(x, fn))


def _elementwise(
    numpy: Callable[[Any], Any], fn: Callable[[Any], Any], cost: Cost = Cost.COSTLY, activation: bool = False
) -> Impl:
    return _entry(infer_any, numpy, lambda x: topi.elementwise(x, fn), cost, activation)


# their TIR functions have a prefix, as TVM's, to avoid clashes with the C library
_PREFIXED: dict[str, Impl] = {
    "abs": _elementwise(lambda x: np.abs(x), te.abs, cost=Cost.CHEAP),
    "acos": _float_op("arccos", te.acos),
    "acosh": _float_op("arccosh", te.acosh),
    "asin": _float_op("arcsin", te.asin),
    "asinh": _float_op("arcsinh", te.asinh),
    "atan": _float_op("arctan", te.atan),
    "atanh": _float_op("arctanh", te.atanh),
    "bitwise_not": _entry(
        infer_any, lambda x: ~x, lambda x: topi.elementwise_ax(x, lambda v: ~v, "T_bitwise_not"), cost=Cost.CHEAP
    ),
    "ceil": _elementwise(lambda x: np.ceil(x), te.ceil),
    "clip": Impl(
        "x, min: scalar, max: scalar",
        infer_clip,
        _np_clip,
        _lower_clip,
        FusionKind.ELEMWISE,
        cost=Cost.CHEAP,
        free_layout=layout_rules.first_operand,
    ),
    "cos": _float_op("cos", te.cos),
    "cosh": _float_op("cosh", te.cosh),
    "exp": _float_op("exp", te.exp),
    "expm1": _entry(infer_float, lambda x: np.expm1(x), lambda x: topi.elementwise(x, _expm1_element)),
    "floor": _elementwise(lambda x: np.floor(x), te.floor),
    "isfinite": _entry(infer_bool, lambda x: np.isfinite(x), lambda x: topi.elementwise(x, te.isfinite)),
    "isinf": _entry(infer_bool, lambda x: np.isinf(x), lambda x: topi.elementwise(x, te.isinf)),
    "isnan": _entry(infer_bool, lambda x: np.isnan(x), lambda x: topi.elementwise(x, te.isnan)),
    "log": _float_op("log", te.log),
    "log1p": _float_op("log1p", te.log1p),
    "logical_not": _entry(
        infer_any,
        lambda x: np.logical_not(x),
        lambda x: topi.elementwise_ax(x, _logical_not, "T_logical_not"),
        cost=Cost.CHEAP,
    ),
    "negative": _elementwise(lambda x: -x, _negative, cost=Cost.CHEAP),
    "round": _elementwise(lambda x: np.round(x), te.nearbyint),
    "rsqrt": _float_op("rsqrt", te.rsqrt, lambda x: 1 / np.sqrt(x)),
    "sigmoid": _float_op("sigmoid", te.sigmoid, _np_sigmoid),
    "sign": _entry(infer_any, _np_sign, _lower_sign),
    "sin": _float_op("sin", te.sin),
    "sinh": _float_op("sinh", te.sinh),
    "sqrt": _float_op("sqrt", te.sqrt),
    "square": _entry(infer_any, lambda x: x * x, lambda x: topi.multiply(x, x)),
    "tan": _float_op("tan", te.tan),
    "tanh": _float_op("tanh", te.tanh),
    "trunc": _elementwise(lambda x: np.trunc(x), te.trunc),
}

OPS: dict[str, Impl] = {
    **{name: dataclasses.replace(impl, tir_name=f"tir_{name}") for name, impl in _PREFIXED.items()},
    "erf": _entry(infer_float, erf, _lower_erf),
    "nn.relu": _elementwise(lambda x: np.maximum(x, np.zeros_like(x)), lambda v: te.max(v, 0), activation=True),
    "nn.gelu": _entry(infer_float, lambda x: x * (0.5 + 0.5 * erf(x * math.sqrt(0.5))), _lower_gelu, activation=True),
    "nn.gelu_tanh": _entry(infer_float, _np_gelu_tanh, _lower_gelu_tanh, activation=True),
    "nn.selu": _entry(infer_float, _np_selu, _lower_selu),
    "nn.silu": _entry(infer_float, lambda x: x * _np_sigmoid(x), _lower_silu, activation=True),
    "nn.softplus": Impl(
        "data, beta: float = 1.0, threshold: float = 20.0", infer_float, _np_softplus, _lower_softplus,
        FusionKind.ELEMWISE, free_layout=layout_rules.elementwise,
    ),
    "nn.leakyrelu": Impl(
        "data, alpha: float = 0.01", infer_float, lambda call, x: np.where(x > 0, x, x * call.attrs["alpha"]),
        _lower_leaky, FusionKind.ELEMWISE, tir_name="leaky_relu", aliases=("nn.leaky_relu",),
        free_layout=layout_rules.elementwise,
    ),
    "nn.prelu": Impl(
        "data, alpha, axis: int = 1", infer_prelu, _np_prelu, _lower_prelu, FusionKind.BROADCAST,
        layout=layout_rules.prelu,
    ),
}  # fmt: skip
