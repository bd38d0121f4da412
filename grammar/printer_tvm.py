"""What TVM 0.27 reads in another way: names that it changed, and calls that its functions would fold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.ir.intrinsics import METAL
from mlcc.ir.node import Attrs

# These are expression nodes of their own in TVM; the functions of the usual names fold constants, the nodes do not.
NODES = {
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
    "shift_left": "LShift", "shift_right": "RShift",
}  # fmt: skip
NAMES = {name: f"metal.{name}" for name in METAL}
_PRIM = frozenset(["if_then_else", "vscale", "log2", "likely", "clz", "ceil"])


def function_attributes(attrs: Attrs) -> Attrs:
    """Attributes of a function as TVM 0.27 calls them: `tir.noalias` is `tirx.noalias` there."""
    return Attrs({f"tirx.{k[4:]}" if k.startswith("tir.") else k: v for k, v in attrs.items()})


def canonical_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a function as read, by their usual names."""
    return {f"tir.{k[5:]}" if k.startswith("tirx.") else k: v for k, v in attrs.items()}


def full_name(name: str) -> str:
    """The operator's registered name, for `T.call_intrin`."""
    return f"{'prim' if name in _PRIM else 'tirx'}.{name}"
