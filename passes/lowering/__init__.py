"""TensorIR with blocks to plain loop code, one small step per module.

What comes out has no blocks, no thread bindings, one index per buffer access, explicit vectors in place of vectorized
loops, and allocations as statements. It is TensorIR still: it prints, and the interpreter runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.arith.empty_reduction import with_empty_inits
from mlcc.ir import tir
from mlcc.ir.deep import deep_recursion
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.crossings import turn_crossings
from mlcc.passes.lowering.divisions import simplify_divisions
from mlcc.passes.lowering.edges import split_edges
from mlcc.passes.lowering.flatten import flatten_buffers
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.realize import realize_blocks
from mlcc.passes.lowering.threads import serial_threads
from mlcc.passes.lowering.unroll import unroll_loops
from mlcc.passes.lowering.vectorize import vectorize_loops

__all__ = ["LowerOptions", "lower_func"]


def lower_func(
    func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None, options: LowerOptions | None = None
) -> tir.PrimFunc:
    """The loop code of a function; `functions` are the PrimFuncs that it may call. Raises CompileError."""
    options = options or LowerOptions()
    with deep_recursion():
        func = simplify_divisions(realize_blocks(with_empty_inits(func)))
        func = compact_buffers(serial_threads(func))
        func = flatten_buffers(func, functions or {})
        func = split_edges(func, options.edge_limit)
        func = vectorize_loops(func, options)
        func = turn_crossings(func, options)
        return unroll_loops(func, options.unroll_limit)
