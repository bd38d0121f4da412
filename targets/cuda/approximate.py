"""Elementary functions of float32 by the GPU's approximation instructions.

`EXACT_ENOUGH` are within 4 ULP by their documented errors: a reciprocal square root has a relative error of at most
2**-22.4, 3.1 ULP (PTX ISA), 2**x one of 2 ULP (CUDA's exp2f is that instruction: CUDA C++ Programming Guide,
"Mathematical Functions"). `FAST` are for `fast-math`: exp(x) has a relative error of 2**-22 plus that of rounding
x * log2(e), log2(x) an absolute error of 2**-22 near 1, tanh one of 2**-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcc.targets.llvm.codegen.vmath.ops import Code, Num

_LOG2_E = 1.4426950408889634
_LOG2_E_PARTS = (
    1.44269502162933349609375,
    1.925963033500011e-08,
)  # rounded down, so that both parts are positive: with opposite signs infinities would give NaN
_MAGIC = (
    1.5 * 2.0**23 + 127.0
)  # x + _MAGIC has the integer nearest x, plus the exponent bias 127, in its low bits (|x| < 2**22)
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
    """exp(x) = 2**n * 2**f: n is the nearest integer to x * log2(e), clamped to exponents of normal numbers.

    f is the remainder, computed with log2(e) in two parts so that it is rounded only when it is small. If n is clamped,
    f continues to infinity or to denormals, which the last multiplication rounds. NaN and infinities pass through f.
    """
    high, low = _LOG2_E_PARTS
    scaled = c.fma(x, high, _MAGIC)
    scaled = c.intrinsic("minnum", c.intrinsic("maxnum", scaled, c.number(_MAGIC - 126.0)), c.number(_MAGIC + 127.0))
    f = c.fma(x, low, c.fma(x, high, -(scaled - _MAGIC)))
    return _approx(c, "ex2.approx.ftz.f", f) * (scaled.as_bits() << c.format.fraction).as_number()


def _sigmoid_exactly(c: Code, x: Num) -> Num:
    """1 / (1 + exp(-x)) by exp(-|x|): no overflow, and full relative precision of small results."""
    small = _exp(c, -abs(x))
    return c.choose(x < 0.0, small, 1.0) / (small + 1.0)


def _log2(c: Code, x: Num) -> Num:
    return _approx(c, "lg2.approx.f", x)


def _reciprocal(c: Code, x: Num) -> Num:
    return _approx(c, "rcp.approx.ftz.f", x)


def _sigmoid(c: Code, x: Num) -> Num:
    return _reciprocal(c, _exp2(c, x * -_LOG2_E) + 1.0)


def _tanh(c: Code, x: Num) -> Num:
    """2 * sigmoid(2 x) - 1, which has 20 correct bits, more than the instruction `tanh.approx`."""
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
