"""Quantization operators of PT2E exports: integers with scales and zero points."""

from __future__ import annotations

from mlcc.frontend.aten.converters.elementwise import clamp
from mlcc.frontend.aten.promotion import Value, as_tensor
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.ir import relax
from mlcc.relax import op


@converts(
    "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)  # fmt: skip
def _quantize(
    t: Translator, input: relax.Expr, scale: Value, zero_point: Value, quant_min: Value, quant_max: Value, dtype: str
) -> relax.Expr:
    return t.cast(_quantized_float(t, input, scale, zero_point, quant_min, quant_max), dtype)


@converts("quantized_decomposed.quantize_per_channel")
def _quantize_channels(
    t: Translator, input: relax.Expr, scales: relax.Expr, zero_points: relax.Expr, axis: int, quant_min: int,
    quant_max: int, dtype: str,
) -> relax.Expr:  # fmt: skip
    at = t.axis(input, axis)
    factor, zero = (_per_channel(t, input, at, value) for value in (scales, zero_points))
    return t.cast(_quantized_float(t, input, factor, zero, quant_min, quant_max), dtype)


@converts("quantized_decomposed.quantize_per_token")
def _quantize_tokens(
    t: Translator, input: relax.Expr, scales: relax.Expr, zero_points: relax.Expr, quant_min: int, quant_max: int,
    dtype: str,
) -> relax.Expr:  # fmt: skip
    return t.cast(_quantized_float(t, input, scales, zero_points, quant_min, quant_max), dtype)


def _per_channel(t: Translator, value: relax.Expr, axis: int, each: relax.Expr) -> relax.Expr:
    """Reshape per-channel parameters so that they broadcast along an axis of the value."""
    return t.reshape(each, [t.shape(each)[0], *[1] * (t.ndim(value) - axis - 1)])


def _quantized_float(
    t: Translator, value: relax.Expr, scale: Value, zero_point: Value, least: Value, most: Value
) -> relax.Expr:
    """Emit clamp(round(x * (1 / scale)) + zero_point, least, most) in float32, as in PyTorch's reference."""
    dtype = "float32"
    if isinstance(scale, relax.Expr):
        inverse: relax.Expr = t.emit(op.divide(t.scalar(1, dtype), t.cast(scale, dtype)))
    else:
        inverse = t.scalar(1.0 / float(scale), dtype)  # type: ignore[arg-type]
    steps = op.round(op.multiply(t.cast(value, dtype), inverse))
    shifted = t.emit(op.add(steps, as_tensor(t, zero_point, dtype)))
    return clamp(t, shifted, as_tensor(t, least, dtype), as_tensor(t, most, dtype))


# ---------------------------------------------------------------- dequantization


@converts(
    "quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)  # fmt: skip
def _dequantize(
    t: Translator, input: relax.Expr, scale: Value, zero_point: Value, quant_min: Value, quant_max: Value, dtype: str,
    out_dtype: str | None = None,
) -> relax.Expr:  # fmt: skip
    if t.dtype(input) in _INT8_DTYPES and _is_per_tensor(t, scale) and _is_per_tensor(t, zero_point):
        return _dequantized(t, input, scale, zero_point, 0, out_dtype)
    return _dequantized_float(t, input, scale, zero_point, out_dtype)


@converts("quantized_decomposed.dequantize_per_channel")
def _dequantize_channels(
    t: Translator, input: relax.Expr, scales: relax.Expr, zero_points: relax.Expr | None, axis: int, quant_min: int,
    quant_max: int, dtype: str, out_dtype: str | None = None,
) -> relax.Expr:  # fmt: skip
    at = t.axis(input, axis)
    if t.dtype(input) in _INT8_DTYPES:
        return _dequantized(t, input, scales, 0 if zero_points is None else zero_points, at, out_dtype)
    zero = 0 if zero_points is None else _per_channel(t, input, at, zero_points)
    return _dequantized_float(t, input, _per_channel(t, input, at, scales), zero, out_dtype)


@converts("quantized_decomposed.dequantize_per_token")
def _dequantize_tokens(
    t: Translator, input: relax.Expr, scales: relax.Expr, zero_points: relax.Expr, quant_min: int, quant_max: int,
    dtype: str, output_dtype: str = "float32",
) -> relax.Expr:  # fmt: skip
    return _dequantized_float(t, input, scales, zero_points, output_dtype)


_INT8_DTYPES = ("int8", "uint8")


def _is_per_tensor(t: Translator, value: Value) -> bool:
    """Return True if a scale or zero point is one number for the whole tensor."""
    return not isinstance(value, relax.Expr) or t.static_shape(value) in ((), (1,))


def _dequantized(
    t: Translator, value: relax.Expr, scale: Value, zero_point: Value, axis: int, dtype: str | None
) -> relax.Expr:
    """Emit `R.dequantize` for 8-bit integers; passes recognize integer products by it."""
    compute_dtype = "float32"
    factor = t.cast(scale, compute_dtype) if isinstance(scale, relax.Expr) else as_tensor(t, scale, compute_dtype)
    floats = t.emit(op.dequantize(value, factor, _zero_points(t, zero_point), axis, compute_dtype))
    return t.cast(floats, dtype or compute_dtype)


def _zero_points(t: Translator, zero_point: Value) -> relax.Expr:
    """Convert zero points to int32; constants stay constants."""
    if not isinstance(zero_point, relax.Expr):
        return as_tensor(t, zero_point, "int32")
    if isinstance(zero_point, relax.Constant) and zero_point.data.array is not None:
        return t.constant(zero_point.data.array.astype("int32"))
    return t.cast(zero_point, "int32")


def _dequantized_float(
    t: Translator, value: relax.Expr, scale: Value, zero_point: Value, dtype: str | None
) -> relax.Expr:
    """Emit (x - zero_point) * scale in float32, cast to `dtype` if given."""
    compute_dtype = "float32"
    steps: relax.Expr = t.cast(value, compute_dtype)
    if isinstance(zero_point, relax.Expr) or zero_point != 0:
        steps = t.emit(op.subtract(steps, as_tensor(t, zero_point, compute_dtype)))
    return t.cast(t.emit(op.multiply(steps, as_tensor(t, scale, compute_dtype))), dtype or compute_dtype)


# ---------------------------------------------------------------- quantization parameters from data


@converts("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed.choose_qparams_symmetric.tensor")
def _choose(
    t: Translator, input: relax.Expr, quant_min: int, quant_max: int, eps: float, dtype: str
) -> list[relax.Expr]:
    """Return the scale and zero point that map the range of the data, including 0, to the quantized range."""
    zero = t.scalar(0, "float32")
    low, high = (t.emit(bound) for bound in (op.minimum(zero, op.min(input)), op.maximum(zero, op.max(input))))
    scale = op.divide(op.subtract(high, low), t.scalar(quant_max - quant_min, "float32"))
    factor = t.emit(op.maximum(scale, t.scalar(eps, "float32")))
    zero_point = op.subtract(t.scalar(quant_min, "float32"), op.round(op.divide(low, factor)))
    clamped = clamp(t, t.emit(zero_point), t.scalar(quant_min, "float32"), t.scalar(quant_max, "float32"))
    return [t.cast(factor, "float64"), t.cast(clamped, "int64")]


@converts("aten.fake_quantize_per_tensor_affine", "aten.fake_quantize_per_tensor_affine.tensor_qparams")
def _fake_quantize(
    t: Translator, self: relax.Expr, scale: Value, zero_point: Value, quant_min: int, quant_max: int
) -> relax.Expr:
    return _dequantized_float(
        t, _quantized_float(t, self, scale, zero_point, quant_min, quant_max), scale, zero_point, t.dtype(self)
    )


@converts("aten.fake_quantize_per_channel_affine")
def _fake_quantize_channels(
    t: Translator, self: relax.Expr, scale: relax.Expr, zero_point: relax.Expr, axis: int, quant_min: int,
    quant_max: int,
) -> relax.Expr:  # fmt: skip
    at = t.axis(self, axis)
    factor, zero = (_per_channel(t, self, at, value) for value in (scale, zero_point))
    return _dequantized_float(
        t, _quantized_float(t, self, factor, zero, quant_min, quant_max), factor, zero, t.dtype(self)
    )
