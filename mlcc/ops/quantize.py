"""Affine quantization with scales and zero points, and dequantization."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops import layout_rules
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl, Inline
from mlcc.ops.shapes import Dims, Tensor, axis, fail, prove_equal, shape_text, tensor, tensor_like
from mlcc.te.scalar import Scalar

NARROW = ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2")
FLOATS = ("float16", "float32")
ZERO_POINTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float16")

# ---------------------------------------------------------------- inference


def infer_quantize(call: relax.Call) -> Tensor:
    """Infer the data's shape in the quantized dtype."""
    return _check_quantization(call, FLOATS, NARROW)


def infer_dequantize(call: relax.Call) -> Tensor:
    """Infer the data's shape in a float dtype."""
    return _check_quantization(call, (*NARROW, "int32", *FLOATS), FLOATS)


def _check_quantization(call: relax.Call, input_dtypes: tuple[str, ...], output_dtypes: tuple[str, ...]) -> Tensor:
    """Check operands: scales and zero points are per tensor, per index along `axis`, or per group there."""
    data, scale, zero_point = (tensor(call, i) for i in range(3))
    kinds = ((data, "data", input_dtypes), (scale, "scale", FLOATS), (zero_point, "zero point", ZERO_POINTS))
    for info, name, dtypes in kinds:
        if info.dtype is not None and str(info.dtype) not in dtypes:
            fail(call, "E0444", f"the {name} must be of {', '.join(dtypes)}, not of {info.dtype}")
    wanted = str(call.attrs["out_dtype"])
    if wanted not in output_dtypes:
        fail(call, "E0442", f"`out_dtype` must be one of {', '.join(output_dtypes)}, not {wanted}")
    if data.ndim < 0:
        fail(call, "E0445", "the number of dimensions of the data must be known")
    at = axis(call, call.attrs["axis"], data.ndim)
    for info, name in ((scale, "scale"), (zero_point, "zero point")):
        if info.dims is None:
            if info.ndim != 0:
                fail(call, "E0445", f"the shape of the {name} must be known")
        elif not all(map(is_one, info.dims)) and not _parameter_fits(info.dims, data.dims, at):
            text = f"the {name} {shape_text(info.dims)} does not fit dimension {at} of {shape_text(data.dims)}"
            fail(
                call, "E0445", text, "it must be one number, one per index along `axis`, or one per group of neighbours"
            )
    return tensor_like(data, DType.of(wanted))


def _parameter_fits(dims: Dims, data: Dims | None, at: int) -> bool:
    """Return True for one parameter per index along `axis`, or, with the rank of the data, one per group there."""
    if data is None:
        return False
    if len(dims) == 1 and prove_equal(dims[0], data[at]):
        return True
    same = len(dims) == len(data) and all(
        prove_equal(*pair) for pair in zip(_drop_dim(dims, at), _drop_dim(data, at), strict=True)
    )
    return same and group_size(dims, data, at) is not None


def _drop_dim(dims: Dims, at: int) -> Dims:
    return (*dims[:at], *dims[at + 1 :])


def group_size(dims: Dims, data: Dims, at: int) -> int | None:
    """Return the number of adjacent elements along an axis that share a scale; None if unknown or not an integer."""
    groups, extent = tir.const_int(dims[at]), tir.const_int(data[at])
    return extent // groups if groups and extent is not None and extent % groups == 0 else None


# ---------------------------------------------------------------- lowering


