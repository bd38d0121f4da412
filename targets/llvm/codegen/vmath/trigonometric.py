"""sin, cos, tan, atan, atan2, asin, acos.

An angle is n * pi/2 + r with |r| <= pi/4: pi/2 in parts of 33 bits, so that n times each is exact while n has at most
20 bits; angles of `float` are reduced in doubles. Larger angles, which programs hardly have, go to libm, lane by lane,
in a block of their own, or to `alone` where there is no libm.
"""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, Code, Int, Num, sum_of
from mlcc.targets.llvm.codegen.vmath.slow_paths import with_libm_fallback, with_slow_path
from mlcc.targets.llvm.codegen.vmath.without_libm import angle

_PI = (3.141592653589793, 1.2246467991473532e-16)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
_HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_HALF_PI_REST = 6.077100506506193e-11  # after the first part
_2_PI = 0.6366197723675814
_HALF_PI_FLOATS = (1.5707963705062866, -4.371139000186238e-08, -1.7151245100058819e-15)
_FAR = 1.6e6  # below 2**20 * pi/2
_FAR_IN_FLOATS = 1e5
_TAN_PI_8 = 0.41421356237309503
_TAN_3_PI_8 = 2.414213562373095


def _reduced(c: Code, size: Num) -> tuple[Num, Int]:
    """r and n of an angle that is not negative."""
    if c.format.bits == 32:
        wide = c.other(DOUBLE)
        angle = size.to(wide)
        n, quarter = wide.round(angle, _2_PI)
        r = wide.fma(-n, _HALF_PI_REST, wide.fma(-n, _HALF_PI_PARTS[0], angle))
        return r.to(c), quarter.to(c)
    n, quarter = c.round(size, _2_PI)
    first, second, third, fourth = _HALF_PI_PARTS
    r, rest = sum_of(size - n * first, -(n * second))
    r, more = sum_of(r, -(n * third))
    return r + (rest + more - n * fourth), quarter


def _reduced_in_floats(c: Code, size: Num) -> tuple[Num, Int]:
    """The same of a `float` below `_FAR_IN_FLOATS` without doubles, which most GPUs have little hardware for: the first
    step is exact, as what it leaves is a multiple of 2**-23 below 1; what the others round off is small beside r."""
    n, quarter = c.round(size, _2_PI)
    r = size
    for part in _HALF_PI_FLOATS:
        r = c.fma(-n, part, r)
    return r, quarter


def _placed(c: Code, size: Num) -> tuple[Num, Int]:
    """r and n of any angle that is not negative; without libm also of those that are far away."""
    in_floats = c.format.bits == 32 and not c.libm
    r, quarter = (_reduced_in_floats if in_floats else _reduced)(c, size)
    if c.libm:
        return r, quarter

    def far() -> list[Value]:
        rest, multiple = angle(c, size)
        return [rest.v, multiple.v]

    reduced = with_slow_path(c, size > (_FAR_IN_FLOATS if in_floats else _FAR), [r.v, quarter.v], far)
    return Num(c, reduced[0]), Int(c, reduced[1])


def _unless_far(c: Code, size: Num, made: Num, name: str, x: Num) -> Num:
    """`made`, but libm's function of angles that `_placed` did not place."""
    return with_libm_fallback(c, size > _FAR, made, name, x) if c.libm else made


def _sine_and_cosine(c: Code, r: Num) -> tuple[Num, Num]:
    z = r * r
    sine = c.fma(r * z, c.polynomial(z, coefficients.SIN[c.format.type]), r)
    cosine = c.fma(z * z, c.polynomial(z, coefficients.COS[c.format.type]), 1.0 - z * 0.5)
    return sine, cosine


def sin(c: Code, x: Num) -> Num:
    size = abs(x)
    r, quarter = _placed(c, size)
    sine, cosine = _sine_and_cosine(c, r)
    value = c.choose((quarter & 1).equals(0), sine, cosine)
    turned = ((quarter & 2) << (c.format.bits - 2)) ^ (x.as_bits() & c.format.sign)
    return _unless_far(c, size, (value.as_bits() ^ turned).as_number(), "sin", x)


