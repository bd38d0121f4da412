"""Indices from data in the NumPy references: the valid ones, and the errors for others."""

from __future__ import annotations

from typing import Any

from mlcc.ops.lazy import np


def places(indices: Any, extent: int, dimension: int, from_end: bool = True) -> Any:
    """The indices as int64 from 0 to extent - 1; with `from_end` negative ones count from the end.

    Raises IndexError naming the first that has no place, in the words of compiled code (`mlcc.ir.checked`).
    """
    given = np.asarray(indices)
    inside = (given >= (-extent if from_end and given.dtype.kind == "i" else 0)) & (given < extent)
    if not inside.all():
        first = int(given[~inside].flat[0]) if given.ndim else int(given)
        raise IndexError(f"index {first} is outside dimension {dimension}, which has {extent}")
    wide = given.astype(np.int64)
    return np.where(wide < 0, wide + extent, wide)
