"""Scatter with a reduction, as torch's `scatter_reduce`: original elements are optional, a mean divides by a count."""

from __future__ import annotations

import math
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.index_bounds import checked_indices as checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.scatter import (
    check_scatter,
    combine,
    copy_data,
    cropped_view,
    np_combine,
    require_one_of,
    wrap_negative_index,
)
from mlcc.ops.shapes import Tensor, fail, tensor
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements

REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}  # step by step


def infer_scatter_reduce(call: relax.Call) -> Tensor:
    """The data's own shape; indices and updates have one shape, of as many dimensions."""
    require_one_of(call, "reduce", tuple(REDUCTIONS))
    data = tensor(call, 0)
    if data.dtype is not None and data.dtype.is_bool:
        fail(call, "E0444", "bools cannot be reduced: convert them with `R.astype`")
    return check_scatter(call)


def _identity(reduce: str, dtype: DType) -> float:
    """Return the identity element of a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.is_float:
        return -math.inf if reduce == "amax" else math.inf
    bound = construct.min_value(dtype) if reduce == "amax" else construct.max_value(dtype)
    assert isinstance(bound, tir.IntImm)
    return bound.value


def _lower(call: relax.Call, x: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
    """Reset targets to the identity unless `include_self`, combine the updates in order, and divide for a mean."""
    at, reduce, include = call.attrs["axis"] % x.ndim, call.attrs["reduce"], call.attrs["include_self"]
    counts = code.scratch("counts", x.shape)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, places, new, out = (BufferElements(b) for b in (*ins, *outs))

        def where(i: tuple[Scalar, ...]) -> list[Scalar]:
            return [wrap_negative_index(places[i], x.buffer.shape[at]) if a == at else i[a] for a in range(x.ndim)]

        def reset(*i: Scalar) -> Any:
            return out.set(Scalar(construct.const(_identity(reduce, x.dtype), x.dtype)), *where(i))

        def update(*i: Scalar) -> Any:
            to = where(i)
            put = out.set(combine(REDUCTIONS[reduce], out[tuple(to)], new[i]), *to)
            return (put, counts.set(counts[tuple(to)] + 1, *to)) if reduce == "mean" else put

        def divide(*i: Scalar) -> Any:
            count = te.max(counts[i], te.const(1, "int64")).astype(x.dtype)
            return out.set(out[i] / count if x.dtype.is_float else te.floordiv(out[i], count), *i)

        return (
            copy_data(x)(data, out),
            () if include else code.grid(indices.shape, reset, "i"),
            code.grid(x.shape, lambda *i: counts.set(int(include), *i)) if reduce == "mean" else (),
            code.grid(indices.shape, update, "i"),
            code.grid(x.shape, divide) if reduce == "mean" else (),
        )

    scratch = (counts.buffer,) if reduce == "mean" else ()
    return te.extern(x.buffer.shape, [x, indices, updates], body, "T_scatter_reduce", x.dtype, scratch=scratch)  # type: ignore[no-any-return]


def _numpy(call: relax.Call, x: Any, indices: Any, updates: Any) -> Any:
    """Scatter one slice of indices along the axis at a time, in which no target repeats."""
    out, counts, at = np.array(x), np.zeros(x.shape, np.int64), call.attrs["axis"] % x.ndim
    reduce, include = call.attrs["reduce"], call.attrs["include_self"]
    indices = checked_indices(indices, x.shape[at], at)
    view, times = cropped_view(out, indices, at), cropped_view(counts, indices, at)
    if not include:
        np.put_along_axis(view, indices, _identity(reduce, DType.of(str(x.dtype))), at)
    for step in range(indices.shape[at]):
        where = np.take(indices, [step], at)
        new = np_combine(REDUCTIONS[reduce], np.take_along_axis(view, where, at), np.take(updates, [step], at))
        np.put_along_axis(view, where, new.astype(out.dtype), at)
        np.put_along_axis(times, where, np.take_along_axis(times, where, at) + 1, at)
    if reduce != "mean":
        return out
    number = np.maximum(counts + include, 1).astype(out.dtype)
    return out / number if np.issubdtype(out.dtype, np.floating) else out // number


OPS: dict[str, Impl] = {
    "scatter_reduce": Impl(
        'data, indices, updates, axis: int = 0, reduce: str = "sum", include_self: bool = True', infer_scatter_reduce,
        _numpy, _lower, from_end=True,
    ),
}  # fmt: skip
