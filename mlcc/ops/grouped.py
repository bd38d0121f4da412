"""Grouped GEMM: each group of rows is multiplied by its own matrix, as in mixtures of experts."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, device_of, fail, known_different, result, same_dtype, shape_text, tensor
from mlcc.te.scalar import to_expr

_NDIMS = (("data", 2), ("weights", 3), ("ends", 1))


def infer_grouped_matmul(call: relax.Call) -> Tensor:
    """Infer (s, n) from rows (s, k), matrices (g, k, n) and the group ends (g,)."""
    data, weights, ends = infos = [tensor(call, index) for index in range(3)]
    for info, (name, ndim) in zip(infos, _NDIMS, strict=True):
        if info.ndim not in (-1, ndim):
            fail(call, "E0445", f"`{name}` has {info.ndim} dimensions, expected {ndim}")
    if ends.dtype is not None and not ends.dtype.is_int:
        fail(call, "E0444", f"`ends` must be integers, not {ends.dtype}")
    dtype, device = same_dtype(call, (data, weights)), device_of(infos)
    if data.dims is None or weights.dims is None:
        return result(None, dtype, 2, device)
    pairs = [(data.dims[1], weights.dims[1]), *([(ends.dims[0], weights.dims[0])] if ends.dims else [])]
    if any(known_different(one, other) for one, other in pairs):
        shapes = ", ".join(shape_text(info.dims, info.ndim) for info in infos)
        fail(call, "E0445", f"shapes {shapes} do not fit, expected (s, k), (g, k, n), (g,)")
    return result((data.dims[0], weights.dims[2]), dtype, vdevice=device)


def _lower(call: relax.Call, x: te.Tensor, weights: te.Tensor, ends: te.Tensor) -> te.Tensor:
    """Multiply each row by its group's matrix, the group being the number of ends <= row; rows past the last are 0."""
    rows, groups, columns = to_expr(x.shape[0]), to_expr(ends.shape[0]), to_expr(weights.shape[2])
    zero = te.const(0, x.dtype)
    if 0 in (
        tir.const_int(groups),
        tir.const_int(to_expr(x.shape[1])),
    ):  # a loop that does not run would not initialise
        return te.compute((rows, columns), lambda i, j: zero, name="grouped_matmul")  # type: ignore[no-any-return]
    g = te.reduce_axis((0, ends.shape[0]), "g")
    passed = te.compute(
        (rows,), lambda i: te.sum((ends(g).astype(INT64) <= i.astype(INT64)).astype(INT64), axis=g), name="group"
    )
    last = ends.shape[0].astype(INT64) - 1
    k = te.reduce_axis((0, x.shape[1]), "k")

    def element(i: Any, j: Any) -> Any:
        group = passed(i)
        product = x(i, k) * weights(te.min(group, last), k, j)
        return te.sum(te.if_then_else(group <= last, product, zero), axis=k)

    return te.compute((rows, columns), element, name="grouped_matmul")  # type: ignore[no-any-return]


def _np_grouped_matmul(call: relax.Call, x: Any, weights: Any, ends: Any) -> Any:
    product = np.zeros((x.shape[0], weights.shape[2]), x.dtype)
    begin = 0
    for matrix, end in zip(weights, ends, strict=True):
        product[begin:end] = x[begin:end] @ matrix
        begin = end
    return product


OPS: dict[str, Impl] = {
    "nn.grouped_matmul": Impl("data, weights, ends", infer_grouped_matmul, _np_grouped_matmul, _lower),
}
