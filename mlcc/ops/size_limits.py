"""The sizes that tensors can have: no extent is negative, and their bytes fit int64, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ops.relations import evaluate

MAX_TENSOR_BYTES = 2**63 - 1


def max_elements(dtype: DType | None) -> int:
    """Return the largest number of elements of a tensor; an unknown dtype counts as one byte."""
    return MAX_TENSOR_BYTES // max(dtype.bytes * dtype.lanes, 1) if dtype is not None else MAX_TENSOR_BYTES


def too_large(shape: Sequence[int | None], dtype: DType | None) -> str | None:
    """Return the reason why a shape is too large for a tensor, or None if it is not. Unknown extents are None.

    An extent of 0 does not lift the limit for the others: strides are computed from them.
    """
    count = 1
    for extent in shape:
        count *= max(extent, 1) if extent is not None else 1
    if count <= max_elements(dtype):
        return None
    of = f" of {dtype}" if dtype is not None else ""
    return f"a tensor of shape {_shape_text(shape)}{of}: more than 2**63 - 1 bytes"


def impossible_shape(shape: Sequence[int | None], dtype: DType | None) -> tuple[str, str] | None:
    """Return the code and the reason if no tensor has this shape and dtype. Unknown extents are None."""
    for axis, extent in enumerate(shape):
        if extent is not None and extent < 0:
            return "E0448", f"a tensor of shape {_shape_text(shape)}: extent {axis} is {extent}"
    why = too_large(shape, dtype)
    return None if why is None else ("E0447", why)


def impossible_size(info: relax.StructInfo | None) -> tuple[str, str] | None:
    """Return the code and the reason if a tensor of a struct info cannot exist, whatever its symbolic sizes are."""
    match info:
        case relax.TensorStructInfo() if info.dims is not None:
            return impossible_shape([evaluate(d, {}) for d in info.dims], info.dtype)
        case relax.TupleStructInfo(fields=fields):
            return next(filter(None, map(impossible_size, fields)), None)
    return None


def _shape_text(shape: Sequence[int | None]) -> str:
    dims = ", ".join("?" if extent is None else str(extent) for extent in shape)
    return f"({dims}{',' if len(shape) == 1 else ''})"
