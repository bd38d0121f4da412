"""Errors of results in units in the last place, against references in higher precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)  # type: ignore[no-any-return]


def erf(x: Array) -> Array:
    """erf with 60 bits for types wider than double: by its series near 0, by a continued fraction of erfc beyond."""
    if x.dtype == np.float64:
        return _erf(x)  # type: ignore[no-any-return]
    one = x.dtype.type(1)
    size = np.minimum(np.abs(x), one * 7)
    square = size * size
    term = total = np.where(size < 3, size, 0)
    for n in range(1, 90):  # exp(-x**2) times a series without cancellation
        term = term * square * 2 / (2 * n + 1)
        total = total + term
    root = np.sqrt(np.arctan(one) * 4)
    near = total * 2 / root * np.exp(-square)
    far = np.maximum(size, one * 2)
    fraction = far
    for n in range(120, 0, -1):
        fraction = far + one * n / 2 / fraction
    beyond = 1 - np.exp(-far * far) / (fraction * root)
    return np.copysign(np.where(size < 3, near, beyond), x)


TRUTH: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(x.dtype.type(10), x), "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "erf": erf,
    "sigmoid": _sigmoid, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod,
}  # fmt: skip


def wide(dtype: str) -> Any:
    """Return the dtype of reference results for `dtype`; for float64 it needs the 80 bits of x86 or more."""
    return np.float64 if dtype == "float32" else np.longdouble


def can_judge(dtype: str) -> bool:
    return bool(np.finfo(wide(dtype)).nmant >= np.finfo(dtype).nmant + 11)


def distance(made: Array, truth: Array) -> Array:
    """Return |made - truth| in units in the last place of `made`'s type.

    Infinite if only one is NaN, if one is infinite and the other far from it, or if the signs of zeros differ.
    """
    kind = np.finfo(made.dtype)
    with np.errstate(all="ignore"):
        near = truth.astype(made.dtype)
        plain = np.isfinite(truth) & (truth != 0)
        exponent = np.maximum(np.frexp(np.where(plain, truth, 1))[1] - 1, kind.minexp)
        error = np.abs(made.astype(truth.dtype) - truth) / np.ldexp(truth.dtype.type(1), exponent - kind.nmant)
        past = np.isinf(made) != np.isinf(near)  # one side of the border only
        border = np.where(np.isinf(made), np.abs(truth), np.abs(made)) >= float(kind.max)
        error = np.where(past, np.where(border & (np.sign(made) == np.sign(truth)), 1, np.inf), error)
        error = np.where(np.isinf(made) & np.isinf(near), np.where(made == near, 0, np.inf), error)
        error = np.where((made == 0) & (near == 0) & (np.signbit(made) != np.signbit(near)), np.inf, error)
    unknown = np.isnan(made) != np.isnan(near)
    return np.where(unknown, np.inf, np.where(np.isnan(made), 0, error))  # type: ignore[no-any-return]


def special(dtype: str) -> Array:
    """Return special values: zeros, infinities, NaN, limits of normal and subnormal numbers, small integers, ties."""
    kind = np.finfo(dtype)
    bits = kind.nmant
    sizes = [0, kind.smallest_subnormal, kind.tiny, kind.max, np.inf, np.nan, 0.5, 1, 2, 3, 0.1, 1.5, 7, 10, 100, 1e-3]
    sizes += [1 + kind.eps, 1 - kind.eps / 2, 2.0 - kind.eps, kind.tiny * (1 - kind.eps), 2.5, 3.5, 1e6, 1.6e6, 1e10]
    sizes += [2.0**bits, 2.0**bits + 1, 2.0 ** (bits + 1) - 1, 2.0 ** (bits + 1), 2.0 ** (bits - 1) + 0.5, 88.0, 104.0]
    sizes += [2.0 ** (bits + 1) + 2, np.pi / 2, np.pi, 0.921875, 0.41421357, 2.4142137, 6, 4, 9, 20, 709.8, 745.2]
    with np.errstate(over="ignore"):
        positive = np.array(sizes, np.float64).astype(dtype)
    return np.concatenate([positive, -positive])


def anywhere(dtype: str, count: int, seed: int) -> Array:
    """Return uniformly random bit patterns, which cover every exponent, NaN and subnormal numbers."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    return np.frombuffer(rng.bytes(count * kind.itemsize), kind).copy()


def usual(dtype: str, count: int, seed: int) -> Array:
    """Return typical values: around 0 at scales from a thousandth to hundreds, and around 1."""
    rng = np.random.default_rng(seed)
    scales = rng.choice([1e-3, 0.1, 1.0, 5.0, 30.0, 300.0], count)
    numbers = rng.standard_normal(count) * scales
    numbers[::7] = 1 + numbers[::7] / 300
    numbers[3::7] = np.rint(numbers[3::7]) * (np.pi / 2)
    return numbers.astype(dtype)
