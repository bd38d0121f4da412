"""Functions of C that TensorIR has no intrinsics for, and a GPU no library: expm1, cbrt, round, fmin, fmax, fdim."""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.vmath.exponentials import exp, exp2, reduced
from mlcc.targets.llvm.codegen.vmath.logarithms import log2
from mlcc.targets.llvm.codegen.vmath.ops import Code, Num

_EXP_IS_MORE = 40.0  # than 2**53: the 1 does not show
_CUBES = {"float": (24, 8), "double": (54, 18)}  # a power of 8, so large that no denormal stays one, and its cube root


def expm1(c: Code, x: Num) -> Num:
    """exp(x) - 1 as 2**n * p + (2**n - 1), where p = exp(r) - 1 keeps its digits; near 0 n is 0, and this is p."""
    p, _, power = reduced(c, x.clamp(-_EXP_IS_MORE, _EXP_IS_MORE))
    scale = c.power_of_two(power)
    value = c.choose(x > _EXP_IS_MORE, exp(c, x), c.fma(scale, p, scale - 1.0))
    return value.sign_of(x)


def cbrt(c: Code, x: Num) -> Num:
    """2**(log2|x| / 3), and a step of Newton's with the exact remainder, which leaves less than a unit of error."""
    bits, root = _CUBES[c.format.type]
    size = abs(x)
    small, large = size < 2.0 ** (3 * bits) * c.format.least_normal, size > 2.0 ** (3 * bits)
    near = size * c.choose(small, 2.0**bits, c.choose(large, 2.0**-bits, 1.0))
    y = exp2(c, log2(c, near) * (1.0 / 3.0))
    square, rest = c.product(y, y)
    over = c.fma(square, y, -near) + rest * y
    y = y - over / (square * 3.0)
    value = y * c.choose(small, 2.0**-root, c.choose(large, 2.0**root, 1.0))
    is_plain = (size > 0.0) & (size < math.inf)
    return c.choose(is_plain, value.sign_of(x), x)


def round_away(c: Code, x: Num) -> Num:
    """C's round: halves go away from zero."""
    size = abs(x)
    whole = c.intrinsic("trunc", size)
    return c.choose(size - whole >= 0.5, whole + 1.0, whole).sign_of(x)


def fdim(c: Code, x: Num, y: Num) -> Num:
    return c.choose(x.unordered(y), x + y, c.choose(x > y, x - y, 0.0))


def fmin(c: Code, x: Num, y: Num) -> Num:
    """The lesser one; a number rather than NaN, -0 rather than 0."""
    return c.choose(x.unordered(x) | (y < x) | (y.equals(x) & (y.as_bits() < 0)), y, x)


def fmax(c: Code, x: Num, y: Num) -> Num:
    return c.choose(x.unordered(x) | (y > x) | (y.equals(x) & (x.as_bits() < 0)), y, x)
