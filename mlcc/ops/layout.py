"""`R.layout_transform`: permute, split and pad a tensor by an index map."""

from __future__ import annotations

import math
from typing import Any

from mlcc import te
from mlcc.arith.index_map import IndexMapError, from_func, map_indices, map_shape, non_surjective_inverse
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import Attrs, replace
from mlcc.ir.visit import substitute
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import Dims, Tensor, fail, result, shape_text, tensor
from mlcc.te.scalar import Scalar, to_expr


def _index_map(call: relax.Call, ndim: int) -> tir.IndexMap:
    stated = call.attrs["index_map"]
    if not isinstance(stated, tir.IndexMap):
        fail(call, "E0442", "`index_map` must be an index map, such as `lambda i, j: (j, i)`")
    if len(stated.indices) != ndim:
        fail(call, "E0445", f"the index map takes {len(stated.indices)} indices, the tensor has {ndim} dimensions")
    wide = {v: tir.Var(v.name, INT64) for v in stated.indices}
    inverse = None if stated.inverse is None else _int64_map(stated.inverse)
    return tir.IndexMap(tuple(wide.values()), tuple(_int64(substitute(e, wide)) for e in stated.result), inverse)


def normalize_layout(call: relax.Call) -> relax.Call:
    """Convert an index map given as a Python function."""
    given, info = call.attrs["index_map"], call.args[0].struct_info
    if not callable(given):
        return call
    ndim = info.ndim if isinstance(info, relax.TensorStructInfo) and info.ndim >= 0 else None
    try:
        index_map = from_func(given, ndim, dtype=INT64, wrap=Scalar)
    except (IndexMapError, TypeError, ValueError) as problem:
        fail(call, "E0442", f"`index_map` is not an index map: {problem}")
    return replace(call, attrs=Attrs({**call.attrs, "index_map": index_map}))


def _int64_map(index_map: tir.IndexMap) -> tir.IndexMap:
    wide = {v: tir.Var(v.name, INT64) for v in index_map.indices}
    return tir.IndexMap(tuple(wide.values()), tuple(_int64(substitute(e, wide)) for e in index_map.result))


def _int64(expr: tir.Expr) -> tir.Expr:
    """Convert an expression over int64 variables to int64 throughout."""
    if isinstance(expr, tir.IntImm):
        return construct.const(expr.value, INT64)
    if isinstance(expr, tir.BinaryOp):
        lhs, rhs = _int64(expr.lhs), _int64(expr.rhs)
        return type(expr)(expr.dtype if expr.dtype.is_bool else INT64, lhs, rhs)
    if isinstance(expr, tir.Cast):
        return _int64(expr.value)
    return expr


def _shape(call: relax.Call, index_map: tir.IndexMap, dims: Dims) -> Dims:
    try:
        return map_shape(index_map, dims)
    except IndexMapError as problem:
        fail(call, "E0442", f"the index map does not fit the shape {shape_text(dims)}: {problem}")


def infer_layout_transform(call: relax.Call) -> Tensor:
    """Infer the shape of the transformed tensor, including padding."""
    data = tensor(call, 0)
    pad = call.attrs["pad_value"]
    dtype = pad.struct_info.dtype if isinstance(pad, relax.PrimValue) else getattr(pad, "dtype", None)  # type: ignore[union-attr]
    if dtype is not None and data.dtype is not None and dtype is not data.dtype:
        fail(call, "E0444", f"the padding value is {dtype}, but the tensor is {data.dtype}")
    given = call.attrs["index_map"]
    if data.ndim < 0:
        ndim = len(given.result) if isinstance(given, tir.IndexMap) else -1
        return result(None, data.dtype, ndim, data.vdevice)
    index_map = _index_map(call, data.ndim)
    if data.dims is None:
        return result(None, data.dtype, len(index_map.result), data.vdevice)
    return result(_shape(call, index_map, data.dims), data.dtype, vdevice=data.vdevice)


def _padding(call: relax.Call, dtype: Any) -> tir.Expr:
    pad = call.attrs["pad_value"]
    pad = pad.value if isinstance(pad, relax.PrimValue) else pad
    if pad is None:
        return construct.const(0, dtype)
    return construct.cast(dtype, pad) if isinstance(pad, tir.Expr) else construct.const(pad, dtype)


def _lower_layout_transform(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """Compute each element of the result by the inverse map, or the pad value outside its image."""
    index_map = _index_map(call, x.ndim)
    dims = _shape(call, index_map, x.buffer.shape)
    spans = [tir.Range(construct.const(0, INT64), d) for d in x.buffer.shape]
    try:
        inverse, padding = non_surjective_inverse(index_map, spans)
    except IndexMapError as problem:
        fail(call, "E0442", f"the layout cannot be lowered: {problem}")
    pad_value = Scalar(_padding(call, x.dtype))

    def element(*i: Any) -> Any:
        at = dict(zip(inverse.indices, map(to_expr, i), strict=True))
        value = x(*map(Scalar, map_indices(inverse, tuple(map(to_expr, i)))))
        is_padding = substitute(padding, at)
        return value if tir.const_int(is_padding) == 0 else te.if_then_else(Scalar(is_padding), pad_value, value)

    return topi.compute_ax(dims, element, "te_layout_transform")


def _np_layout_transform(call: relax.Call, x: Any) -> Any:
    index_map = _index_map(call, x.ndim)
    extents = _shape(call, index_map, tuple(construct.const(n, INT64) for n in x.shape))
    dims = [tir.const_int(d) or 0 for d in extents]
    pad = _padding(call, tensor(call, 0).dtype)
    assert isinstance(pad, (tir.IntImm, tir.FloatImm))
    out = np.full(dims, pad.value, x.dtype)
    for at in np.ndindex(*x.shape) if math.prod(x.shape) else ():
        place = map_indices(index_map, tuple(construct.const(int(n), INT64) for n in at))
        out[tuple(tir.const_int(p) for p in place)] = x[at]
    return out


OPS: dict[str, Impl] = {
    "layout_transform": Impl(
        "x, index_map: any, pad_value: any = None, axis_separators: ints?? = None, input_axis_separators: "
        "ints?? = None",
        infer_layout_transform, _np_layout_transform, _lower_layout_transform, FusionKind.INJECTIVE,
        normalize=normalize_layout, tir_name="te_layout_transform", precision=Precision.FOLLOW,
    ),
}  # fmt: skip
