"""log, log2, log10, log1p.

A positive x is m * 2**k with m between sqrt(1/2) and sqrt(2), and f = m - 1 is exact. log(1 + f) is f - tail: the tail
is a polynomial in f for `float`, and after Tang and fdlibm one in s**2, s = f / (2 + f), for `double`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.exponentials import LN2, LOG10_2, SPARE
from mlcc.targets.llvm.codegen.vmath.ops import Code, Int, Mask, Num, sum_of
from mlcc.targets.llvm.codegen.vmath.slow_paths import unless_usual

_LOG2_E = 1.4426950408889634
_LOG10_E = 0.4342944819032518


def positive_normal(c: Code, x: Num) -> tuple[Int, int]:
    """A key, and the bound that it is below for normal numbers above 0."""
    least = c.format.bits_of(c.format.least_normal)
    return x.as_bits() - least, c.format.bits_of(math.inf) - least


def split(c: Code, x: Num, normal: tuple[Int, int] | None) -> tuple[Num, Num, Int]:
    """k and m of a positive finite x, and k with a bias as an integer. Without a key `normal` x is a normal number."""
    format = c.format
    offset = 2.0**format.fraction + format.bias
    away = c.number(offset)
    if normal is not None:
        given = x

        def scaled() -> list[Num]:
            small, shift = given < format.least_normal, format.fraction + 2
            return [c.choose(small, given * 2.0**shift, given), c.choose(small, offset + shift, offset)]

        x, away = unless_usual(c, [normal], lambda: [given, c.number(offset)], scaled)
    root = format.bits_of(math.sqrt(0.5))
    moved = x.as_bits() + (format.bits_of(1.0) - root)
    power = moved.lshr(format.fraction)
    m = ((moved & ((1 << format.fraction) - 1)) + root).as_number()
    return power.count(away), m, power


def log1p_tail(c: Code, f: Num, extra: Num | None = None) -> Num:
    """t with log(1 + f) + extra = f - t, f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    square = f * f
    if c.format.bits == 32:
        rest = f * square * c.polynomial(f, coefficients.LOG["float"])
        return square * 0.5 - (rest if extra is None else rest + extra)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    inner = half + z * c.polynomial(z, coefficients.LOG_S["double"])
    return half - (s * inner if extra is None else c.fma(s, inner, extra))


def _general(c: Code, x: Num, formula: Callable[[Num, Num], Num]) -> Num:
    """The logarithm of any x, given that of positive finite ones by k and f = m - 1."""
    normal = positive_normal(c, x)
    k, m, _ = split(c, x, normal)
    result = formula(k, m - 1.0)
    return unless_usual(c, [normal], lambda: [result], lambda: [_special(c, x, result)])[0]


def _special(c: Code, x: Num, result: Num) -> Num:
    """The logarithm with what no formula covers: 0, infinity, NaN and negatives."""
    ordinary: Mask = (x > 0.0) & (x < math.inf)
    rest = c.choose(x.equals(0.0), -math.inf, c.choose(x < 0.0, math.nan, x))
    return c.choose(ordinary, result, rest)


def _natural(c: Code, k: Num, f: Num) -> Num:
    high, low = c.format.pair(LN2, SPARE[c.format.type])
    return c.fma(k, high, f - log1p_tail(c, f, k * low))


def log(c: Code, x: Num) -> Num:
    return _general(c, x, lambda k, f: _natural(c, k, f))


def log2(c: Code, x: Num) -> Num:
    return _general(c, x, lambda k, f: c.fma(f - log1p_tail(c, f), _LOG2_E, k))


def log10(c: Code, x: Num) -> Num:
    high, low = c.format.pair(LOG10_2, SPARE[c.format.type])
    return _general(c, x, lambda k, f: c.fma(k, high, c.fma(f - log1p_tail(c, f), _LOG10_E, k * low)))


def log1p(c: Code, x: Num) -> Num:
    """Return log(1 + x); the rounding error of the sum is added back to f."""
    total, rest = sum_of(c.number(1.0), x)
    k, m, power = split(c, total, None)
    inverse = ((c.integer(2 * c.format.bias) - power) << c.format.fraction).as_number()
    rest = c.choose(x < 2.0**60, rest * inverse, 0.0)
    result = _special(c, total, _natural(c, k, (m - 1.0) + rest))
    return c.choose(x.equals(0.0), x, result)
