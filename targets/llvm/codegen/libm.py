"""The functions that generated code may call without asking: libm's scalars and the memory functions of libc.

The loader of objects resolves these names and no others (besides what the user allows).
"""

from __future__ import annotations

_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp10",
    "exp2", "expm1", "fabs", "floor", "lgamma", "log", "log10", "log1p", "log2", "nearbyint", "rint", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_BINARY = ("atan2", "copysign", "fdim", "fmax", "fmin", "fmod", "hypot", "nextafter", "pow", "remainder")


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for suffix, type in (("", "double"), ("f", "float")):
        table.update({f"{name}{suffix}": (type, type) for name in _UNARY})
        table.update({f"{name}{suffix}": (type, type, type) for name in _BINARY})
        table[f"fma{suffix}"] = (type, type, type, type)
        table[f"ldexp{suffix}"] = (type, type, "i32")
    return table


# name -> LLVM types: result, then parameters
LIBM: dict[str, tuple[str, ...]] = _table()

# what LLVM itself may call for an instruction, besides LIBM
SUPPORT: frozenset[str] = frozenset({"memcpy", "memmove", "memset", "memcmp", "bcmp", "sincos", "sincosf"})

# what a kernel with temporaries of sizes known only at run time calls
HEAP: frozenset[str] = frozenset({"malloc", "free"})

# every symbol that an object may leave undefined, allowed externs aside
ALLOWED: frozenset[str] = frozenset(LIBM) | SUPPORT | HEAP
