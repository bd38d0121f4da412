"""unsafe_compute_in: the arithmetic of a block on narrow floats in wider ones."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import has_block
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.wide_floats import WideFloats, is_narrow
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def unsafe_compute_in(state: State, block: BlockRef, dtype: str) -> None:
    """Compute what a block computes in float16, bfloat16 or 8-bit floats in a wider float: elements are cast as they
    are loaded, and results rounded once, as they are stored, in the place of every operation: they may be more exact.

    Before:  C[vi] = A[vi] * B[vi] + A[vi]                                                       # float16
    After:   C[vi] = T.Cast("float16", T.Cast("float32", A[vi]) * T.Cast("float32", B[vi]) + T.Cast("float32", A[vi]))

    Refused for what is no float of 32 or 64 bits (E0683), for a block with blocks in it (E0643), and where such a
    number becomes an integer, which less rounding may make another one (E0691). TVM has no such primitive.
    """
    old = block.block
    to = DType.of(dtype) if dtype in ("float32", "float64") else None
    if to is None:
        raise Refusal("E0683", f"{dtype!r} is not a wide float type", help='"float32" or "float64"')
    if has_block(old.body) or has_block(old.init or ()):
        raise Refusal("E0643", f"block `{old.name}` contains other blocks; only innermost blocks can be changed", old)
    for node in walk((*old.body, *(old.init or ()))):
        if isinstance(node, tir.Cast) and is_narrow(node.value.dtype) and not node.dtype.is_float:
            raise Refusal("E0691", f"block `{old.name}` converts {node.value.dtype} to {node.dtype}: `{node}`", old)
    wide = WideFloats(to)
    body, init = wide.body(old.body), None if old.init is None else wide.body(old.init)
    edit = Rebuild(block.tree)
    edit.put_block(old, replace(old, body=body, init=init))
    state.update(block.func_name, edit)
