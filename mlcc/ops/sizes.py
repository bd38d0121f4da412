"""The size that no tensor may exceed: its bytes fit int64, as NumPy has it, so that no offset into it wraps."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType

MOST_BYTES = 2**63 - 1


def most_elements(dtype: DType | None) -> int:
    """Return the largest number of elements of a tensor; an unknown dtype counts as one byte."""
    return MOST_BYTES // max(dtype.bytes * dtype.lanes, 1) if dtype is not None else MOST_BYTES


def too_large(shape: Sequence[int | None], dtype: DType | None) -> str | None:
    """Return the reason why a shape is too large for a tensor, or None if it is not. Unknown extents are None.

    An extent of 0 does not lift the limit for the others: strides are computed from them.
    """
    count = 1
    for extent in shape:
        count *= max(extent, 1) if extent is not None else 1
    if count <= most_elements(dtype):
        return None
    dims = ", ".join("?" if extent is None else str(extent) for extent in shape)
    of = f" of {dtype}" if dtype is not None else ""
    return f"a tensor of shape ({dims}{',' if len(shape) == 1 else ''}){of}: more than 2**63 - 1 bytes"


def info_too_large(info: relax.StructInfo | None) -> str | None:
    """Return the reason why a struct info has no values, or None: a tensor is too large whatever its symbolic sizes."""
    match info:
        case relax.TensorStructInfo() if info.dims is not None:
            return too_large([tir.const_int(d) for d in info.dims], info.dtype)
        case relax.TupleStructInfo(fields=fields):
            return next(filter(None, map(info_too_large, fields)), None)
    return None
