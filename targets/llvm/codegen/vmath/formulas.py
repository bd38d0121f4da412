"""The formulas of all functions, by the names that `vmath` lists. Imported when code needs one of them."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.targets.llvm.codegen.vmath import (
    c_functions,
    error_function,
    exponentials,
    hyperbolic,
    logarithms,
    powers,
    rounding,
    trigonometric,
)
from mlcc.targets.llvm.codegen.vmath.ops import Num

FORMULAS: dict[str, Callable[..., Num]] = {
    "exp": exponentials.exp, "exp2": exponentials.exp2, "exp10": exponentials.exp10, "sigmoid": exponentials.sigmoid,
    "tanh": exponentials.tanh, "sinh": exponentials.sinh, "cosh": exponentials.cosh, "erf": error_function.erf,
    "log": logarithms.log, "log2": logarithms.log2, "log10": logarithms.log10, "log1p": logarithms.log1p,
    "sqrt": powers.sqrt, "rsqrt": powers.rsqrt, "atan": trigonometric.atan, "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "sin": trigonometric.sin, "cos": trigonometric.cos, "tan": trigonometric.tan,
    "asinh": hyperbolic.asinh, "acosh": hyperbolic.acosh, "atanh": hyperbolic.atanh,
    "pow": powers.pow, "hypot": powers.hypot, "atan2": trigonometric.atan2, "fmod": rounding.fmod,
    "nextafter": rounding.nextafter,
    "floor": rounding.floor, "ceil": rounding.ceil, "trunc": rounding.trunc, "nearbyint": rounding.nearbyint,
    "expm1": c_functions.expm1, "cbrt": c_functions.cbrt, "round": c_functions.round_away, "fdim": c_functions.fdim,
    "fmin": c_functions.fmin,
    "fmax": c_functions.fmax,
    "fma": rounding.fma,
}  # fmt: skip
