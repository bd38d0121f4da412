"""What the host code checks of a tensor argument before symbols are known: one row of numbers for each tensor.

A row is a sequence of int64: dimensions, dtype, bytes of an element, mask of its alignment, whether it must be compact;
then the error codes of `CODES`; then for each dimension what its extent must be (or `ANY`, `NOT_NEGATIVE`) and the
code if it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.runtime.abi import dtype_code, dtype_word
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.steps import Leaf

ANY, NOT_NEGATIVE = -1, -2
CODES = ("null", "ndim", "dtype", "device", "shape", "data", "align", "strides")
FIELDS = 5  # of a row before its error codes
CODE_AT = {name: FIELDS + index for index, name in enumerate(CODES)}
DIMENSIONS_AT = FIELDS + len(CODES)


def row(leaf: Leaf, bound: Sequence[bool], shared: AnyPlanning) -> list[int]:
    """The row of one tensor; `bound` says of which extents a symbol takes its value."""
    name, dtype, ndim = leaf.name, leaf.dtype, len(leaf.dims)
    assert dtype is not None
    mask = dtype.bytes - 1
    code = shared.code
    words = [ndim, dtype_word(dtype_code(str(dtype))), dtype.bytes * dtype.lanes, mask, int(leaf.strides is None)]
    words.append(code("NULL", f"`{name}` is null"))
    words.append(code("NDIM", f"`{name}` must have {ndim} dimension{'s' if ndim != 1 else ''}"))
    words.append(code("DTYPE", f"`{name}` must be {dtype}"))
    words.append(code("DEVICE", f"`{name}` must be in the memory of the CPU"))
    words.append(code("NULL", f"the shape of `{name}` is null") if ndim else 0)
    words.append(code("NULL", f"the data of `{name}` are null"))
    words.append(code("ALIGN", f"`{name}` must be aligned to {dtype.bytes} bytes") if mask else 0)
    words.append(code("STRIDES", f"`{name}` must be contiguous") if ndim and leaf.strides is None else 0)
    for index, (dim, binds) in enumerate(zip(leaf.dims, bound, strict=True)):
        what = f"dimension {index} of `{name}`"
        if isinstance(dim, tir.IntImm):
            words += [dim.value, code("SHAPE", f"{what} must be {dim.value}")]
        elif binds:
            words += [NOT_NEGATIVE, code("SHAPE", f"{what} is negative")]
        else:
            words += [ANY, 0]
    return words
