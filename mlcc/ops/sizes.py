"""The size that no tensor may exceed: its bytes fit int64, as NumPy has it, so that no offset into it wraps."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType

MOST_BYTES = 2**63 - 1


def most_elements(dtype: DType | None) -> int:
    """How many elements a tensor may have at most; those of an unknown dtype have one byte."""
    return MOST_BYTES // max(dtype.bytes * dtype.lanes, 1) if dtype is not None else MOST_BYTES


def too_large(shape: Sequence[int | None], dtype: DType | None) -> str | None:
    """Why there is no tensor of a shape, whose unknown extents are None; None if there is one.

    An extent of 0 does not make up for the others: strides are computed from these.
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
    """Why no value of a struct info can exist: one of its tensors is too large whatever its symbolic sizes are."""
    match info:
        case relax.TensorStructInfo() if info.dims is not None:
            return too_large([tir.const_int(d) for d in info.dims], info.dtype)
        case relax.TupleStructInfo(fields=fields):
            return next(filter(None, map(info_too_large, fields)), None)
    return None
