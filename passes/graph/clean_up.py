"""Cleanup after passes that replace parts of functions."""

from __future__ import annotations

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.passes.graph.canonicalize import canonical
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.eliminate_common_subexpr import deduplicated


def clean_up(func: relax.Function, module: IRModule) -> relax.Function:
    """Return the function without renamings, common subexpressions and dead bindings."""
    while True:
        cleaned = remove_unused(deduplicated(canonical(func, module), module), module)
        if cleaned is func:
            return func
        func = cleaned


def clean_up_rewritten(rewritten: relax.Function, func: relax.Function, module: IRModule) -> relax.Function:
    """Return the `rewritten` form of `func`, cleaned up as TVM's rewriter does.

    An unchanged function is cleaned up only if it has bindings outside dataflow blocks.
    """
    has_plain_blocks = any(not isinstance(block, relax.DataflowBlock) for block in func.body.blocks)
    return clean_up(rewritten, module) if has_plain_blocks or rewritten is not func else func
