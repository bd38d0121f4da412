"""pow, sqrt, 1 / sqrt and hypot.

pow of `float` is 2**(y * log2|x|) in doubles. pow of `double` has the logarithm as a sum of two doubles: as
2 s (1 + z / 3 + z**2 P(z)), s = f / (2 + f), z = s**2, where all but P is carried in two parts.
"""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.exponentials import LN2, SPARE, reduced
from mlcc.targets.llvm.codegen.vmath.logarithms import split
from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, Code, Num, ordered_sum, sum_of

_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_FAR = 2.0**70  # |y| above it gives 0, 1 or infinity


def sqrt(c: Code, x: Num) -> Num:
    return c.intrinsic("sqrt", x)


def rsqrt(c: Code, x: Num) -> Num:
    return 1.0 / c.intrinsic("sqrt", x)


def hypot(c: Code, x: Num, y: Num) -> Num:
    """sqrt(x**2 + y**2): of `float` in doubles, of `double` by the quotient of the lesser over the greater."""
    a, b = abs(x), abs(y)
    if c.format.bits == 32:
        wide = c.other(DOUBLE)
        u, v = a.to(wide), b.to(wide)
        length = wide.intrinsic("sqrt", wide.fma(u, u, v * v)).to(c)
    else:
        steep = b > a
        least, most = c.choose(steep, a, b), c.choose(steep, b, a)
        quotient = least / c.choose(most.equals(0.0), 1.0, most)
        length = most * c.intrinsic("sqrt", c.fma(quotient, quotient, 1.0))
        length = c.choose(x.unordered(y), x + y, length)
    return c.choose(a.equals(math.inf) | b.equals(math.inf), math.inf, length)


def pow(c: Code, x: Num, y: Num) -> Num:
    size = _float_power(c, abs(x), y) if c.format.bits == 32 else _double_power(c, abs(x), y)
    return _with_signs(c, x, y, size)


def _with_signs(c: Code, x: Num, y: Num, size: Num) -> Num:
    """C's pow from that of |x|: the sign for odd y, NaN for a y that is no integer, 1 for y = 0 and x = 1."""
    whole = 2.0**c.format.fraction
    ay = abs(y)
    large = ay >= whole
    moved = ay + whole  # rounded to an integer, whose last bit is that of one
    integer = large | (moved - whole).equals(ay)
    odd = (c.choose(large, ay, moved).as_bits() & 1).equals(1) & integer & (ay < 2.0 * whole)
    power = c.choose((x.as_bits() < 0) & odd, -size, size)
    power = c.choose((x < 0.0) & (x > -math.inf) & ~integer, math.nan, power)
    power = c.choose(x.unordered(y), x + y, power)
    return c.choose(y.equals(0.0) | x.equals(1.0), 1.0, power)


def _float_power(c: Code, x: Num, y: Num) -> Num:
    wide = c.other(DOUBLE)
    base = x.to(wide)
    k, m, _ = split(wide, base, denormals=False)
    s = (m - 1.0) / (m + 1.0)
    log = wide.fma(s, wide.polynomial(s * s, coefficients.LOG2_S["double"]), k)
    log = wide.choose(base.equals(0.0), -math.inf, wide.choose(base.equals(math.inf), math.inf, log))
    t = (y.to(wide).clamp(-_FAR, _FAR) * log).clamp(-200.0, 200.0)
    n, power = wide.round(t, 1.0)
    r = t - n
    return (wide.fma(r, wide.polynomial(r, coefficients.POW_EXP2["double"]), 1.0) * wide.power_of_two(power)).to(c)


def _log_in_two(c: Code, x: Num) -> tuple[Num, Num]:
    """log(x) of a positive finite x, to 63 bits and more."""
    k, m, _ = split(c, x)
    f = m - 1.0
    d, d_rest = sum_of(m, c.number(1.0))
    inverse = 1.0 / d
    s = f * inverse
    sd, sd_rest = c.product(s, d)
    s_rest = (((f - sd) - sd_rest) - s * d_rest) * inverse
    z, z_rest = c.product(s, s)
    z_rest = c.fma(s + s, s_rest, z_rest)
    third, third_rest = c.format.pair(_THIRD)
    q, q_rest = ordered_sum(c.number(third), z * c.polynomial(z, coefficients.POW_S["double"]))
    q_rest = q_rest + third_rest
    w, w_rest = c.product(z, q)
    w_rest = w_rest + (z * q_rest + z_rest * q)
    v, v_rest = c.product(s, w)
    v_rest = v_rest + (s * w_rest + s_rest * w)
    high, low = ordered_sum(s, v)
    low = low + (s_rest + v_rest)
    ln2, ln2_rest = c.format.pair(LN2, SPARE[c.format.type])
    total, rest = ordered_sum(k * ln2, high + high)
    return ordered_sum(total, rest + c.fma(k, ln2_rest, low + low))


def _double_power(c: Code, x: Num, y: Num) -> Num:
    log, log_rest = _log_in_two(c, x)
    far = y.clamp(-_FAR, _FAR)
    e, e_rest = c.product(far, log)
    e_rest = c.fma(far, log_rest, e_rest)
    near = e.clamp(-746.0, 710.0)
    p, n, power = reduced(c, near, c.choose(near.equals(e), e_rest, 0.0))
    size = (p + 1.0).scaled(n, power)
    none, all = c.choose(y < 0.0, math.inf, 0.0), c.choose(y < 0.0, 0.0, math.inf)
    return c.choose(x.equals(0.0), none, c.choose(x.equals(math.inf), all, size))
