"""Differences of the TVM 0.27 dialect: renamed intrinsics, and calls that TVM's constructors would fold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.ir import tir
from mlcc.ir.intrinsics import METAL
from mlcc.ir.node import Attrs

# These are expression nodes of their own in TVM; the functions of the usual names fold constants, the nodes do not.
NODES = {
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
    "shift_left": "LShift", "shift_right": "RShift",
}  # fmt: skip
NAMES = {**{name: f"metal.{name}" for name in METAL}, "ptx_cp_async": "s_tir.cp_async_raw"}
# intrinsics of tensor cores, which take the dtype of their result by keyword there
LEGACY = {
    "ptx_mma": "ptx_legacy.mma", "ptx_ldmatrix": "ptx_legacy.ldmatrix", "mma_fill": "cuda.mma_fill_legacy",
    "mma_store": "cuda.mma_store_legacy",
}  # fmt: skip
WITHOUT_FUNCTION = frozenset(
    ["TVMBackendAnyListSetPackedArg", "TVMBackendAnyListMoveFromPackedReturn"]
)  # no function makes them
# instructions that are written as one name with the rest of it in strings behind the arguments
PTX = {"ptx_commit_group": ("async", "commit_group", ""), "ptx_wait_group": ("async", "wait_group", "")}
_PRIM = frozenset(["if_then_else", "vscale", "log2", "likely", "clz", "ceil"])


def folds(node: tir.BinaryOp) -> bool:
    """True for a product with the float 0 and a quotient of it, which TVM's operators take to be 0 whatever the other
    operand is."""
    zero = [isinstance(operand, tir.FloatImm) and operand.value == 0 for operand in (node.lhs, node.rhs)]
    return (isinstance(node, tir.Mul) and any(zero)) or (isinstance(node, tir.Div) and zero[0])


def function_attributes(attrs: Attrs) -> Attrs:
    """Attributes of a function as TVM 0.27 calls them: `tir.noalias` is `tirx.noalias` there."""
    return Attrs({f"tirx.{k[4:]}" if k.startswith("tir.") else k: v for k, v in attrs.items()})


def without_kind(attrs: Attrs) -> Attrs:
    """Attributes without the one that the decorator says: TVM 0.27 marks functions of blocks and loops `s_tir=True`."""
    return attrs if attrs.get("s_tir") is not False else Attrs({k: v for k, v in attrs.items() if k != "s_tir"})


def canonical_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a function as read, by their usual names."""
    return {f"tir.{k[5:]}" if k.startswith("tirx.") else k: v for k, v in attrs.items()}


def full_name(name: str) -> str:
    """The operator's registered name, for `T.call_intrin`."""
    return f"{'prim' if name in _PRIM else 'tirx'}.{name}"