def cos(c: Code, x: Num) -> Num:
    size = abs(x)
    r, quarter = _placed(c, size)
    sine, cosine = _sine_and_cosine(c, r)
    value = c.choose((quarter & 1).equals(0), cosine, sine)
    turned = ((quarter + 1) & 2) << (c.format.bits - 2)
    return _unless_far(c, size, (value.as_bits() ^ turned).as_number(), "cos", x)


def tan(c: Code, x: Num) -> Num:
    size = abs(x)
    r, quarter = _placed(c, size)
    sine, cosine = _sine_and_cosine(c, r)
    even = (quarter & 1).equals(0)
    value = c.choose(even, sine, cosine) / c.choose(even, cosine, sine)
    turned = (quarter << (c.format.bits - 1)) ^ (x.as_bits() & c.format.sign)
    return _unless_far(c, size, (value.as_bits() ^ turned).as_number(), "tan", x)


def atan(c: Code, x: Num) -> Num:
    """Brought below tan(pi/8) by -1 / x above tan(3 pi/8), and (x - 1) / (x + 1) between the two."""
    size = abs(x)
    big, middle = size > _TAN_3_PI_8, size > _TAN_PI_8
    above = c.choose(big, -1.0, c.choose(middle, size - 1.0, size))
    below = c.choose(big, size, c.choose(middle, size + 1.0, 1.0))
    t = above / below
    half, quarter = c.format.pair(_HALF_PI), c.format.pair(_QUARTER_PI)
    start = c.choose(big, half[0], c.choose(middle, quarter[0], 0.0))
    rest = c.choose(big, half[1], c.choose(middle, quarter[1], 0.0))
    z = t * t
    arc = c.fma(t * z, c.polynomial(z, coefficients.ATAN[c.format.type]), t)
    return (start + (arc + rest)).sign_of(x)


def atan2(c: Code, y: Num, x: Num) -> Num:
    """The angle of the lesser side over the greater one, then by octant."""
    size, other = abs(x), abs(y)
    steep = other > size
    least, most = c.choose(steep, size, other), c.choose(steep, other, size)
    huge = most > c.format.largest / 4.0
    least, most = c.choose(huge, least * 0.25, least), c.choose(huge, most * 0.25, most)
    infinite = most.equals(math.inf)
    least = c.choose(infinite, c.choose(least.equals(math.inf), 1.0, 0.0), least)
    most = c.choose(infinite, 1.0, most)
    middle = least > most * _TAN_PI_8
    above = c.choose(middle, least - most, least)
    below = c.choose(middle, least + most, c.choose(most.equals(0.0), 1.0, most))
    t = above / below
    whole, half, quarter = (c.format.pair(v) for v in (_PI, _HALF_PI, _QUARTER_PI))
    z = t * t
    arc = c.fma(t * z, c.polynomial(z, coefficients.ATAN[c.format.type]), t)
    # start + arc, or from the other side: half - (start + arc), whole - ...
    start, rest = (c.choose(middle, v, 0.0) for v in quarter)
    start, rest = c.choose(steep, half[0] - start, start), c.choose(steep, half[1] - rest, rest)
    left = x.as_bits() < 0
    start, rest = c.choose(left, whole[0] - start, start), c.choose(left, whole[1] - rest, rest)
    quadrant_angle = start + (c.choose(steep ^ left, -arc, arc) + rest)
    return c.choose(x.unordered(y), x + y, quadrant_angle.sign_of(y))


def _arcsine(c: Code, x: Num) -> tuple[Num, Num]:
    """|x|, and asin(|x|) or, where |x| > 1/2, asin(sqrt((1 - |x|) / 2))."""
    size = abs(x)
    big = size > 0.5
    square = c.choose(big, (1.0 - size) * 0.5, size * size)
    s = c.choose(big, c.intrinsic("sqrt", square), size)
    return size, c.fma(s * square, c.polynomial(square, coefficients.ASIN[c.format.type]), s)


def asin(c: Code, x: Num) -> Num:
    size, p = _arcsine(c, x)
    half = c.format.pair(_HALF_PI)
    return c.choose(size > 0.5, half[0] - (p + p - half[1]), p).sign_of(x)


def acos(c: Code, x: Num) -> Num:
    size, p = _arcsine(c, x)
    half, whole = c.format.pair(_HALF_PI), c.format.pair(_PI)
    near = c.choose(x > 0.0, p + p, whole[0] - (p + p - whole[1]))
    return c.choose(size > 0.5, near, half[0] - (p.sign_of(x) - half[1]))
