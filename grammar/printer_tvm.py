"""What TVM 0.27 reads in another way: names that it changed, and calls that its functions would fold."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import Attrs

# These are expression nodes of their own in TVM; the functions of the usual names fold constants, the nodes do not.
NODES = {
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
    "shift_left": "LShift", "shift_right": "RShift",
}  # fmt: skip
_FOLDING = frozenset(["floor", "ceil", "trunc", "round", "nearbyint", "fabs", "if_then_else", "likely"])
_PRIM = frozenset(["if_then_else", "vscale", "log2", "likely", "clz", "ceil"])


def folds(name: str, args: tuple[tir.Expr, ...]) -> bool:
    """True if TVM's function of that name would compute the call at once."""
    return name in _FOLDING and bool(args) and isinstance(args[0], (tir.IntImm, tir.FloatImm))


def function_attributes(attrs: Attrs) -> Attrs:
    """Attributes of a function as TVM 0.27 calls them: `tir.noalias` is `tirx.noalias` there."""
    return Attrs({f"tirx.{k[4:]}" if k.startswith("tir.") else k: v for k, v in attrs.items()})


def full_name(name: str) -> str:
    """The operator's registered name, for `T.call_intrin`."""
    return f"{'prim' if name in _PRIM else 'tirx'}.{name}"
