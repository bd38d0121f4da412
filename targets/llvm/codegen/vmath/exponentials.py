"""exp and what is made of it: exp2, exp10, sinh, cosh, tanh, the logistic function.

The argument is n * ln(2) + r with |r| <= ln(2) / 2 (Cody and Waite: ln(2) in two parts, the first so short that
n times it is exact); exp(r) is a polynomial; 2**n goes into the exponent, in two steps, so that results round once,
denormals too, and overflow to infinity.
"""

from __future__ import annotations

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.ops import Code, Int, Num

_LOG2_E = 1.4426950408889634
_LOG2_10 = 3.321928094887362
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)

SPARE = {"float": 9, "double": 12}  # bits of n, for constants that it is multiplied with
# beyond these an argument gives 0 and infinity, of exp, exp2 and exp10
_EXP = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}
EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}
_EXP10 = {"float": (-46.0, 39.0), "double": (-325.0, 309.0)}
_HYPERBOLIC = {"float": 90.0, "double": 712.0}
_TANH_IS_1 = {"float": 10.0, "double": 20.0}


def _remainder(c: Code, x: Num) -> tuple[Num, Num, Int]:
    """r of x = n * ln(2) + r, and n as a float and as an integer."""
    high, low = c.format.pair(LN2, SPARE[c.format.type])
    n, power = c.round(x, _LOG2_E)
    return c.fma(n, -low, c.fma(n, -high, x)), n, power


def reduced(c: Code, x: Num, rest: Num | None = None) -> tuple[Num, Num, Int]:
    """exp(x + rest) - 1 without its power of two, and that power: exp(x + rest) = (p + 1) * 2**n."""
    r, n, power = _remainder(c, x)
    if rest is not None:
        r = r + rest
    return c.fma(r * r, c.polynomial(r, coefficients.EXP[c.format.type]), r), n, power


def exp(c: Code, x: Num) -> Num:
    r, n, power = _remainder(c, x.clamp(*_EXP[c.format.type]))
    return c.fma(r, c.polynomial(r, coefficients.EXP_1[c.format.type]), 1.0).scaled(n, power)


def exp2(c: Code, x: Num) -> Num:
    x = x.clamp(*EXP2_RANGE[c.format.type])
    n, power = c.round(x, 1.0)
    r = x - n
    return c.fma(r, c.polynomial(r, coefficients.EXP2[c.format.type]), 1.0).scaled(n, power)


def exp10(c: Code, x: Num) -> Num:
    x = x.clamp(*_EXP10[c.format.type])
    high, low = c.format.pair(LOG10_2, SPARE[c.format.type])
    n, power = c.round(x, _LOG2_10)
    r = c.fma(n, -low, c.fma(n, -high, x))
    return c.fma(r, c.polynomial(r, coefficients.EXP10[c.format.type]), 1.0).scaled(n, power)


def sigmoid(c: Code, x: Num) -> Num:
    """Return 1 / (1 + exp(-x)) by exp(-|x|): no overflow, and full relative precision of small results."""
    small = exp(c, -abs(x))
    return c.choose(x < 0.0, small, 1.0) / (small + 1.0)


def tanh(c: Code, x: Num) -> Num:
    """(exp(2|x|) - 1) / (exp(2|x|) + 1), where the numerator is computed without cancellation."""
    size, limit = abs(x), _TANH_IS_1[c.format.type]
    size = c.choose(size > limit, limit, size)
    p, _, power = reduced(c, size + size)
    scale = c.power_of_two(power)
    above = c.fma(scale, p, scale - 1.0)
    return (above / (above + 2.0)).sign_of(x)


def _half_exp(c: Code, size: Num) -> Num:
    limit = _HYPERBOLIC[c.format.type]
    p, n, power = reduced(c, c.choose(size > limit, limit, size))
    return (p + 1.0).scaled(n - 1.0, power - 1)


def cosh(c: Code, x: Num) -> Num:
    half = _half_exp(c, abs(x))
    return half + 0.25 / half


def sinh(c: Code, x: Num) -> Num:
    size = abs(x)
    half = _half_exp(c, size)
    square = size * size
    small = c.fma(size * square, c.polynomial(square, coefficients.SINH[c.format.type]), size)
    return c.choose(size < 1.0, small, half - 0.25 / half).sign_of(x)
