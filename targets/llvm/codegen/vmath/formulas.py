"""The formulas of all functions, by the names that `vmath` lists. Imported when code needs one of them."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.targets.llvm.codegen.vmath import (
    circular,
    errors,
    exponentials,
    hyperbolic,
    logarithms,
    more,
    powers,
    rounding,
)
from mlcc.targets.llvm.codegen.vmath.ops import Num

FORMULAS: dict[str, Callable[..., Num]] = {
    "exp": exponentials.exp, "exp2": exponentials.exp2, "exp10": exponentials.exp10, "sigmoid": exponentials.sigmoid,
    "tanh": exponentials.tanh, "sinh": exponentials.sinh, "cosh": exponentials.cosh, "erf": errors.erf,
    "log": logarithms.log, "log2": logarithms.log2, "log10": logarithms.log10, "log1p": logarithms.log1p,
    "sqrt": powers.sqrt, "rsqrt": powers.rsqrt, "atan": circular.atan, "asin": circular.asin, "acos": circular.acos,
    "sin": circular.sin, "cos": circular.cos, "tan": circular.tan,
    "asinh": hyperbolic.asinh, "acosh": hyperbolic.acosh, "atanh": hyperbolic.atanh,
    "pow": powers.pow, "hypot": powers.hypot, "atan2": circular.atan2, "fmod": rounding.fmod,
    "nextafter": rounding.nextafter,
    "floor": rounding.floor, "ceil": rounding.ceil, "trunc": rounding.trunc, "nearbyint": rounding.nearbyint,
    "expm1": more.expm1, "cbrt": more.cbrt, "round": more.round_away, "fdim": more.fdim, "fmin": more.fmin,
    "fmax": more.fmax,
    "fma": rounding.fma,
}  # fmt: skip
