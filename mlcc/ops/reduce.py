"""Reductions: sum, product, min, max, argmin, argmax, mean, variance."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import FLOAT32, INT32, INT64, DType
from mlcc.ir.narrow_floats import encode
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import guard, layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Emit, FusionKind, Impl, bind_call
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    axes,
    fail,
    int64,
    known_different,
    product,
    result,
    shape_argument,
    shape_text,
    tensor,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def reduced_info(call: relax.Call, data: Tensor, reduced_axes: Sequence[int] | None, dtype: DType | None) -> Tensor:
    """Infer a tensor without the reduced axes, or with extent 1 there."""
    keep = call.attrs["keepdims"]
    device = data.vdevice
    if reduced_axes is None and not keep:
        return result((), dtype, vdevice=device)
    if data.ndim < 0:
        return result(None, dtype, -1, device)
    gone = set(range(data.ndim)) if reduced_axes is None else set(axes(call, reduced_axes, data.ndim))
    if data.dims is None:
        if keep and reduced_axes is None:
            return result([int64(1)] * data.ndim, dtype, vdevice=device)
        return result(None, dtype, data.ndim if keep else data.ndim - len(gone), device)
    dims = [int64(1) if i in gone else d for i, d in enumerate(data.dims) if keep or i not in gone]
    return result(dims, dtype, vdevice=device)


def infer_reduce(call: relax.Call) -> Tensor:
    """The tensor's dtype, without the reduced axes."""
    data = tensor(call, 0)
    return reduced_info(call, data, call.attrs["axis"], data.dtype)


def infer_arg(call: relax.Call) -> Tensor:
    """int64, without the reduced axis."""
    at = call.attrs["axis"]
    return reduced_info(call, tensor(call, 0), None if at is None else (at,), INT64)


def infer_collapse_sum_like(call: relax.Call) -> Tensor:
    """Infer the shape of the second tensor, which must broadcast to the shape of the first."""
    data, target = tensor(call, 0), tensor(call, 1)
    _check_collapse(call, data.dims, target.dims)
    return relax.TensorStructInfo(target.shape, data.dtype, target.ndim, target.vdevice)


def infer_collapse_sum_to(call: relax.Call) -> Tensor:
    """The shape that is given."""
    data, target = tensor(call, 0), shape_argument(call, 1)
    _check_collapse(call, data.dims, target.values)
    if isinstance(call.args[1], relax.ShapeExpr):
        return result(call.args[1].values, data.dtype, vdevice=data.vdevice)
    return relax.TensorStructInfo(call.args[1], data.dtype, target.ndim, data.vdevice)


def _check_collapse(call: relax.Call, dims: Dims | None, target: Dims | None) -> None:
    if dims is None or target is None:
        return
    pairs = zip(reversed(dims), reversed(target), strict=False)
    if len(target) > len(dims) or any(not is_one(t) and known_different(d, t) for d, t in pairs):
        fail(call, "E0445", f"{shape_text(dims)} does not come from broadcasting {shape_text(target)}")


# ---------------------------------------------------------------- lowering


def _reduce_axes(call: relax.Call, ndim: int) -> list[int]:
    stated = call.attrs["axis"]
    if stated is None:
        return list(range(ndim))
    return sorted(a % ndim for a in (stated if isinstance(stated, tuple) else (stated,)))


def comm_reduce(x: te.Tensor, reduced_axes: Sequence[int], keepdims: bool, body: Callable[..., Any], name: str) -> Any:
    """Compute a reduction over axes: `body(indices of x, reduce axes)` returns the reduction expression."""
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in reduced_axes}
    if keepdims:
        shape = [int64(1) if a in reduced else d for a, d in enumerate(x.buffer.shape)]
    else:
        shape = [d for a, d in enumerate(x.buffer.shape) if a not in reduced]

    def element(*i: Any) -> Any:
        rest = iter(i)
        kept = list(i) if keepdims else [None if a in reduced else next(rest) for a in range(x.ndim)]
        return body([reduced.get(a, kept[a]) for a in range(x.ndim)], [reduced[a] for a in reduced_axes])

    return topi.compute_ax(shape, element, name)


ANY_REDUCER = te.comm_reducer(lambda x, y: te.any(x, y), lambda t: te.const(False, t), name="any")


