"""log, log2, log10, log1p.

A positive x is m * 2**k with m between sqrt(1/2) and sqrt(2), and f = m - 1 is exact. log(1 + f) is f - tail: the tail
is a polynomial in f for `float`, and after Tang and fdlibm one in s**2, s = f / (2 + f), for `double`.
"""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.exponentials import LN2, LOG10_2, SPARE
from mlcc.targets.llvm.codegen.vmath.ops import Code, Int, Mask, Num, sum_of

_LOG2_E = 1.4426950408889634
_LOG10_E = 0.4342944819032518


def split(c: Code, x: Num, denormals: bool = True) -> tuple[Num, Num, Int]:
    """k and m of a positive finite x, and k with a bias as an integer. Without `denormals` x is a normal number."""
    format = c.format
    offset = 2.0**format.fraction + format.bias
    away = c.number(offset)
    if denormals:
        small = x < format.least_normal
        shift = format.fraction + 2
        x = c.choose(small, x * 2.0**shift, x)
        away = c.choose(small, offset + shift, offset)
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


def _special(c: Code, x: Num, result: Num) -> Num:
    """The logarithm with what no formula covers: 0, infinity, NaN and negatives."""
    ordinary: Mask = (x > 0.0) & (x < math.inf)
    rest = c.choose(x.equals(0.0), -math.inf, c.choose(x < 0.0, math.nan, x))
    return c.choose(ordinary, result, rest)


def _natural(c: Code, k: Num, f: Num) -> Num:
    high, low = c.format.pair(LN2, SPARE[c.format.type])
    return c.fma(k, high, f - log1p_tail(c, f, k * low))


def log(c: Code, x: Num) -> Num:
    k, m, _ = split(c, x)
    return _special(c, x, _natural(c, k, m - 1.0))


def log2(c: Code, x: Num) -> Num:
    k, m, _ = split(c, x)
    f = m - 1.0
    return _special(c, x, c.fma(f - log1p_tail(c, f), _LOG2_E, k))


def log10(c: Code, x: Num) -> Num:
    k, m, _ = split(c, x)
    f = m - 1.0
    high, low = c.format.pair(LOG10_2, SPARE[c.format.type])
    return _special(c, x, c.fma(k, high, c.fma(f - log1p_tail(c, f), _LOG10_E, k * low)))


def log1p(c: Code, x: Num) -> Num:
    """Return log(1 + x); the rounding error of the sum is added back to f."""
    total, rest = sum_of(c.number(1.0), x)
    k, m, power = split(c, total, denormals=False)
    inverse = ((c.integer(2 * c.format.bias) - power) << c.format.fraction).as_number()
    rest = c.choose(x < 2.0**60, rest * inverse, 0.0)
    result = _special(c, total, _natural(c, k, (m - 1.0) + rest))
    return c.choose(x.equals(0.0), x, result)
