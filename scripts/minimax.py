"""Generate the polynomials of targets/llvm/codegen/vmath/coefficients.py, which minimize the relative error.

    python scripts/minimax.py [--check]      # needs mpmath; --check only compares with the file

Each polynomial approximates a smooth factor of a function on the interval left by argument reduction. Its error is
weighted so that the fit, by Lawson's iteration, minimizes the relative error of the function itself. Coefficients are
rounded to their format one by one, lowest first, and the rest are refitted each time, which compensates for the
rounding of the large ones.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

mp.dps = 60
OUTPUT_FILE = Path(__file__).resolve().parent.parent / "targets" / "llvm" / "codegen" / "vmath" / "coefficients.py"
Function = Callable[[Any], Any]
_HALF = mpf(1) / 2
_POINTS, _ITERATIONS = 100, 5


@dataclass(frozen=True)
class Fit:
    """A fit p(t) ~ target(t) on [low, high] that minimizes weight(t) * |p - target|; `terms` by format.

    The first `wide` coefficients stay doubles, which code takes as sums of two numbers.
    """

    name: str
    description: str
    target: Function
    weight: Function
    low: Any
    high: Any
    terms: dict[str, int]
    wide: int = 0


def rounded(value: Any, type: str) -> Any:
    """Return the nearest float or double as an exact value."""
    wide = float(value)
    if type == "double":
        return mpf(wide)
    return mpf(struct.unpack("<f", struct.pack("<f", wide))[0])


def fit_remaining(fit: Fit, first: list[Any], terms: int) -> list[Any]:
    """Return the coefficients after the given lowest ones, by weighted least squares on Chebyshev points.

    Each iteration reweights the points by their residuals (Lawson), which approaches the minimax error.
    """
    known, free = len(first), terms - len(first)
    low, high = mpf(fit.low), mpf(fit.high)
    points = [low + (high - low) * (1 - mp.cos(mp.pi * (i + _HALF) / _POINTS)) / 2 for i in range(_POINTS)]
    weights = [fit.weight(t) for t in points]
    rows = [[w * t ** (known + k) for k in range(free)] for t, w in zip(points, weights, strict=True)]
    right = [
        w * (fit.target(t) - sum((c * t**k for k, c in enumerate(first)), mpf(0)))
        for t, w in zip(points, weights, strict=True)
    ]
    importance = [mpf(1)] * _POINTS
    solution: list[Any] = []
    for _ in range(_ITERATIONS):
        normal, side = mp.matrix(free, free), mp.matrix(free, 1)
        for row, value, factor in zip(rows, right, importance, strict=True):
            for i in range(free):
                scaled = factor * row[i]
                side[i] += scaled * value
                for k in range(i + 1):
                    normal[i, k] += scaled * row[k]
        for i in range(free):
            for k in range(i):
                normal[k, i] = normal[i, k]
        solved = mp.lu_solve(normal, side)
        solution = [solved[i] for i in range(free)]
        errors = [
            abs(sum((c * x for c, x in zip(solution, row, strict=True)), mpf(0)) - value)
            for row, value in zip(rows, right, strict=True)
        ]
        total = sum(f * e for f, e in zip(importance, errors, strict=True)) or mpf(1)
        importance = [f * e * _POINTS / total for f, e in zip(importance, errors, strict=True)]
    return solution


def coefficients(fit: Fit, type: str) -> list[float]:
    """Return the rounded coefficients, lowest first."""
    done: list[Any] = []
    while len(done) < fit.terms[type]:
        format = "double" if len(done) < fit.wide else type
        done.append(rounded(fit_remaining(fit, done, fit.terms[type])[0], format))
    return [float(c) for c in done]


def log2_max_error(fit: Fit, type: str, values: list[float]) -> float:
    """Return the base-2 logarithm of the maximum weighted error."""
    low, high = mpf(fit.low), mpf(fit.high)
    maximum = mpf(0)
    for i in range(1, 1000):
        t = low + (high - low) * i / 1000
        maximum = max(maximum, abs(fit.weight(t) * (sum(mpf(c) * t**k for k, c in enumerate(values)) - fit.target(t))))
    return float(mp.log(maximum, 2))


def _series(function: Function, series: Function, edge: str = "1e-8") -> Function:
    """Evaluate a quotient that cancels near 0 by its series there."""
    return lambda t: series(t) if abs(t) < mpf(edge) else function(t)


_ln2, _half = mp.log(2), _HALF
_square = (mp.sqrt(2) - 1) ** 2 / (mp.sqrt(2) + 1) ** 2  # of s = f / (2 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1


def _odd(function: Function, slope: Any, cubic: Any, fifth: Any) -> Function:
    """Return (f(x) - slope x) / x**3 as a function of z = x**2."""

    def quotient(z: Any) -> Any:
        if z < mpf("1e-16"):
            return cubic + fifth * z
        x = mp.sqrt(z)
        return (function(x) - slope * x) / x**3

    return quotient


def _odd_weight(function: Function) -> Function:
    return lambda z: mpf(0) if z == 0 else mp.sqrt(z) ** 3 / abs(function(mp.sqrt(z)))


def _cosine(z: Any) -> Any:
    return mpf(1) / 24 - z / 720 if z < mpf("1e-16") else (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _erf(z: Any) -> Any:
    slope = 2 / mp.sqrt(mp.pi)
    return slope * (1 - z / 3) - 1 if z < mpf("1e-16") else mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def _asin(x: Any) -> Any:
    return mp.asin(x)


ERF_SPLIT = mpf("0.921875")


def _fits() -> list[Fit]:
    exp = lambda t, scale: mp.expm1(scale * t)  # noqa: E731
    ln10 = mp.log(10)
    atanh_tail = lambda z: (  # noqa: E731
        mpf(2) / 3 + 2 * z / 5 if z < mpf("1e-16") else (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z
    )
    pow_tail = lambda z: (  # noqa: E731
        mpf(1) / 5 + z / 7 if z < mpf("1e-12") else (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1 - z / 3) / z**2
    )
    slack = mpf("1.0001")  # widens the interval, because argument reduction rounds
    bound = _ln2 / 2 * slack
    tan8 = (mp.sqrt(2) - 1) * slack
    return [
        Fit("EXP", "(exp(r) - 1 - r) / r**2, r to ln(2) / 2; relative to expm1 too",
            _series(lambda r: (mp.expm1(r) - r) / r**2, lambda r: _half + r / 6), abs, -bound, bound,
            {"float": 5, "double": 10}),
        Fit("EXP_1", "(exp(r) - 1) / r, r to ln(2) / 2", _series(lambda r: mp.expm1(r) / r, lambda r: 1 + r / 2),
            lambda r: abs(r) / mp.exp(r), -bound, bound, {"float": 6, "double": 11}),
        Fit("EXP2", "(2**r - 1) / r, r to 1/2", _series(lambda r: exp(r, _ln2) / r, lambda r: _ln2 + _ln2**2 * r / 2),
            abs, -_half * slack, _half * slack, {"float": 6, "double": 11}),
        Fit("EXP10", "(10**r - 1) / r, r to log10(2) / 2",
            _series(lambda r: exp(r, ln10) / r, lambda r: ln10 + ln10**2 * r / 2), abs, -bound / ln10, bound / ln10,
            {"float": 6, "double": 11}),
        Fit("LOG", "(log(1 + f) - f + f**2 / 2) / f**3, f from sqrt(1/2) - 1 to sqrt(2) - 1",
            _series(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, lambda f: mpf(1) / 3 - f / 4),
            lambda f: mpf(0) if f == 0 else abs(f**3 / mp.log1p(f)), mp.sqrt(_half) - 1, mp.sqrt(2) - 1, {"float": 8}),
        Fit("LOG_S", "(2 atanh(s) / s - 2) / s**2 by z = s**2, s = f / (2 + f)", atanh_tail, lambda z: z, mpf(0),
            _square * slack, {"double": 7}),
        Fit("LOG2_S", "2 / ln(2) atanh(s) / s by z = s**2, to 2**-40", lambda z: 2 / _ln2 * (
                1 + z / 3 if z < mpf("1e-16") else mp.atanh(mp.sqrt(z)) / mp.sqrt(z)), lambda z: mpf(1), mpf(0),
            _square * slack, {"double": 6}),
        Fit("POW_LOG2", "2 / ln(2) atanh(s) / s by z = s**2, to 2**-36", lambda z: 2 / _ln2 * (
                1 + z / 3 if z < mpf("1e-16") else mp.atanh(mp.sqrt(z)) / mp.sqrt(z)), lambda z: _ln2 / 2, mpf(0),
            _square * slack, {"float": 5}, wide=1),
        Fit("POW_SLOPE", "1 / (1 + s) / ln(2), to 2**-9", lambda s: 1 / (1 + s) / _ln2, lambda s: _ln2 * (1 + s),
            -mp.sqrt(_square), mp.sqrt(_square), {"float": 3}),
        Fit("POW_S", "(atanh(s) / s - 1 - z / 3) / z**2 by z = s**2", pow_tail, lambda z: z**2, mpf(0),
            _square * slack, {"double": 8}),
        Fit("POW_EXP2", "(2**r - 1) / r, r to 1/2, to 2**-35",
            _series(lambda r: exp(r, _ln2) / r, lambda r: _ln2 + _ln2**2 * r / 2), abs, -_half * slack, _half * slack,
            {"double": 7}),
        Fit("ERF", "erf(x) / x - 1 by z = x**2, x to 0.921875", _erf, lambda z: 1 / (1 + _erf(z)), mpf(0),
            ERF_SPLIT**2, {"float": 7, "double": 12}),
        Fit("SINH", "(sinh(x) - x) / x**3 by z = x**2, x to 1", _odd(mp.sinh, 1, mpf(1) / 6, mpf(1) / 120),
            _odd_weight(mp.sinh), mpf(0), mpf(1), {"float": 4, "double": 8}),
        Fit("SIN", "(sin(x) - x) / x**3 by z = x**2, x to pi/4", _odd(mp.sin, 1, -mpf(1) / 6, mpf(1) / 120),
            _odd_weight(mp.sin), mpf(0), (mp.pi / 4 * slack) ** 2, {"float": 3, "double": 6}),
        Fit("COS", "(cos(x) - 1 + x**2 / 2) / x**4 by z = x**2, x to pi/4", _cosine,
            lambda z: z**2 / mp.cos(mp.sqrt(z)), mpf(0), (mp.pi / 4 * slack) ** 2, {"float": 3, "double": 6}),
        Fit("ATAN", "(atan(x) - x) / x**3 by z = x**2, x to tan(pi/8)", _odd(mp.atan, 1, -mpf(1) / 3, mpf(1) / 5),
            _odd_weight(mp.atan), mpf(0), tan8**2, {"float": 5, "double": 11}),
        Fit("ASIN", "(asin(x) - x) / x**3 by z = x**2, x to 1/2", _odd(_asin, 1, mpf(1) / 6, mpf(3) / 40),
            _odd_weight(_asin), mpf(0), mpf(1) / 4, {"float": 5, "double": 12}),
    ]  # fmt: skip


def _erfc_fit(type: str, terms: int, end: str) -> Fit:
    """Return the fit of log(erfc(x)) in t = x - middle, weighted by the error of erf."""
    start = ERF_SPLIT
    middle = mpf(2)
    return Fit(
        "ERFC", f"log(1 - erf(x)) by t = x - 2, x from 0.921875 to {end}", lambda t: mp.log(mp.erfc(t + middle)),
        lambda t: mp.erfc(t + middle) / mp.erf(t + middle), start - middle, mpf(end) - middle, {type: terms},
    )  # fmt: skip


def generate() -> str:
    """Return the content of the whole file."""
    lines = [
        '"""Polynomials of scripts/minimax.py, which makes this file: coefficients, lowest first, by LLVM type.',
        "",
        "The power of two after each is the error of the function that it leaves, relative, before rounding.",
        '"""',
        "",
        "from __future__ import annotations",
    ]
    fits = [*_fits(), _erfc_fit("float", 8, "4"), _erfc_fit("double", 18, "6")]
    tables: dict[str, list[str]] = {}
    for fit in fits:
        for type in fit.terms:
            values = coefficients(fit, type)
            entry = tables.setdefault(fit.name, [])
            entry.append(f"    # {fit.description}: 2**{log2_max_error(fit, type, values):.1f}")
            entry.append(f'    "{type}": (')
            entry += [f"        {c!r}," for c in values]
            entry.append("    ),")
            print(fit.name, type, len(values), f"2**{log2_max_error(fit, type, values):.1f}", file=sys.stderr)
    for name, entry in tables.items():
        lines += ["", f"{name}: dict[str, tuple[float, ...]] = {{", *entry, "}"]
    return "\n".join(lines) + "\n"


def main() -> int:
    generated = generate()
    if "--check" in sys.argv[1:]:
        same = OUTPUT_FILE.read_text() == generated
        print("up to date" if same else "differs from the file")
        return 0 if same else 1
    OUTPUT_FILE.write_text(generated)
    return 0


if __name__ == "__main__":
    sys.exit(main())
