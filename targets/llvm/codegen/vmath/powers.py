"""pow, sqrt, 1 / sqrt and hypot.

pow of `float` is 2**(y * log2|x|), with the logarithm as a sum of two floats, or in doubles where products in two parts
are slow: without fused multiply-add. pow of `double` has the logarithm as a sum of two doubles: as
2 s (1 + z / 3 + z**2 P(z)), s = f / (2 + f), z = s**2, where all but P is carried in two parts.
"""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.exponentials import EXP2_RANGE, LN2, SPARE, reduced
from mlcc.targets.llvm.codegen.vmath.logarithms import positive_normal, split
from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, Code, Int, Num, ordered_sum, sum_of
from mlcc.targets.llvm.codegen.vmath.slow_paths import unless_usual

_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_NORMAL_RESULT = 125.0  # |t| below it gives a normal `float`
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
    if c.format.bits == 32 and c.fused:
        return _float_power(c, x, y)
    size = _double_power(c, abs(x), y) if c.format.bits == 64 else _float_power_in_doubles(c, abs(x), y)
    keys = [positive_normal(c, x), (abs(size).as_bits(), c.format.bits_of(math.inf) + 1)]
    return unless_usual(c, keys, lambda: [size], lambda: [_special_power(c, x, y, size)])[0]


def _special_power(c: Code, x: Num, y: Num, size: Num) -> Num:
    """C's pow from that of |x|: of 0 and infinity, the sign for odd y, NaN for a y that is no integer, 1 for y = 0 and
    x = 1."""
    ax, ay = abs(x), abs(y)
    below = y < 0.0
    size = c.choose(ax.equals(0.0), c.choose(below, math.inf, 0.0), size)
    size = c.choose(ax.equals(math.inf), c.choose(below, 0.0, math.inf), size)
    whole = 2.0**c.format.fraction
    large = ay >= whole
    moved = ay + whole  # rounded to an integer, whose last bit is that of one
    integer = large | (moved - whole).equals(ay)
    odd = (c.choose(large, ay, moved).as_bits() & 1).equals(1) & integer & (ay < 2.0 * whole)
    power = c.choose((x.as_bits() < 0) & odd, -size, size)
    power = c.choose((x < 0.0) & (x > -math.inf) & ~integer, math.nan, power)
    power = c.choose(x.unordered(y), x + y, power)
    return c.choose(y.equals(0.0) | x.equals(1.0), 1.0, power)


def _float_power(c: Code, x: Num, y: Num) -> Num:
    """pow(x, y) by sums of two floats; bases and results that are not positive normal numbers are rare."""
    normal = positive_normal(c, x)
    t, t_rest = _exponent(c, abs(x), y, normal)

    def usual() -> list[Num]:
        p, _, power = _power_of_two(c, t, t_rest)
        return [(p.as_bits() + (power << c.format.fraction)).as_number()]

    def general() -> list[Num]:
        near = t.clamp(*EXP2_RANGE["float"])
        p, n, power = _power_of_two(c, near, c.choose(near.equals(t), t_rest, 0.0))
        size = c.choose(abs(x).equals(1.0), 1.0, p.scaled(n, power))  # t is NaN for an infinite y
        return [_special_power(c, x, y, size)]

    keys = [normal, (abs(t).as_bits(), c.format.bits_of(_NORMAL_RESULT))]
    return unless_usual(c, keys, usual, general)[0]


def _power_of_two(c: Code, t: Num, t_rest: Num) -> tuple[Num, Num, Int]:
    """p, n and n as an integer of 2**(t + t_rest) = p * 2**n."""
    n, power = c.round(t, 1.0)
    r = (t - n) + t_rest
    return c.fma(r, c.polynomial(r, coefficients.EXP2["float"]), 1.0), n, power


def _exponent(c: Code, x: Num, y: Num, normal: tuple[Int, int]) -> tuple[Num, Num]:
    """y * log2(x) of a positive finite x, a `float`, where log2(x) = k + s * u(s**2), s = f / (2 + f), to 34 bits.

    What waits for the division is kept short: errors of s, u and the products come last, each with its factor ready.
    """
    k, m, _ = split(c, x, normal)
    f = m - 1.0
    s = f / (m + 1.0)
    s_left = c.fma(-s, f, f - (s + s))  # f - s * (2 + f)
    z, z_rest = c.product(s, s)
    first, second, *others = coefficients.POW_LOG2["float"]
    first, first_rest = c.format.pair((first, 0.0))
    u = c.fma(z, second, first)
    u_rest = c.fma(z_rest, second, c.fma(z, second, first - u))
    u_rest = u_rest + c.fma(z, z * c.polynomial(z, others), first_rest)
    slope = c.polynomial(s, coefficients.POW_SLOPE["float"])
    v, v_rest = c.product(s, u)
    v_rest = c.fma(s_left, slope, c.fma(s, u_rest, v_rest))
    log, log_rest = ordered_sum(k, v)
    t, t_rest = c.product(y, log)
    return t, c.fma(y, v_rest, c.fma(y, log_rest, t_rest))


def _float_power_in_doubles(c: Code, x: Num, y: Num) -> Num:
    """pow(x, y) of a positive finite x, in doubles."""
    wide = c.other(DOUBLE)
    k, m, _ = split(wide, x.to(wide), None)
    s = (m - 1.0) / (m + 1.0)
    log = wide.fma(s, wide.polynomial(s * s, coefficients.LOG2_S["double"]), k)
    t = y.to(wide).clamp(-_FAR, _FAR) * log
    near = t.clamp(-200.0, 200.0)
    n, power = wide.round(near, 1.0)
    r = near - n
    power_of_two = wide.fma(r, wide.polynomial(r, coefficients.POW_EXP2["double"]), 1.0) * wide.power_of_two(power)
    return power_of_two.to(c)


def _log_in_two(c: Code, x: Num) -> tuple[Num, Num]:
    """log(x) of a positive finite x, to 63 bits and more."""
    k, m, _ = split(c, x, positive_normal(c, x))
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
    return (p + 1.0).scaled(n, power)
