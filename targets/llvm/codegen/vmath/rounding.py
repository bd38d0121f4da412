"""floor, ceil, trunc and rounding to even by additions, for CPUs without an instruction (x86-64 before SSE4.1); fmod,
fma, ldexp and nextafter, which no CPU has for vectors.
"""

from __future__ import annotations

from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, Code, Int, Num, sum_of
from mlcc.targets.llvm.codegen.vmath.slow_paths import with_libm_fallback, with_slow_path
from mlcc.targets.llvm.codegen.vmath.without_libm import remainder


def _nearest(c: Code, size: Num) -> Num:
    """A number that is not negative, to the nearest integer, ties to even."""
    whole = 2.0**c.format.fraction  # from here on all are integers
    return c.choose(size < whole, (size + whole) - whole, size)


def nearbyint(c: Code, x: Num) -> Num:
    return _nearest(c, abs(x)).sign_of(x)


def trunc(c: Code, x: Num) -> Num:
    size = abs(x)
    near = _nearest(c, size)
    return (near - c.choose(near > size, 1.0, 0.0)).sign_of(x)


def floor(c: Code, x: Num) -> Num:
    near = nearbyint(c, x)
    return (near - c.choose(near > x, 1.0, 0.0)).sign_of(x)


def ceil(c: Code, x: Num) -> Num:
    near = nearbyint(c, x)
    return (near + c.choose(near < x, 1.0, 0.0)).sign_of(x)


def fmod(c: Code, x: Num, y: Num) -> Num:
    """x - n * y, exactly, where the quotient is below 2**28; libm elsewhere.

    n is the integer nearest the rounded quotient: the remainder is exact, and where it is negative y is missing.
    """
    wide = c.other(DOUBLE)
    a, b = (abs(x), abs(y)) if c.format.bits == 64 else (abs(x).to(wide), abs(y).to(wide))
    quotient = a / b
    magic = 2.0**52
    n = (quotient + magic) - magic
    product, rest = wide.product(n, b)
    left = (a - product) - rest
    left = wide.choose(left < 0.0, left + b, left)
    usual = (quotient < 2.0**28) & (a < 2.0**990) & (b < 2.0**990) & (b > 2.0**-900)
    residue = left if c.format.bits == 64 else left.to(c)
    if not c.libm:
        (exact,) = with_slow_path(c, ~usual, [residue.v], lambda: [remainder(c, abs(x), abs(y)).v])
        return Num(c, exact).sign_of(x)
    return with_libm_fallback(c, ~usual, residue.sign_of(x), "fmod", x, y)


def fma(c: Code, x: Num, y: Num, z: Num) -> Num:
    """x * y + z of `float`, rounded once: in doubles the product is exact, and the sum is rounded to odd, so that
    rounding it again does no harm (Boldo and Melquiond)."""
    wide = c.other(DOUBLE)
    product, addend = x.to(wide) * y.to(wide), z.to(wide)
    total, rest = sum_of(product, addend)
    bits = total.as_bits()
    inexact = (abs(rest) > 0.0) & (bits & 1).equals(0)
    inward = (rest < 0.0) ^ (total < 0.0)  # the exact sum is nearer to 0
    step = wide.choose_int(inward, wide.integer(-1), wide.integer(1))
    return (bits + wide.choose_int(inexact, step, wide.integer(0))).as_number().to(c)


def nextafter(c: Code, x: Num, y: Num) -> Num:
    """The neighbour of x toward y: one more or one less in the bits."""
    bits = x.as_bits()
    outward = (x < y) ^ (bits < 0)
    moved = c.choose(outward, (bits + 1).as_number(), (bits - 1).as_number())
    neighbour = c.choose(x.equals(0.0), c.integer(1).as_number().sign_of(y), moved)
    return c.choose(x.unordered(y), x + y, c.choose(x.equals(y), y, neighbour))


def ldexp(c: Code, x: Num, n: Int) -> Num:
    """x * 2**n in three steps. Going down, the first leaves room for a denormal: nothing rounds twice."""
    most, least = c.format.bias, 1 - c.format.bias
    room = least + c.format.fraction + 1
    scaled, left = x, n
    for _ in range(2):
        low = left < least
        high = c.choose_int(left < most, left, c.integer(most))
        step = c.choose_int(low, c.integer(room), high)
        scaled, left = scaled * c.power_of_two(step), left - step
    step = c.choose_int(left < most, left, c.integer(most))
    return scaled * c.power_of_two(c.choose_int(step < least, c.integer(least), step))
