"""Scalars of a launch plan: compile JSON trees to functions of the values known so far.

Integers are exact. `Values` maps names to Python numbers; a floating-point operation rounds its result to its dtype.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from mlcc.errors import LoadError, error
from mlcc.runtime.manifest import DEPTH, OPERATORS

Values = dict[str, Any]
Compute = Callable[[Values], Any]


def _round16(value: float) -> float:
    return float(np.float16(value))


def _round32(value: float) -> float:
    return float(np.float32(value))


def _round_bf16(value: float) -> float:
    return bfloat16_value(bfloat16_bits(value))


def bfloat16_bits(value: float) -> int:
    """Return the bits of the nearest bfloat16, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):
        word: int = struct.unpack("<I", np.float32(value).tobytes())[0]
    if value != value:
        return word >> 16 | 0x40
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16


def bfloat16_value(bits: int) -> float:
    """Return the value of a bfloat16's bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


ROUND: dict[str, Callable[[float], float]] = {
    "float16": _round16, "bfloat16": _round_bf16, "float32": _round32, "float64": float,
}  # fmt: skip
# name -> number of operands, function of float64
MATH: dict[str, tuple[int, Callable[..., Any]]] = {
    "exp": (1, np.exp), "exp2": (1, np.exp2), "log": (1, np.log), "log2": (1, np.log2), "log10": (1, np.log10),
    "sqrt": (1, np.sqrt), "sin": (1, np.sin), "cos": (1, np.cos), "tan": (1, np.tan), "tanh": (1, np.tanh),
    "floor": (1, np.floor), "ceil": (1, np.ceil), "trunc": (1, np.trunc), "nearbyint": (1, np.rint),
    "fabs": (1, np.fabs), "pow": (2, np.power), "rsqrt": (1, lambda x: 1 / np.sqrt(x)),
    "fadd": (2, np.add), "fsub": (2, np.subtract), "fmul": (2, np.multiply), "fdiv": (2, np.divide),
    "fmin": (2, lambda a, b: a if a <= b or a != a else b), "fmax": (2, lambda a, b: a if a >= b or a != a else b),
}  # fmt: skip
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "f<": lambda a, b: a < b, "f<=": lambda a, b: a <= b, "f==": lambda a, b: a == b, "f!=": lambda a, b: a != b,
}  # fmt: skip


def damaged(reason: str) -> LoadError:
    """Return the error for an invalid launch plan."""
    return LoadError(
        error("E0869", f"the launch plan is not valid: {reason}", help="compile the artifact again with this mlcc")
    )


def constant(tree: Any) -> int | None:
    """Return the value of a constant integer tree; None for other trees."""
    return tree if isinstance(tree, int) and not isinstance(tree, bool) else None


def compute(tree: Any, names: Collection[str], depth: int = 0) -> Compute:
    """Compile a tree over `names` to a function of the values. Raises LoadError E0869."""
    if isinstance(tree, int) and not isinstance(tree, bool) and abs(tree) < 1 << 64:
        return lambda values: tree
    if isinstance(tree, str) and tree in names:
        return lambda values: values[tree]
    if not isinstance(tree, list) or not tree or not isinstance(tree[0], str) or depth > 4 * DEPTH:
        raise damaged("it has a malformed scalar")
    word, count = tree[0], len(tree) - 1
    if word in OPERATORS and count == 2:
        apply, a, b = OPERATORS[word], compute(tree[1], names, depth + 1), compute(tree[2], names, depth + 1)
        return lambda values: apply(a(values), b(values))
    if word in _COMPARE and count == 2:
        test, a, b = _COMPARE[word], compute(tree[1], names, depth + 1), compute(tree[2], names, depth + 1)
        return lambda values: int(test(a(values), b(values)))
    if word == "select" and count == 3:
        test_, a, b = (compute(t, names, depth + 1) for t in tree[1:])
        return lambda values: a(values) if test_(values) else b(values)
    if word == "trunc" and count == 1:
        inner = compute(tree[1], names, depth + 1)
        return lambda values: _to_int(inner(values))
    if count >= 1 and tree[1] in ROUND:
        return _float(word, ROUND[tree[1]], tree[2:], names, depth)
    raise damaged(f"it has the scalar operation `{word}` of {count}")


def _float(
    word: str, rounded: Callable[[float], float], operands: list[Any], names: Collection[str], depth: int
) -> Compute:
    """Compile an operation with a dtype."""
    if word == "float" and len(operands) == 1 and isinstance(operands[0], str):
        try:
            value = float.fromhex(operands[0])
        except (ValueError, OverflowError):
            raise damaged(f"`{operands[0]}` is no number") from None
        return lambda values: value
    parts = [compute(t, names, depth + 1) for t in operands]
    if word == "round" and len(parts) == 1:
        return lambda values: _apply_rounded(rounded, float, parts, values)
    operation = MATH.get(word)
    if operation is None or operation[0] != len(parts):
        raise damaged(f"it has the scalar operation `{word}`")
    apply = operation[1]
    return lambda values: _apply_rounded(rounded, apply, parts, values)


def _apply_rounded(
    rounded: Callable[[float], float], apply: Callable[..., Any], parts: list[Compute], values: Values
) -> float:
    """Return the rounded result; overflow gives infinity and undefined results NaN, as on a device."""
    with np.errstate(all="ignore"):
        return rounded(apply(*(np.float64(p(values)) for p in parts)))


def _to_int(value: float) -> int:
    return int(value) if np.isfinite(value) else 0
