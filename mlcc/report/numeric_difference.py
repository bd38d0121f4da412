"""The difference of two arrays of numbers: absolute, relative, in units in the last place, and within a tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode, is_narrow

Place = tuple[int, ...]


@dataclass(frozen=True)
class Largest:
    """The largest of some differences, and where it is; `inf` where only one of two elements is finite or a NaN."""

    value: float
    at: Place


@dataclass(frozen=True)
class NumericDifference:
    """A result beside the expected one. `problem` says why they cannot be compared; the rest is empty then.

    `ulps` counts the values of the dtype from one to the other, None for integers. `outside` elements of `size` are
    not within the tolerance; NaNs are equal to each other.
    """

    name: str
    form: str
    problem: str | None = None
    absolute: Largest | None = None
    relative: Largest | None = None
    ulps: Largest | None = None
    outside: int = 0
    size: int = 0
    worst: str = ""

    @property
    def passes(self) -> bool:
        return self.problem is None and not self.outside


def numeric_difference(
    name: str, result: np.ndarray, expected: np.ndarray, dtype: DType, rtol: float, atol: float
) -> NumericDifference:
    """Compare two arrays of values of `dtype`; those of dtypes that NumPy lacks are float32.

    Elements agree if |result - expected| <= atol + rtol * |expected|.
    """
    form = f"{dtype}{list(result.shape)}"
    if result.shape != expected.shape:
        return NumericDifference(name, form, f"shape {list(result.shape)} instead of {list(expected.shape)}")
    if result.dtype.kind != expected.dtype.kind:
        return NumericDifference(name, form, f"dtype {result.dtype} instead of {expected.dtype}")
    if not result.size:
        return NumericDifference(name, form)
    if result.dtype.kind not in "f":
        exact = result.astype(object) - expected.astype(object) if result.dtype.kind in "iu" else result != expected
        gap = np.abs(exact).astype(np.float64)
        relative = None
        off = gap > 0
        ulps = None
    else:
        a, b = result.astype(np.float64), expected.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        both = np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            gap = np.where(same, 0.0, np.where(both, np.abs(a - b), np.inf))
            ratio = np.where(same, 0.0, np.where(both & (b != 0), gap / np.abs(b), np.inf))
        off = ~same & ~(both & (gap <= atol + rtol * np.abs(np.where(both, b, 0.0))))
        relative = _largest(ratio)
        steps = np.abs(_ordinals(result, dtype) - _ordinals(expected, dtype)).astype(np.float64)
        ulps = _largest(np.where(same, 0.0, np.where(both, steps, np.inf)))
    absolute = _largest(gap)
    at = _largest(np.where(off, gap, -1)).at if off.any() else absolute.at
    worst = f"{result[at]!s} instead of {expected[at]!s}" if off.any() or absolute.value else ""
    return NumericDifference(name, form, None, absolute, relative, ulps, int(off.sum()), result.size, worst)


def rows(differences: list[NumericDifference]) -> list[str]:
    """Format differences as a table."""
    lines = []
    for one in differences:
        head = f"{one.name}: {one.form}: {'pass' if one.passes else 'FAIL'}"
        if one.problem is not None:
            lines.append(f"{head}: {one.problem}")
            continue
        parts = [
            f"{word} {largest.value:.3g} at {list(largest.at)}"
            for word, largest in (("absolute", one.absolute), ("relative", one.relative), ("ULP", one.ulps))
            if largest is not None and largest.value
        ]
        lines.append(f"{head}: {', '.join(parts) if parts else 'equal'}")
        if one.outside:
            lines.append(f"  {one.outside} of {one.size} elements are outside the tolerance, the worst {one.worst}")
    return lines


def _largest(values: np.ndarray) -> Largest:
    flat = int(values.argmax())
    return Largest(float(values.flat[flat]), tuple(int(i) for i in np.unravel_index(flat, values.shape)))


def _ordinals(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Number the values of a dtype in order, both zeros 0, so that neighbours differ by 1 (Dawson's `AlmostEqualUlps`).

    float64 is numbered as Python integers, since two numbers may be 2**64 apart.
    """
    bits = encode(values, dtype) if is_narrow(dtype) else values.astype(str(dtype))
    size = bits.dtype.itemsize
    raw = bits.view(f"uint{8 * size}").astype(object if size == 8 else np.int64)
    sign = 1 << (8 * size - 1)
    return np.where(raw >= sign, sign - raw, raw)


def decoded(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return a result as values: stored bits of narrow floats as float32."""
    return decode(values, dtype) if is_narrow(dtype) and values.dtype.kind == "u" else values
