"""Bounds checks of data-dependent indices in the NumPy references."""

from __future__ import annotations

from typing import Any

from mlcc.ops.lazy import np


def checked_indices(indices: Any, extent: int, dimension: int, from_end: bool = True) -> Any:
    """Convert indices to int64 in [0, extent); with `from_end` negative ones count from the end.

    Raises IndexError for the first index out of bounds, with the message of compiled code (`mlcc.ir.checked_index`).
    """
    values = np.asarray(indices)
    valid = (values >= (-extent if from_end and values.dtype.kind == "i" else 0)) & (values < extent)
    if not valid.all():
        first = int(values[~valid].flat[0]) if values.ndim else int(values)
        raise IndexError(f"index {first} is outside dimension {dimension}, which has {extent}")
    wide = values.astype(np.int64)
    return np.where(wide < 0, wide + extent, wide)
