"""Elementary functions of float32 by the approximations that a GPU has instructions for.

`EXACT_ENOUGH` are within 4 units in the last place by their documented errors (PTX ISA): a reciprocal square root is
off by at most 2**-22.4 relative, 3.1 units. The others (`FAST`) are for `fast-math`: 2**x is off by up to 2**-22
relative, which is 4 units and more with what comes before it, log2(x) by 2**-22 absolute near 1, tanh by 2**-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcc.targets.llvm.vmath.ops import Code, Num

_LOG2_E = 1.4426950408889634
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


def _log2(c: Code, x: Num) -> Num:
    return _approx(c, "lg2.approx.f", x)


def _reciprocal(c: Code, x: Num) -> Num:
    return _approx(c, "rcp.approx.ftz.f", x)


def _sigmoid(c: Code, x: Num) -> Num:
    return _reciprocal(c, _exp2(c, x * -_LOG2_E) + 1.0)


def _tanh(c: Code, x: Num) -> Num:
    """2 * sigmoid(2 x) - 1, which unlike the instruction keeps 20 bits."""
    return c.fma(_reciprocal(c, _exp2(c, x * (-2.0 * _LOG2_E)) + 1.0), 2.0, -1.0)


EXACT_ENOUGH: Mapping[str, Callable[..., Num]] = {"rsqrt": _rsqrt}
FAST: Mapping[str, Callable[..., Num]] = {
    **EXACT_ENOUGH, "exp": lambda c, x: _exp2(c, x * _LOG2_E), "exp2": _exp2,
    "exp10": lambda c, x: _exp2(c, x * _LOG2_10), "log2": _log2, "log": lambda c, x: _log2(c, x) * _LN2,
    "log10": lambda c, x: _log2(c, x) * _LOG10_2, "sigmoid": _sigmoid, "tanh": _tanh,
    "sqrt": lambda c, x: _approx(c, "sqrt.approx.f", x),
}  # fmt: skip