def _parameter(call: relax.Call, value: Any, x: te.Tensor, i: Any) -> Scalar:
    """The scale or zero point of the element at `i`."""
    if not isinstance(value, te.Tensor):
        return Scalar(value)
    if all(map(is_one, value.buffer.shape)):
        return value(*[0] * value.ndim)
    at = call.attrs["axis"] % x.ndim
    size = group_size(value.buffer.shape, x.buffer.shape, at) if value.ndim == x.ndim else 1
    if value.ndim == 1:
        return value(i[at] // size if size and size > 1 else i[at])
    return value(*i[:at], i[at] // size, *i[at + 1 :])


def _clipped(value: Any, dtype: DType) -> Any:
    low, high = construct.min_value(dtype), construct.max_value(dtype)
    return Scalar(construct.maximum(construct.minimum(value.expr, high), low)).astype(dtype)


def _lower_quantize(call: relax.Call, x: te.Tensor, scale: Any, zero_point: Any) -> te.Tensor:
    """x / scale, rounded for integers, + zero point, clipped."""
    dtype = DType.of(call.attrs["out_dtype"])

    def element(*i: Any) -> Any:
        scaled = x(*i) / _parameter(call, scale, x, i)
        rounded = te.round(scaled) if dtype.is_int else scaled
        return _clipped(rounded + _parameter(call, zero_point, x, i), dtype)

    quantized: te.Tensor = te.compute(x.shape, element, name="quantized")
    return quantized


def _lower_dequantize(call: relax.Call, x: te.Tensor, scale: Any, zero_point: Any) -> te.Tensor:
    """(x - zero point) * scale; integers are subtracted as int32."""
    dtype = DType.of(call.attrs["out_dtype"])

    def element(*i: Any) -> Any:
        point = _parameter(call, zero_point, x, i)
        exact = x.dtype.is_int and not point.dtype.is_float
        wide = "int32" if exact else "float32"
        point = point.astype(wide) if isinstance(point.expr, tir.IntImm) or not exact else point
        moved = x(*i).astype(wide) - point
        real = moved * _parameter(call, scale, x, i).astype("float32")
        return real if str(dtype) == "float32" else _clipped(real, dtype)

    dequantized: te.Tensor = te.compute(x.shape, element, name="dequantized")
    return dequantized


# ---------------------------------------------------------------- NumPy


def _np_parameter(call: relax.Call, value: Any, x: Any) -> Any:
    value, at = np.asarray(value), call.attrs["axis"] % max(x.ndim, 1)
    if value.size == 1 and value.ndim != 1:
        return np.reshape(value, ())
    if value.ndim == x.ndim and value.shape[at] not in (0, 1, x.shape[at]):
        return np.repeat(value, x.shape[at] // value.shape[at], at)
    return value if value.ndim == x.ndim else np.reshape(value, [-1 if a == at else 1 for a in range(x.ndim)])


def _np_quantize(call: relax.Call, x: Any, scale: Any, zero_point: Any) -> Any:
    dtype = DType.of(call.attrs["out_dtype"])
    quantized = np.clip(unclipped(call, x, scale, zero_point), *limits(call))
    return quantized.astype(str(dtype)) if dtype.is_int else quantized


def unclipped(call: relax.Call, x: Any, scale: Any, zero_point: Any) -> Any:
    """Return what a quantization computes before it clips, in the data's dtype."""
    scaled = x / _np_parameter(call, scale, x)
    is_int = DType.of(call.attrs["out_dtype"]).is_int
    return (np.round(scaled) if is_int else scaled) + _np_parameter(call, zero_point, x).astype(x.dtype)


def limits(call: relax.Call) -> tuple[float, float]:
    """Return the least and the greatest value of a quantization's result."""
    dtype = DType.of(call.attrs["out_dtype"])
    low, high = construct.min_value(dtype), construct.max_value(dtype)
    return low.value, high.value  # type: ignore[attr-defined]


def _np_dequantize(call: relax.Call, x: Any, scale: Any, zero_point: Any) -> Any:
    point = _np_parameter(call, zero_point, x)
    exact = np.issubdtype(x.dtype, np.integer) and np.issubdtype(point.dtype, np.integer)
    wide = "int32" if exact else "float32"
    moved = (x.astype(wide) - point.astype(wide)).astype("float32")
    dequantized = moved * _np_parameter(call, scale, x).astype("float32")
    return dequantized if call.attrs["out_dtype"] == "float32" else np.clip(dequantized, -65504, 65504)


OPS: dict[str, Impl] = {
    "quantize": Impl(
        'data, scale, zero_point, axis: int = -1, out_dtype: dtype = "int8"', infer_quantize, _np_quantize,
        _lower_quantize, FusionKind.ELEMWISE, inline=Inline.ALL, attr_order=("out_dtype", "axis"),
        free_layout=layout_rules.quantization,
    ),
    "dequantize": Impl(
        'data, scale, zero_point, axis: int = -1, out_dtype: dtype = "float32"', infer_dequantize, _np_dequantize,
        _lower_dequantize, FusionKind.ELEMWISE, inline=Inline.ALL, attr_order=("out_dtype", "axis"),
        free_layout=layout_rules.quantization,
    ),
}  # fmt: skip
