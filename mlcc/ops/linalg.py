"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import Tensor, broadcast, device_of, fail, known_different, result, same_dtype, shape_text, tensor
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def result_dtype(call: relax.Call, infos: Sequence[Tensor]) -> DType | None:
    """`out_dtype` where it is given, else the dtype that all operands have."""
    wanted = call.attrs.get("out_dtype")
    if wanted is not None:
        return DType.of(wanted)
    known = [i.dtype for i in infos if i.dtype is not None]
    if len(known) == 2 and known[0] is not known[1]:
        hint = "convert one with `R.astype`, or give `out_dtype`"
        fail(call, "E0444", f"the operands have different dtypes, {known[0]} and {known[1]}", hint)
    return same_dtype(call, infos)


def infer_matmul(call: relax.Call) -> Tensor:
    """Infer by NumPy's rule: inner extents are equal, batch dimensions broadcast, vectors lose their dimension."""
    left, right = tensor(call, 0), tensor(call, 1)
    dtype = result_dtype(call, (left, right))
    device = device_of((left, right))
    for number, info in enumerate((left, right), 1):
        if info.ndim == 0:
            fail(call, "E0445", f"operand {number} is a scalar; use `R.multiply`")
    if left.ndim < 0 or right.ndim < 0:
        return result(None, dtype, -1, device)
    ndim = _matmul_ndim(left.ndim, right.ndim)
    if left.dims is None or right.dims is None:
        return result(None, dtype, ndim, device)
    a, b = left.dims[-1], right.dims[-2] if right.ndim > 1 else right.dims[0]
    if known_different(a, b):
        text = f"{shape_text(left.dims)} and {shape_text(right.dims)} cannot be multiplied"
        swapped = left.ndim == right.ndim == 2 and not known_different(right.dims[-1], left.dims[0])
        help = "in the other order they do" if swapped else "R.permute_dims changes the order of dimensions"
        fail(call, "E0445", f"{text}: the inner extents {a.value} and {b.value} differ", help)  # type: ignore[attr-defined]
    batch = broadcast(call, left.dims[:-2], right.dims[:-2], "the leading dimensions")
    if batch is None:
        return result(None, dtype, ndim, device)
    dims = [*batch, *(left.dims[-2:-1] if left.ndim > 1 else ()), *(right.dims[-1:] if right.ndim > 1 else ())]
    return result(dims, dtype, vdevice=device)


def _matmul_ndim(left: int, right: int) -> int:
    batch = max(left - 2, right - 2, 0)
    return batch + (left > 1) + (right > 1)


def infer_dense(call: relax.Call) -> Tensor:
    """x @ weight.T: (..., k) and (n, k) give (..., n)."""
    data, weight = tensor(call, 0), tensor(call, 1)
    dtype = same_dtype(call, (data, weight))
    if weight.ndim not in (-1, 2):
        fail(call, "E0445", f"the weight must be a matrix, it has {weight.ndim} dimensions")
    if data.ndim == 0:
        fail(call, "E0445", "the data must not be a scalar")
    if data.dims is None or weight.dims is None:
        return result(None, dtype, data.ndim)
    a, b = data.dims[-1], weight.dims[1]
    if known_different(a, b):
        text = f"{shape_text(data.dims)} and {shape_text(weight.dims)} do not fit"
        fail(call, "E0445", f"{text}: the last extents {a.value} and {b.value} differ")  # type: ignore[attr-defined]
    return result((*data.dims[:-1], weight.dims[0]), dtype, vdevice=device_of((data, weight)))


def infer_outer(call: relax.Call) -> Tensor:
    """Infer a matrix from two vectors."""
    left, right = tensor(call, 0), tensor(call, 1)
    dtype = same_dtype(call, (left, right))
    for number, info in enumerate((left, right), 1):
        if info.ndim not in (-1, 1):
            fail(call, "E0445", f"operand {number} must be a vector, it has {info.ndim} dimensions")
    if left.dims is None or right.dims is None:
        return result(None, dtype, 2)
    return result((*left.dims, *right.dims), dtype)


# ---------------------------------------------------------------- lowering


