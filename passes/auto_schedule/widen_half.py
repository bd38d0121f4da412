"""Widening of float16 and bfloat16 before rules are tried: a kernel computes in float32 internally.

Sums and intermediate results stay float32, and only results for the caller are rounded, once. The script records this
(`unsafe_set_dtype`, `unsafe_compute_in`). Maxima, minima and copies do not round and stay as they are; so do kernels
that convert such numbers to integers, since less rounding might change these.
"""

from __future__ import annotations

from typing import Any

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import has_block
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import AnyKernel
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.rewrite.wide_floats import is_narrow

WIDE = "float32"
_EXACT_OPS = (tir.Max, tir.Min, tir.CompareOp)
_EXACT_CALLS = (tir.Op("tir.if_then_else"), tir.Op("tir.assume_number"), tir.Op("tir.allow_reciprocal"))


def compute_halves_in_float32(kernel: AnyKernel[Any]) -> bool:
    """Compute half precision in float32 within a kernel, to round less often; return True if anything changed."""
    sch = kernel.sch
    stages = kernel.stages()
    if not any(map(_rounds_intermediates, stages)) or any(map(_converts_to_integers, stages)):
        return False
    chosen = [block for block in kernel.blocks() if _rounds_intermediates(kernel.stage(block))]
    for block in chosen:
        stage = kernel.stage(block)
        if stage.reduced and kernel.is_output(stage) and _one_narrow_store(stage):
            sch.cache_write(block, 0, "global")
        stage = kernel.stage(block)
        if _one_narrow_store(stage) and not kernel.is_output(stage):
            sch.unsafe_set_dtype(block, 0, WIDE)
    for block in chosen:
        sch.unsafe_compute_in(block, WIDE)
    if chosen:
        kernel.say("float16 and bfloat16 are computed in float32, and rounded where they are stored for the caller")
    return bool(chosen)


def _one_narrow_store(stage: Stage) -> bool:
    return len(stage.block.writes) == 1 and is_narrow(stage.block.writes[0].buffer.dtype)


def _converts_to_integers(stage: Stage) -> bool:
    return any(
        isinstance(n, tir.Cast) and is_narrow(n.value.dtype) and not n.dtype.is_float for n in walk(stage.block.body)
    )


def _rounds_intermediates(stage: Stage) -> bool:
    """Return True if a block rounds intermediate results to narrow floats."""
    rounds = False
    if has_block(stage.block.body):
        return False
    for node in walk((*stage.block.body, *(stage.block.init or ()))):
        is_narrow_expr = isinstance(node, tir.Expr) and is_narrow(node.dtype)
        is_exact = isinstance(node, _EXACT_OPS) or isinstance(node, tir.Call) and node.op in _EXACT_CALLS
        if is_narrow_expr and isinstance(node, (tir.BinaryOp, tir.Call)) and not is_exact:
            rounds = True
    return rounds


def widened_dtype(product: Contraction) -> str:
    """Return the type for copies of half-precision operands that are multiplied as float32; else ""."""
    operands = (product.lhs.buffer.dtype, product.rhs.buffer.dtype)
    return WIDE if str(product.stage.stores[0].buffer.dtype) == WIDE and any(map(is_narrow, operands)) else ""
