"""Elementary functions of float32 by the approximations that a GPU has instructions for.

`EXACT_ENOUGH` are within 4 units in the last place by their documented errors: a reciprocal square root is off by at
most 2**-22.4 relative, 3.1 units (PTX ISA), 2**x by 2 units (CUDA's exp2f is that instruction: CUDA C++ Programming
Guide, "Mathematical Functions"). The others (`FAST`) are for `fast-math`: exp(x) is off by 2**-22 relative and by what
rounding x * log2(e) makes of it, log2(x) by 2**-22 absolute near 1, tanh by 2**-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcc.targets.llvm.codegen.vmath.ops import Code, Num

_LOG2_E = 1.4426950408889634
_LOG2_E_PARTS = (
    1.44269502162933349609375,
    1.925963033500011e-08,
)  # the first is less: both have the sign of infinities
_MAGIC = 1.5 * 2.0**23 + 127.0  # added to a number below 2**22, leaves its nearest integer, plus 127, in the last bits
_LN2 = 0.6931471805599453
_LOG10_2 = 0.3010299956639812
_LOG2_10 = 3.321928094887362


def _approx(c: Code, name: str, x: Num) -> Num:
    assert c.lanes == 1 and c.format.bits == 32
    return Num(c, c.fn.call("float", c.fn.module.declare(f"llvm.nvvm.{name}", "float", ["float"]), [x.v]))


def _rsqrt(c: Code, x: Num) -> Num:
    return _approx(c, "rsqrt.approx.f", x)


def _exp2(c: Code, x: Num) -> Num:
    return _approx(c, "ex2.approx.f", x)


def _exp(c: Code, x: Num) -> Num:
    """2**n * 2**f: n is the integer nearest x * log2(e) that is the exponent of a normal number, and f what is left of
    the product, in two parts, so that it is rounded only once it is small. Where n is at an end, f goes on: to
    infinity, and to denormals, which the last multiplication rounds. NaN and infinities pass through f."""
    high, low = _LOG2_E_PARTS
    moved = c.fma(x, high, _MAGIC)
    moved = c.intrinsic("minnum", c.intrinsic("maxnum", moved, c.number(_MAGIC - 126.0)), c.number(_MAGIC + 127.0))
    f = c.fma(x, low, c.fma(x, high, -(moved - _MAGIC)))
    return _approx(c, "ex2.approx.ftz.f", f) * (moved.as_bits() << c.format.fraction).as_number()


def _sigmoid_exactly(c: Code, x: Num) -> Num:
    """1 / (1 + exp(-x)), by exp(-|x|): nothing overflows, and what is small keeps its digits."""
    small = _exp(c, -abs(x))
    return c.choose(x < 0.0, small, 1.0) / (small + 1.0)


def _log2(c: Code, x: Num) -> Num:
    return _approx(c, "lg2.approx.f", x)


def _reciprocal(c: Code, x: Num) -> Num:
    return _approx(c, "rcp.approx.ftz.f", x)


def _sigmoid(c: Code, x: Num) -> Num:
    return _reciprocal(c, _exp2(c, x * -_LOG2_E) + 1.0)


def _tanh(c: Code, x: Num) -> Num:
    """2 * sigmoid(2 x) - 1, which unlike the instruction keeps 20 bits."""
    return c.fma(_reciprocal(c, _exp2(c, x * (-2.0 * _LOG2_E)) + 1.0), 2.0, -1.0)


EXACT_ENOUGH: Mapping[str, Callable[..., Num]] = {
    "rsqrt": _rsqrt, "exp": _exp, "exp2": _exp2, "sigmoid": _sigmoid_exactly,
}  # fmt: skip
FAST: Mapping[str, Callable[..., Num]] = {
    **EXACT_ENOUGH, "exp": lambda c, x: _exp2(c, x * _LOG2_E),
    "exp10": lambda c, x: _exp2(c, x * _LOG2_10), "log2": _log2, "log": lambda c, x: _log2(c, x) * _LN2,
    "log10": lambda c, x: _log2(c, x) * _LOG10_2, "sigmoid": _sigmoid, "tanh": _tanh,
    "sqrt": lambda c, x: _approx(c, "sqrt.approx.f", x),
}  # fmt: skip
