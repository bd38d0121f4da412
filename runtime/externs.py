"""The C symbols that an object may use without being asked: mathematics, memory, and the compiler's own helpers."""

from __future__ import annotations

import ctypes

_MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod",
    "frexp", "hypot", "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint",
    "lround", "modf", "nearbyint", "nextafter", "pow", "remainder", "rint", "round", "roundeven", "scalbln",
    "scalbn", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_MEMORY = (
    "aligned_alloc", "bcmp", "calloc", "free", "malloc", "memchr", "memcmp", "memcpy", "memmove", "memset", "strcmp",
    "strlen",
)  # fmt: skip
_HELPERS = (
    "__extendhfdf2", "__extendhfsf2", "__gnu_f2h_ieee", "__gnu_h2f_ieee", "__truncdfbf2", "__truncdfhf2",
    "__truncsfbf2", "__truncsfhf2", "__divti3", "__modti3", "__multi3", "__udivti3", "__umodti3",
)  # fmt: skip
ALLOWED = frozenset((*_MATH, *(f"{name}f" for name in _MATH), *_MEMORY, *_HELPERS))
# what the thread pool of an object with parallel loops uses besides
POOL = frozenset(("clock_gettime", "getenv", "pthread_create", "sched_getcpu", "syscall"))
# what an object with kernels in versions asks for the CPU and for the variable that names one
VERSIONS = frozenset(("getauxval", "secure_getenv"))

_LIBRARIES = ("libm.so.6", None, "libgcc_s.so.1")  # None: the process itself, which has libc


def address_of(name: str, allowed: frozenset[str] = ALLOWED) -> int | None:
    """The address of an allowed symbol in this process; None if it is not allowed or not there."""
    if name not in allowed:
        return None
    for library in _LIBRARIES:
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
