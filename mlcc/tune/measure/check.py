"""Comparison of a candidate's results with those of the unscheduled kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode
from mlcc.ir.tensor_data import storage_dtype
from mlcc.tune.measure.arguments import Bytes

_CHUNK = 1 << 20  # elements compared at a time
_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52, "float8_e4m3fn": 3, "float8_e5m2": 2}
_ROUNDING_FACTOR = 16.0  # tolerance of a sum of n terms in another order: this many roundings times sqrt(n)


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """The tolerance for results of reassociated sums: `depth` terms, accumulated in `dtype`."""

    depth: int = 1
    dtype: str = "float32"

    def of(self, result: str) -> float:
        """Return the bound for results of a dtype, relative to their magnitude plus that of the tensor.

        Rounding errors of reassociated sums grow with the square root of the number of terms; the result is rounded
        once more to its dtype, by up to an ulp.
        """
        sums = _ROUNDING_FACTOR * math.sqrt(max(self.depth, 1)) * math.ldexp(1.0, -_MANTISSA[self.dtype])
        return sums + math.ldexp(2.0, -_MANTISSA[result])


def difference(got: Bytes, expected: Bytes, dtype_name: str, bound: ErrorBound) -> str | None:
    """Compare a tensor with the expected one. Return a description of the mismatch, None if there is none.

    Integers must be equal, NaNs at the same places, infinities of the same sign, other floats within the bound.
    """
    dtype = DType.of(dtype_name).element
    stored = storage_dtype(dtype)
    mine, theirs = got.view(stored), expected.view(stored)
    if not dtype.is_float:
        wrong = np.flatnonzero(mine != theirs)
        return None if not wrong.size else _describe_mismatch(mine, theirs, int(wrong[0]), wrong.size, "")
    tolerance = bound.of(str(dtype))
    scale = _rms(theirs, dtype)
    count, first, worst = 0, -1, 0.0
    for begin in range(0, mine.size, _CHUNK):
        a, b = (decode(x[begin : begin + _CHUNK], dtype).astype(np.float64) for x in (mine, theirs))
        wrong, error = _mismatches(a, b, tolerance * (np.abs(b) + scale))
        if wrong.size:
            first = begin + int(wrong[0]) if first < 0 else first
            count += wrong.size
            worst = max(worst, error)
    if not count:
        return None
    how = f", off by up to {worst:.3g} where {tolerance * scale:.3g} is allowed" if worst else ""
    return _describe_mismatch(decode(mine, dtype), decode(theirs, dtype), first, count, how)


def infinite_share(values: Bytes, dtype_name: str) -> float:
    """Return the share of elements that are infinite or NaN, from a sample where the tensor is large."""
    dtype = DType.of(dtype_name).element
    if not dtype.is_float or not values.size:
        return 0.0
    sample = values.view(storage_dtype(dtype))[:: max(1, values.size // _CHUNK)]
    return 1.0 - float(np.isfinite(decode(np.asarray(sample), dtype)).mean())


def _mismatches(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], allowed: npt.NDArray[np.float64]) -> tuple[
    npt.NDArray[np.intp], float
]:  # fmt: skip
    """Return the indices of wrong elements, and the largest error of finite ones."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (distance <= allowed)
        same &= ~(np.isinf(b) & (a != b))
    wrong = np.flatnonzero(~same)
    finite = distance[wrong][np.isfinite(distance[wrong])]
    return wrong, float(finite.max()) if finite.size else 0.0


def _rms(values: npt.NDArray[np.generic], dtype: DType) -> float:
    """The root mean square of the finite elements; large tensors are sampled."""
    step = max(1, values.size // _CHUNK)
    sample = np.abs(decode(np.asarray(values[::step]), dtype).astype(np.float64))
    finite = sample[np.isfinite(sample)]
    if not finite.size:
        return 0.0
    top = float(finite.max())
    return top * float(np.sqrt(np.mean(np.square(finite / top)))) if top else 0.0


def _describe_mismatch(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic], at: int, count: int, how: str) -> str:
    return f"{count} of {a.size} elements differ{how}; the first is element {at}: {a[at]} instead of {b[at]}"
