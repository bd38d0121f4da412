"""The size limit of tensors: their bytes fit int64, as in NumPy, so that no offset overflows."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType

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
    dims = ", ".join("?" if extent is None else str(extent) for extent in shape)
    of = f" of {dtype}" if dtype is not None else ""
    return f"a tensor of shape ({dims}{',' if len(shape) == 1 else ''}){of}: more than 2**63 - 1 bytes"


def info_too_large(info: relax.StructInfo | None) -> str | None:
    """Return why a tensor of a struct info is too large for any value of its symbolic sizes, None if it is not."""
    match info:
        case relax.TensorStructInfo() if info.dims is not None:
            return too_large([tir.const_int(d) for d in info.dims], info.dtype)
        case relax.TupleStructInfo(fields=fields):
            return next(filter(None, map(info_too_large, fields)), None)
    return None
