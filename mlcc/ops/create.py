"""Operators that create tensors: constants, ranges, triangles, conversions."""

from __future__ import annotations

import math
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Inline, Precision
from mlcc.ops.shapes import (
    Tensor,
    axis,
    fail,
    int64,
    result,
    result_dims,
    scalar_argument,
    shape_argument,
    simplify,
    tensor,
    tensor_like,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def _attr_dtype(call: relax.Call) -> DType | None:
    name = call.attrs.get("dtype")
    return None if name is None else DType.of(name)


def _tensor_of_shape(call: relax.Call, index: int, dtype: DType | None) -> Tensor:
    """Infer a tensor whose shape is an argument of the call."""
    info = shape_argument(call, index)
    shape = call.args[index]
    if isinstance(shape, relax.ShapeExpr):
        return result(shape.values, dtype)
    return relax.TensorStructInfo(shape, dtype, info.ndim)


def _fill_dtype(call: relax.Call) -> DType | None:
    """The dtype of the fill value: a tensor without dimensions, or a scalar."""
    info = call.args[1].struct_info
    if isinstance(info, relax.PrimStructInfo):
        return info.dtype
    value = tensor(call, 1)
    if value.ndim != 0:
        fail(call, "E0445", "the fill value must be a scalar tensor, such as `R.const(0, dtype)`")
    return value.dtype


def infer_full(call: relax.Call) -> Tensor:
    """The given shape; the dtype of the attribute, or of the fill value."""
    return _tensor_of_shape(call, 0, _attr_dtype(call) or _fill_dtype(call))


def infer_full_like(call: relax.Call) -> Tensor:
    """The shape of the tensor; the dtype of the attribute, or of the tensor."""
    data = tensor(call, 0)
    _fill_dtype(call)
    return tensor_like(data, _attr_dtype(call) or data.dtype)


def infer_filled(call: relax.Call) -> Tensor:
    """The given shape and dtype."""
    return _tensor_of_shape(call, 0, _attr_dtype(call))


def infer_like(call: relax.Call) -> Tensor:
    """The shape of the tensor; the dtype of the attribute, or of the tensor."""
    data = tensor(call, 0)
    return tensor_like(data, _attr_dtype(call) or data.dtype)


def infer_arange(call: relax.Call) -> Tensor:
    """One dimension: ceil((end - start) / step)."""
    start, end, step = (scalar_argument(call, i) for i in range(3))
    if start is None or end is None or step is None:
        return result(None, _attr_dtype(call), 1)
    if tir.const_int(step) == 0 or (isinstance(step, tir.FloatImm) and step.value == 0):
        fail(call, "E0442", "`step` must not be 0")
    return result((_arange_length(call, start, end, step),), _attr_dtype(call))


def _arange_length(call: relax.Call, start: tir.Expr, end: tir.Expr, step: tir.Expr) -> tir.Expr:
    numbers = [v.value for v in (start, end, step) if isinstance(v, (tir.IntImm, tir.FloatImm))]
    if len(numbers) == 3:
        first, last, by = numbers
        length = (last - first) / by
        if not math.isfinite(length):
            fail(call, "E0442", "the range is not finite")
        integral = isinstance(first, int) and isinstance(last, int) and isinstance(by, int)
        return int64(max(0, int(-((first - last) // by)) if integral else math.ceil(length)))
    if start.dtype.is_float or end.dtype.is_float or step.dtype.is_float:
        float32 = DType.of("float32")
        span = construct.div(
            construct.sub(construct.cast(float32, end), construct.cast(float32, start)), construct.cast(float32, step)
        )
        return construct.cast(INT64, te.ceil(Scalar(span)).expr)
    low, high, stride = (construct.cast(INT64, v) for v in (start, end, step))
    numerator = construct.sub(construct.sub(construct.add(high, stride), 1), low)
    return simplify(construct.floordiv(numerator, stride))


def infer_hamming_window(call: relax.Call) -> Tensor:
    """Infer a vector of `window_size` floats."""
    size, dtype = scalar_argument(call, 0), _attr_dtype(call)
    for index in (1, 2, 3):
        scalar_argument(call, index)
    if dtype is not None and not dtype.is_float:
        fail(call, "E0444", f"a window must have a float dtype, not {dtype}")
    if size is not None and not size.dtype.is_int:
        fail(call, "E0444", f"`window_size` must be an integer, not {size.dtype}")
    number = None if size is None else tir.const_int(size)
    if number is not None and number <= 0:
        fail(call, "E0442", f"`window_size` must be positive, it is {number}")
    return result(None if size is None else (construct.cast(INT64, size),), dtype, 1)


def infer_eye(call: relax.Call) -> Tensor:
    """Infer an n by m matrix."""
    n, m = (scalar_argument(call, i) for i in (0, 1))
    scalar_argument(call, 2)
    return result(None if n is None or m is None else (n, m), _attr_dtype(call), 2)


def infer_eye_like(call: relax.Call) -> Tensor:
    """The shape of a matrix."""
    data = tensor(call, 0)
    if data.ndim not in (-1, 2):
        fail(call, "E0445", f"needs a matrix, the tensor has {data.ndim} dimensions")
    return tensor_like(data, _attr_dtype(call) or data.dtype)


def infer_triangle(call: relax.Call) -> Tensor:
    """The tensor's own shape; it needs two dimensions."""
    data = tensor(call, 0)
    scalar_argument(call, 1)
    if 0 <= data.ndim < 2:
        fail(call, "E0445", f"needs at least 2 dimensions, the tensor has {data.ndim}")
    return data


def infer_astype(call: relax.Call) -> Tensor:
    """The shape of the tensor, in the new dtype."""
    return tensor_like(tensor(call, 0), _attr_dtype(call))


def infer_one_hot(call: relax.Call) -> Tensor:
    """Insert an axis of extent `depth`; the dtype is that of the values."""
    indices = tensor(call, 0)
    if indices.dtype is not None and not indices.dtype.is_int:
        fail(call, "E0444", f"needs integer indices, not {indices.dtype}")
    on, off = (call.args[i].struct_info for i in (1, 2))
    if not isinstance(on, relax.PrimStructInfo) or not isinstance(off, relax.PrimStructInfo):
        fail(call, "E0443", "the values must be scalars")
    if on.dtype is not off.dtype:
        fail(call, "E0444", f"the values have different dtypes, {on.dtype} and {off.dtype}")
    if call.attrs["depth"] <= 0:
        fail(call, "E0442", f"`depth` must be positive, not {call.attrs['depth']}")
    if indices.dims is None:
        return result(None, on.dtype, -1 if indices.ndim < 0 else indices.ndim + 1)
    at = axis(call, call.attrs["axis"], indices.ndim, 1)
    dims = list(indices.dims)
    dims.insert(at, int64(call.attrs["depth"]))
    return result(dims, on.dtype)


# ---------------------------------------------------------------- lowering


def _dtype(call: relax.Call) -> DType:
    assert isinstance(call.struct_info, relax.TensorStructInfo)
    assert call.struct_info.dtype is not None
    return call.struct_info.dtype


def _filled(shape: Any, value: Any, dtype: DType) -> te.Tensor:
    fill = construct.cast(dtype, to_expr(value))
    return topi.compute_ax(shape, lambda *i: Scalar(fill), "T_full")


def _lower_full(call: relax.Call, shape: Any, value: Any) -> te.Tensor:
    return _filled(shape, value() if isinstance(value, te.Tensor) else value, _dtype(call))


def _lower_arange(call: relax.Call, start: Any, end: Any, step: Any) -> te.Tensor:
    dtype = _dtype(call)

    def element(i: Any) -> Any:
        value = construct.add(to_expr(start), construct.mul(to_expr(step), i.expr))
        return Scalar(construct.cast(dtype, value))

    return topi.compute_ax(result_dims(call), element, "T_arange")


def _lower_hamming_window(call: relax.Call, size: Any, periodic: Any, alpha: Any, beta: Any) -> te.Tensor:
    """alpha - beta * cos(2 pi i / n) in float64, n the size or one less; a window of one element is 1."""
    dtype, length = _dtype(call), result_dims(call)[0]
    float64 = DType.of("float64")
    is_periodic = construct.cast(INT64, to_expr(periodic))
    steps = construct.add(construct.sub(length, 1), construct.minimum(is_periodic, 1))
    first, second = (construct.cast(float64, to_expr(v)) for v in (alpha, beta))

    def element(i: Any) -> Any:
        angle = construct.div(
            construct.mul(construct.cast(float64, i.expr), 2 * math.pi), construct.cast(float64, steps)
        )
        wave = construct.sub(first, construct.mul(second, construct.call(float64, "cos", angle)))
        one = te.const(1, dtype)
        return te.if_then_else(Scalar(construct.equal(length, 1)), one, Scalar(construct.cast(dtype, wave)))

    return topi.compute_ax((length,), element, "T_hamming_window")


def _lower_eye(call: relax.Call, *args: Any) -> te.Tensor:
    dtype = _dtype(call)
    one, zero = te.const(1, dtype), te.const(0, dtype)
    shift = args[-1]

    def element(i: te.Axis, j: te.Axis) -> te.Scalar:
        return te.if_then_else(Scalar(construct.equal(i.expr, construct.sub(j.expr, to_expr(shift)))), one, zero)

    identity: te.Tensor = te.compute(result_dims(call), element, name="eye")
    return identity


def _lower_triangle(lower: bool) -> Any:
    def lowering(call: relax.Call, x: te.Tensor, k: Any) -> te.Tensor:
        def element(*i: Any) -> te.Scalar:
            row, column = Scalar(construct.add(i[-2].expr, to_expr(k))), i[-1]
            keep = column <= row if lower else column >= row
            return te.select(keep, x(*i), te.const(0, x.dtype))

        triangle: te.Tensor = te.compute(x.shape, element, name="trilu")
        return triangle

    return lowering


def _lower_one_hot(call: relax.Call, indices: te.Tensor, on: Any, off: Any) -> te.Tensor:
    at = call.attrs["axis"] % (indices.ndim + 1)
    a, b = Scalar(to_expr(on)), Scalar(to_expr(off))
    return topi.compute_ax(
        result_dims(call), lambda *i: te.select(indices(*i[:at], *i[at + 1 :]) == i[at], a, b), "T_one_hot"
    )


def _lower_astype(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """Cast; a cast to a narrow float is marked as a rounding that fusion must keep."""
    dtype = DType.of(call.attrs["dtype"])
    if not dtype.is_float or dtype.bits >= 32 or dtype is x.dtype:
        return topi.cast(x, dtype)
    return te.compute(x.shape, lambda *i: x(*i).astype(dtype), name="compute", attrs={topi.ROUNDS: True})  # type: ignore[no-any-return]


# ---------------------------------------------------------------- NumPy


def _np_dtype(call: relax.Call) -> Any:
    return np.dtype(_compute_dtype(str(_dtype(call))))


def _compute_dtype(name: str) -> str:
    """The NumPy type in which values of a dtype are computed."""
    return "float32" if name in ("float16", "bfloat16") or name.startswith("float8") else name


def np_convert(values: Any, dtype: Any) -> Any:
    """Cast as compiled code does: floats saturate at the range of an integer dtype, NaN becomes 0."""
    if not np.issubdtype(values.dtype, np.floating) or not np.issubdtype(dtype, np.integer):
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    truncated = np.trunc(np.where(np.isnan(values), 0, values).astype("float64"))
    in_range = (truncated >= float(limits.min)) & (truncated < float(limits.max) + (limits.bits < 53))
    exact = np.where(in_range, truncated, 0).astype(dtype)
    return np.where(in_range, exact, np.where(truncated < 0, limits.min, limits.max)).astype(dtype)


def _np_astype(call: relax.Call, x: Any) -> Any:
    """Cast; float64 that becomes a narrow float is kept, so that the caller rounds it once."""
    stays_float64 = np.asarray(x).dtype == np.float64 and _np_dtype(call) == np.float32
    return np.asarray(x) if stays_float64 else np_convert(np.asarray(x), _np_dtype(call))


def _np_full(call: relax.Call, shape: Any, value: Any) -> Any:
    return np.full(tuple(shape), value, _np_dtype(call))


def _np_one_hot(call: relax.Call, indices: Any, on: Any, off: Any) -> Any:
    depth = call.attrs["depth"]
    at = call.attrs["axis"] % (np.ndim(indices) + 1)
    line = np.arange(depth).reshape([depth if i == at else 1 for i in range(np.ndim(indices) + 1)])
    return np.where(np.expand_dims(indices, at) == line, on, off)


def _np_hamming_window(call: relax.Call, size: Any, periodic: Any, alpha: Any, beta: Any) -> Any:
    if size == 1:
        return np.ones(1)
    return alpha - beta * np.cos(2 * np.pi * np.arange(size) / (size - (0 if periodic else 1)))


def _np_eye(call: relax.Call, n: Any, m: Any, k: Any) -> Any:
    return np.eye(n, m, k, _np_dtype(call))


def _np_eye_like(call: relax.Call, x: Any, k: int) -> Any:
    return _np_eye(call, x.shape[0], x.shape[1], k)


OPS: dict[str, Impl] = {
    "hamming_window": Impl(
        "window_size: scalar, periodic: scalar, alpha: scalar, beta: scalar, dtype: dtype", infer_hamming_window,
        _np_hamming_window, _lower_hamming_window, FusionKind.ELEMWISE, precision=Precision.FOLLOW,
    ),
    "full": Impl(
        "shape: shape, fill_value, dtype: dtype? = None", infer_full, _np_full, _lower_full, FusionKind.ELEMWISE,
        inline=Inline.ALL, precision=Precision.FOLLOW, cost=Cost.CHEAP,
    ),
    "full_like": Impl(
        "x, fill_value, dtype: dtype? = None", infer_full_like,
        lambda call, x, value: _np_full(call, np.shape(x), value), _lower_full, FusionKind.ELEMWISE,
        shape_only=(0,), tir_name="full", inline=Inline.ALL, precision=Precision.FOLLOW, cost=Cost.CHEAP,
    ),
    "zeros": Impl(
        "shape: shape, dtype: dtype", infer_filled, lambda call, shape: _np_full(call, shape, 0),
        lambda call, shape: _filled(shape, 0, _dtype(call)), FusionKind.ELEMWISE, precision=Precision.FOLLOW,
        cost=Cost.CHEAP,
    ),
    "ones": Impl(
        "shape: shape, dtype: dtype", infer_filled, lambda call, shape: _np_full(call, shape, 1),
        lambda call, shape: _filled(shape, 1, _dtype(call)), FusionKind.ELEMWISE, precision=Precision.FOLLOW,
        cost=Cost.CHEAP,
    ),
    "zeros_like": Impl(
        "x, dtype: dtype? = None", infer_like, lambda call, x: _np_full(call, np.shape(x), 0),
        lambda call, shape: _filled(shape, 0, _dtype(call)), FusionKind.ELEMWISE, shape_only=(0,), tir_name="zeros",
        cost=Cost.CHEAP, free_layout=layout_rules.elementwise,
    ),
    "ones_like": Impl(
        "x, dtype: dtype? = None", infer_like, lambda call, x: _np_full(call, np.shape(x), 1),
        lambda call, shape: _filled(shape, 1, _dtype(call)), FusionKind.ELEMWISE, shape_only=(0,), tir_name="ones",
        cost=Cost.CHEAP, free_layout=layout_rules.elementwise,
    ),
    "arange": Impl(
        "start: scalar, end: scalar, step: scalar, dtype: dtype", infer_arange,
        lambda call, start, end, step: np.arange(start, end, step).astype(_np_dtype(call)), _lower_arange,
        FusionKind.ELEMWISE, precision=Precision.FOLLOW, cost=Cost.CHEAP,
    ),
    "eye": Impl(
        'n: scalar, m: scalar = n, k: scalar = 0, dtype: dtype? = "float32"', infer_eye, _np_eye, _lower_eye,
        FusionKind.ELEMWISE, inline=Inline.ALL, precision=Precision.FOLLOW,
    ),
    "eye_like": Impl(
        "x, k: scalar = 0, dtype: dtype? = None", infer_eye_like, _np_eye_like, _lower_eye, FusionKind.ELEMWISE,
        shape_only=(0,), inline=Inline.ALL,
    ),
    "tril": Impl(
        "x, k: scalar = 0", infer_triangle, lambda call, x, k: np.tril(x, k), _lower_triangle(True),
        FusionKind.ELEMWISE, cost=Cost.CHEAP,
    ),
    "triu": Impl(
        "x, k: scalar = 0", infer_triangle, lambda call, x, k: np.triu(x, k), _lower_triangle(False),
        FusionKind.ELEMWISE, cost=Cost.CHEAP,
    ),
    "astype": Impl(
        "x, dtype: dtype", infer_astype, _np_astype, lambda call, x: topi.cast(x, call.attrs["dtype"]),
        FusionKind.ELEMWISE, accurate=_lower_astype, tir_name="cast", precision=Precision.FOLLOW, cost=Cost.CHEAP,
        layout=layout_rules.elementwise,
    ),
    "one_hot": Impl(
        "indices, on_value: scalar, off_value: scalar, depth: int, axis: int = -1", infer_one_hot, _np_one_hot,
        _lower_one_hot, FusionKind.INJECTIVE,
    ),
}  # fmt: skip
