"""asinh, acosh, atanh by log1p, without cancellation near 0."""

from __future__ import annotations

import math

from mlcc.targets.llvm.codegen.vmath.exponentials import LN2
from mlcc.targets.llvm.codegen.vmath.logarithms import log1p
from mlcc.targets.llvm.codegen.vmath.ops import Code, Num


def asinh(c: Code, x: Num) -> Num:
    """log(x + sqrt(x**2 + 1)) of |x|; beyond 2**fraction that is log(2 x)."""
    size = abs(x)
    big = size > 2.0**c.format.fraction
    square = size * size
    near = size + square / (c.intrinsic("sqrt", square + 1.0) + 1.0)
    return (log1p(c, c.choose(big, size, near)) + c.choose(big, LN2[0], 0.0)).sign_of(x)


def acosh(c: Code, x: Num) -> Num:
    """log(x + sqrt(x**2 - 1)) by t = x - 1."""
    big = x > 2.0**c.format.fraction
    t = x - 1.0
    near = t + c.intrinsic("sqrt", t * (t + 2.0))
    value = log1p(c, c.choose(big, x, near)) + c.choose(big, LN2[0], 0.0)
    return c.choose(x < 1.0, math.nan, value)


def atanh(c: Code, x: Num) -> Num:
    """log((1 + x) / (1 - x)) / 2 of |x|."""
    size = abs(x)
    return (log1p(c, (size + size) / (1.0 - size)) * 0.5).sign_of(x)
