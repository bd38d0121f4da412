"""Products of few rows, inside which encoded weights are decoded."""

from __future__ import annotations

from math import prod

from mlcc.ir import relax, tir
from mlcc.relax.queries import is_call

MAX_ROWS = 32  # with more rows, decoding weights in advance pays
COLUMNS = 16  # whose multiples are whole vectors of any CPU


def decodes_weight(call: relax.Expr, multiple: int = COLUMNS) -> bool:
    """Return True for a product of few or an unknown number of rows with a matrix that has a multiple of columns."""
    if not is_call(call, "relax.matmul"):
        return False
    left, right = (arg.struct_info for arg in call.args)  # type: ignore[attr-defined]
    m, n = (info.dims if isinstance(info, relax.TensorStructInfo) else None for info in (left, right))
    if m is None or n is None or len(n) != 2:
        return False
    depth, columns = (tir.const_int(extent) or 1 for extent in n)
    return (
        prod(tir.const_int(extent) or 1 for extent in m[:-1]) <= MAX_ROWS and not depth % 2 and not columns % multiple
    )
