"""The error function: an odd polynomial near 0, and 1 - exp(polynomial) beyond, which is log(erfc) there."""

from __future__ import annotations

from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.llvm.codegen.vmath.exponentials import reduced
from mlcc.targets.llvm.codegen.vmath.ops import Code, Num

_SPLIT = 0.921875
_ERF_IS_1 = {"float": 4.0, "double": 6.0}


def erf(c: Code, x: Num) -> Num:
    size = abs(x)
    square = size * size
    small = c.fma(size, c.polynomial(square, coefficients.ERF[c.format.type]), size)
    limit = _ERF_IS_1[c.format.type]
    t = c.choose(size > limit, limit, size) - 2.0
    p, _, power = reduced(c, c.polynomial(t, coefficients.ERFC[c.format.type]))
    scale = c.power_of_two(power)
    large = 1.0 - c.fma(scale, p, scale)
    return c.choose(size < _SPLIT, small, large).sign_of(x)