def matmul(a: te.Tensor, b: te.Tensor, dtype: DType, name: str = "matmul") -> te.Tensor:
    """Matrix product by NumPy's broadcasting rules, accumulated in `dtype`."""
    left, right = list(a.buffer.shape), list(b.buffer.shape)
    batch_a, batch_b = left[:-2], right[:-2]
    batch = list(topi.broadcast_shape(batch_a, batch_b)) if batch_a or batch_b else []
    rows = left[-2:-1] if len(left) > 1 else []
    columns = right[-1:] if len(right) > 1 else []
    if tir.const_int(left[-1]) == 0:  # the init would not run in a loop without iterations
        return te.compute([*batch, *rows, *columns], lambda *i: te.const(0, dtype), name=name)  # type: ignore[no-any-return]
    k = te.reduce_axis((0, Scalar(left[-1])), "k")

    def element(*i: Any) -> Any:
        lead = i[: len(batch)]
        row, column = i[len(batch) : len(batch) + len(rows)], i[len(i) - len(columns) :] if columns else ()
        at_a = [*_batch_index(batch_a, batch, lead), *row, k]
        at_b = [*_batch_index(batch_b, batch, lead), k, *column]
        return te.sum(_cast(a(*at_a), dtype) * _cast(b(*at_b), dtype), axis=k)

    products: te.Tensor = te.compute([*batch, *rows, *columns], element, name=name)
    return products


def _batch_index(extents: Sequence[tir.Expr], batch: Sequence[tir.Expr], at: Sequence[Any]) -> list[Any]:
    """Indices into the batch dimensions of one operand; extents of 1 are broadcast."""
    offset = len(batch) - len(extents)
    indices = []
    for position, extent in enumerate(extents):
        repeated = tir.const_int(extent) == 1 and tir.const_int(batch[position + offset]) != 1
        indices.append(construct.const(0, extent.dtype) if repeated else at[position + offset])
    return indices


def _cast(value: Scalar, dtype: DType) -> Scalar:
    return value if value.dtype is dtype else value.astype(dtype)


def _lower_matmul(call: relax.Call, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    wanted = call.attrs["out_dtype"]
    return matmul(a, b, a.dtype if wanted is None else DType.of(wanted))


def _lower_dense(call: relax.Call, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """Lower to a reduction; the weight is marked as free in its layout."""
    k = te.reduce_axis((0, a.shape[-1]), "k")
    products: te.Tensor = te.compute(
        (*a.buffer.shape[:-1], b.buffer.shape[0]),
        lambda *i: te.sum(a(*i[:-1], k) * b(i[-1], k), axis=k),
        name="T_matmul_NT",
        attrs={"layout_free_placeholders": [b]},
        varargs_names=["i", "j"] if a.ndim == 2 else None,
    )
    return products


def _lower_outer(call: relax.Call, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    outer: te.Tensor = te.compute((to_expr(a.shape[0]), to_expr(b.shape[0])), lambda i, j: a(i) * b(j), name="outer")
    return outer


# ---------------------------------------------------------------- NumPy


def _np_matmul(call: relax.Call, a: Any, b: Any) -> Any:
    wanted = call.attrs["out_dtype"]
    if wanted is not None and wanted not in ("float16", "bfloat16"):
        a, b = np.asarray(a).astype(wanted), np.asarray(b).astype(wanted)
    return np.matmul(a, b)


OPS: dict[str, Impl] = {
    "matmul": Impl(
        "x1, x2, out_dtype: dtype? = None", infer_matmul, _np_matmul, _lower_matmul, FusionKind.OUT_EWISE_FUSABLE,
        precision=Precision.HALF,
    ),
    "nn.dense": Impl(
        "data, weight", infer_dense, lambda call, a, b: np.matmul(a, np.transpose(b)), _lower_dense,
        FusionKind.OUT_EWISE_FUSABLE,
    ),
    "outer": Impl(
        "x1, x2", infer_outer, lambda call, a, b: np.outer(a, b), _lower_outer, FusionKind.BROADCAST,
        precision=Precision.HALF,
    ),
}  # fmt: skip