def reduce_with(reducer: Any, x: te.Tensor, reduced_axes: Sequence[int], keepdims: bool = False) -> te.Tensor:
    """Reduce a tensor over axes; without axes, copy it."""
    if not reduced_axes:
        return topi.elementwise_ax(x, lambda v: v, f"{x.name}_red")
    if any(tir.const_int(x.buffer.shape[a]) == 0 for a in reduced_axes):
        return _identity_tensor(reducer, x, reduced_axes, keepdims)
    if reducer is te.sum and x.dtype.is_bool:
        reducer = ANY_REDUCER
    reduced: te.Tensor = comm_reduce(x, reduced_axes, keepdims, lambda i, k: reducer(x(*i), axis=k), f"{x.name}_red")
    return reduced


def _identity_tensor(reducer: Any, x: te.Tensor, reduced_axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """Fill with the reducer's identity: the init of a reduction loop without iterations would not run."""
    step = reducer(te.const(0, x.dtype), axis=te.reduce_axis((0, 1))).expr
    shape = [
        int64(1) if a in reduced_axes else d for a, d in enumerate(x.buffer.shape) if keepdims or a not in reduced_axes
    ]
    return topi.compute_ax(shape, lambda *i: Scalar(step.combiner.identity[0]), f"{x.name}_red")


def lowest_value(dtype: str) -> tir.Expr:
    """Return the smallest value of a dtype: -inf for floats."""
    return construct.const(-math.inf, dtype) if DType.of(dtype).is_float else construct.min_value(dtype)


def highest_value(dtype: str) -> tir.Expr:
    """Return the largest value of a dtype: inf for floats."""
    return construct.const(math.inf, dtype) if DType.of(dtype).is_float else construct.max_value(dtype)


def _max_or_min(largest: bool) -> Any:
    """Return a max or min reducer whose identity is infinite; the identity of TVM's is the extreme finite number."""
    combine, identity = (construct.maximum, lowest_value) if largest else (construct.minimum, highest_value)
    return te.comm_reducer(lambda x, y: Scalar(combine(to_expr(x), to_expr(y))), identity, "max" if largest else "min")


MAX_REDUCER, MIN_REDUCER = _max_or_min(True), _max_or_min(False)


def _lower_reduce(reducer: Any) -> Callable[..., Any]:
    return lambda call, x: reduce_with(reducer, x, _reduce_axes(call, x.ndim), call.attrs["keepdims"])


def num_elements(x: te.Tensor, reduced_axes: Sequence[int], dtype: DType) -> tir.Expr:
    """The number of elements along the reduced axes, in `dtype`."""
    total: tir.Expr = int64(1)
    for a in reduced_axes:
        total = construct.mul(total, x.buffer.shape[a])
    return to_expr(topi.convert_integer(total, dtype))


def mean(x: te.Tensor, reduced_axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """The sum divided by the number of elements; narrow integers are summed in int64 to avoid overflow."""
    if x.dtype.is_bool:
        raise TypeError("bools have no mean")
    if x.dtype.is_int and x.dtype.bits < 64:
        return topi.cast(mean(topi.cast(x, "int64"), reduced_axes, keepdims), str(x.dtype))
    number = num_elements(x, reduced_axes, x.dtype)
    if isinstance(number, tir.IntImm) and number.value == 0:  # of no integers: 0
        number = construct.const(1, x.dtype)
    return topi.divide(reduce_with(te.sum, x, reduced_axes, keepdims), number)


def variance(x: te.Tensor, reduced_axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """The mean of the squared distance from the mean."""
    guard.floats_only(x.dtype)
    distance = topi.subtract(x, mean(x, reduced_axes, True))
    return mean(topi.multiply(distance, distance), reduced_axes, keepdims)


def _lower_mean(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return mean(x, _reduce_axes(call, x.ndim), call.attrs["keepdims"])


def _lower_variance(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return variance(x, _reduce_axes(call, x.ndim), call.attrs["keepdims"])


def _lower_std(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return topi.elementwise(_lower_variance(call, x), te.sqrt)


def _lower_collapse(call: relax.Call, x: te.Tensor, target: Sequence[Any]) -> te.Tensor:
    """Sum over broadcast axes; extents are assumed equal if that is unknown."""
    shape = [construct.cast("int64", to_expr(d)) for d in target]
    extra = x.ndim - len(shape)
    summed = [a for a in range(x.ndim) if a < extra or (is_one(shape[a - extra]) and not is_one(x.buffer.shape[a]))]
    if not summed:
        return topi.elementwise_ax(x, lambda v: v, "tensor")
    reduced = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in summed}
    reducer = ANY_REDUCER if x.dtype.is_bool else te.sum

    def element(*i: Any) -> Any:
        value = x(*(reduced[a] if a in reduced else i[a - extra] for a in range(x.ndim)))
        return reducer(value, axis=[*reduced.values()])

    return topi.compute_ax(shape, element, f"{x.name}_red")


Better = Callable[[Scalar, Scalar], Any]  # whether one number is strictly better than another


def _arg_reducer(largest: bool, worst: Any, better: Better, equal: Better) -> Any:
    """Reduce (index, value) pairs: the first of equal values wins; index -1 is the identity."""

    def combine(x: tuple[Scalar, Scalar], y: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        wins = te.all(x[0] >= 0, te.any(y[0] < 0, better(x[1], y[1]), te.all(equal(x[1], y[1]), x[0] < y[0])))
        return te.select(wins, x[0], y[0]), te.select(better(x[1], y[1]), x[1], y[1])

    name = "argmax" if largest else "argmin"
    return te.comm_reducer(combine, lambda place, value: (te.const(-1, place), worst(value)), name=name)


def _arg_as_tvm(largest: bool) -> Any:
    """Return TVM's argmax or argmin reducer, which compares only: NaN never wins."""
    worst, order = (te.min_value, operator.gt) if largest else (te.max_value, operator.lt)
    return _arg_reducer(largest, worst, order, operator.eq)


def _arg_nan_first(largest: bool) -> Any:
    """Return the argmax or argmin reducer that prefers the first NaN, as in NumPy, PyTorch and ONNX."""
    order = operator.gt if largest else operator.lt

    def better(a: Scalar, b: Scalar) -> Any:
        return te.any(order(a, b), te.all(a != a, b == b)) if a.dtype.is_float else order(a, b)

    def equal(a: Scalar, b: Scalar) -> Any:
        return te.any(a == b, te.all(a != a, b != b)) if a.dtype.is_float else a == b

    return _arg_reducer(largest, lowest_value if largest else highest_value, better, equal)


ARGMAX, ARGMIN = _arg_as_tvm(True), _arg_as_tvm(False)


def _lower_arg(reducer: Any, narrow: bool = False) -> Callable[..., Any]:
    """Return the lowering to a reducer of pairs; with `narrow` it counts in int32 where it can: half the registers."""

    def lowering(call: relax.Call, x: te.Tensor) -> te.Tensor:
        reduced_axes = _reduce_axes(call, x.ndim)
        count = tir.const_int(product([x.buffer.shape[a] for a in reduced_axes]))
        place = INT32 if narrow and count is not None and count < 1 << 31 else INT64

        def body(i: list[Any], k: list[Any]) -> Any:
            flat: tir.Expr | None = None
            for a in reduced_axes:
                step = to_expr(i[a])
                flat = step if flat is None else construct.add(construct.mul(flat, x.buffer.shape[a]), step)
            number = construct.const(0, place) if flat is None else construct.cast(place, flat)
            return reducer((Scalar(number), x(*i)), axis=k)

        pair = comm_reduce(x, reduced_axes, call.attrs["keepdims"], body, f"{x.name}_red_temp")
        return topi.elementwise_ax(pair[0], lambda v: v.astype(INT64), f"{x.name}_red")

    return lowering


def _expand_empty(identity: int) -> Callable[[relax.Call, Emit], relax.Call | None]:
    """Return the expansion of a sum or product over an axis of extent 0 to `full` of the identity."""

    def expand(call: relax.Call, emit: Emit) -> relax.Call | None:
        data = tensor(call, 0)
        if not any(tir.const_int(data.dims[a]) == 0 for a in _reduce_axes(call, data.ndim)):  # type: ignore[index]
            return None
        info = reduced_info(call, data, call.attrs["axis"], data.dtype)
        assert info.dims is not None and info.dtype is not None
        value = TensorData(info.dtype, (), encode(np.asarray(identity), info.dtype))
        fill = relax.Constant(value, result((), info.dtype))
        return bind_call("full", (info.dims, fill, info.dtype), span=call.span)

    return expand


# ---------------------------------------------------------------- NumPy


def _np_collapse(call: relax.Call, x: Any, target: Any) -> Any:
    shape = tuple(np.shape(target) if call.op.name.endswith("like") else target)
    extra = x.ndim - len(shape)
    reduced_axes = tuple(a for a in range(x.ndim) if a < extra or (shape[a - extra] == 1 and x.shape[a] != 1))
    return np.sum(x, axis=reduced_axes, dtype=x.dtype, keepdims=True).reshape(shape) if reduced_axes else np.array(x)


def _np_reduce(name: str) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        axis_attr = call.attrs["axis"]
        if name in ("var", "std"):
            guard.floats_only(x.dtype)
        if axis_attr == ():
            return np.asarray(x)
        start = {}
        if x.size == 0 and name in ("max", "min"):
            start = {"initial": np_identity(call, name == "max")}
        elif x.size == 0 and name in ("mean", "var", "std"):  # NaN without NumPy's warning
            return np.sum(x, axis=axis_attr, keepdims=call.attrs["keepdims"]) * np.asarray(np.nan, x.dtype)
        reduced = getattr(np, name)(x, axis=axis_attr, keepdims=call.attrs["keepdims"], **start)
        return reduced.astype(x.dtype) if reduced.dtype != x.dtype else reduced

    return reference


def np_identity(call: relax.Call, largest: bool) -> Any:
    """The identity of max or min over the first operand's dtype."""
    bound = (lowest_value if largest else highest_value)(str(tensor(call, 0).dtype or FLOAT32))
    assert isinstance(bound, (tir.IntImm, tir.FloatImm))
    return bound.value


def _np_mean(call: relax.Call, x: Any) -> Any:
    """The mean of integers truncates toward zero; of none it is 0."""
    if np.issubdtype(x.dtype, np.floating):
        return _np_reduce("mean")(call, x)
    if x.dtype == bool:
        raise TypeError("bools have no mean")
    wide = x.dtype if x.dtype.itemsize == 8 else np.dtype(np.int64)
    total = np.asarray(np.sum(x, axis=call.attrs["axis"], keepdims=call.attrs["keepdims"], dtype=wide))
    if x.size == 0:
        return total.astype(x.dtype)
    number = wide.type(x.size // total.size)
    quotient = total // number
    return (quotient + ((total < 0) & (quotient * number != total))).astype(x.dtype)


def _np_arg(name: str) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        at, keep = call.attrs["axis"], call.attrs["keepdims"]
        if x.size == 0:  # there is no place of no elements: -1
            return np.full_like(np.sum(x, axis=at, keepdims=keep, dtype=np.int64), -1)
        return getattr(np, name)(x, axis=at, keepdims=keep)

    return reference


_PARAMETERS = "x, axis: ints? = None, keepdims: bool = False"


def _entry(reducer: Any, name: str, identity: int | None = None, accurate: Any = None) -> Impl:
    expand = None if identity is None else _expand_empty(identity)
    return Impl(
        _PARAMETERS, infer_reduce, _np_reduce(name), _lower_reduce(reducer), FusionKind.COMM_REDUCE, expand=expand,
        layout=layout_rules.reduce, accurate=None if accurate is None else _lower_reduce(accurate),
    )  # fmt: skip


OPS: dict[str, Impl] = {
    "sum": _entry(te.sum, "sum", 0),
    "prod": _entry(te.prod, "prod", 1),
    "max": _entry(te.max, "max", accurate=MAX_REDUCER),
    "min": _entry(te.min, "min", accurate=MIN_REDUCER),
    "collapse_sum_like": Impl(
        "data, collapse_target", infer_collapse_sum_like, _np_collapse, _lower_collapse, FusionKind.COMM_REDUCE,
        shape_only=(1,), tir_name="collapse_sum",
    ),
    "collapse_sum_to": Impl(
        "data, shape: shape", infer_collapse_sum_to, _np_collapse, _lower_collapse, FusionKind.COMM_REDUCE,
        tir_name="collapse_sum",
    ),
    "mean": Impl(
        _PARAMETERS, infer_reduce, _np_mean, _lower_mean, FusionKind.OUT_EWISE_FUSABLE, layout=layout_rules.reduce,
    ),
    "variance": Impl(
        _PARAMETERS, infer_reduce, _np_reduce("var"), _lower_variance, FusionKind.OUT_EWISE_FUSABLE,
        layout=layout_rules.reduce,
    ),
    "std": Impl(
        _PARAMETERS, infer_reduce, _np_reduce("std"), _lower_std, FusionKind.OUT_EWISE_FUSABLE,
        layout=layout_rules.reduce,
    ),
    "argmax": Impl(
        "x, axis: int? = None, keepdims: bool = False", infer_arg, _np_arg("argmax"), _lower_arg(ARGMAX),
        FusionKind.OUT_EWISE_FUSABLE, accurate=_lower_arg(_arg_nan_first(True), narrow=True),
    ),
    "argmin": Impl(
        "x, axis: int? = None, keepdims: bool = False", infer_arg, _np_arg("argmin"), _lower_arg(ARGMIN),
        FusionKind.OUT_EWISE_FUSABLE, accurate=_lower_arg(_arg_nan_first(False), narrow=True),
    ),
}  # fmt: skip
