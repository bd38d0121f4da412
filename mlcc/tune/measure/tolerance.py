"""The error bound between the results of different schedules of one function."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.tune.measure.check import ErrorBound


def error_bound(func: tir.PrimFunc, sizes: Mapping[str, int]) -> ErrorBound:
    """Return the bound for a function: the number of terms that its reductions add up, and the accumulation dtype.

    The reductions of all blocks add up. An unknown extent counts as 128. The dtype is float64 if all float buffers are,
    else float32: kernels accumulate narrower floats in float32.
    """
    total = 1
    for block in find(func.body, tir.Block):
        extents = [_extent(axis.dom.extent, sizes) for axis in block.iter_vars if axis.kind is tir.IterKind.REDUCE]
        total += math.prod(extents) if extents else 0
    dtypes = {str(b.dtype.element) for b in func.buffers if b is not None and b.dtype.is_float}
    return ErrorBound(total, "float64" if dtypes == {"float64"} else "float32")


def _extent(extent: tir.Expr, sizes: Mapping[str, int]) -> int:
    known = tir.const_int(extent)
    if known is None and isinstance(extent, tir.Var):
        known = sizes.get(extent.name)
    return 128 if known is None else known
