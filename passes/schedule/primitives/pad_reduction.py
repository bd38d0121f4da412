"""pad_reduction: a reduction over an axis rounded up to a multiple, the added part of which contributes nothing."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import calls, tir
from mlcc.ir import construct as c
from mlcc.ir.node import replace
from mlcc.passes.schedule.analysis.bindings import vars_of
from mlcc.passes.schedule.analysis.checks import (
    check_loop_starts_at_zero,
    check_reduction_block,
    check_single_child,
    scope_root,
)
from mlcc.passes.schedule.analysis.reducers import reduction_parts, reduction_statements
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def pad_reduction(state: State, loop: LoopRef, multiple: int) -> None:
    """Round the extent of a reduction loop up to a multiple, such as 200 to 256; the added iterations contribute the
    identity of the reduction and read nothing.

    A `split` by a factor of `multiple` then has no condition, so that `rfactor` of the inner loop gives partial results
    which are all there, for any length. Refused: a multiple that is not positive (E0673), a loop that does not drive
    one reduce axis from its first to its last value (E0674), a block that is no reduction (E0656), an unknown combiner
    (E0668, E0669). TVM has no such primitive; its `pad_einsum` copies the operands.
    """
    tree = loop.tree
    realize = check_single_child(tree, loop.loop)
    block, name = realize.block, loop.loop.var.name
    check_reduction_block(tree, block, scope_root(tree, block))
    check_loop_starts_at_zero(loop.loop)
    size = loop.loop.extent
    if not 0 < multiple < 1 << (size.dtype.bits - 1):
        raise Refusal("E0673", f"the multiple {multiple} must be positive and fit {size.dtype}", loop.loop)
    driven = [a for a, v in zip(block.iter_vars, realize.values, strict=True) if loop.loop.var in vars_of(v)]
    analyzer = Analyzer()
    axis = driven[0] if len(driven) == 1 else None
    at = block.iter_vars.index(axis) if axis is not None else 0
    if (
        axis is None
        or axis.kind is not tir.IterKind.REDUCE
        or realize.values[at] is not loop.loop.var
        or tir.const_int(axis.dom.min) != 0
        or not analyzer.prove_equal(axis.dom.extent, size)
        or loop.loop.var in vars_of(realize.predicate)
    ):
        message = f"loop `{name}` does not drive one reduce axis of block `{block.name}` over its whole domain"
        raise Refusal("E0674", message, (loop.loop, block))
    parts = reduction_parts(block)
    by = c.const(multiple, size.dtype)
    padded = analyzer.simplify(c.mul(c.floordiv(c.sub(c.add(size, by), 1), by), by))
    if analyzer.prove_equal(padded, size):
        return
    inside = c.less(axis.var, axis.dom.extent)
    rhs = tuple(calls.if_then_else(inside, r, e) for r, e in zip(parts.rhs, parts.reducer.identity, strict=True))
    body, init = reduction_statements(parts, parts.buffers, parts.indices, rhs)
    wider = replace(axis, dom=tir.Range(axis.dom.min, c.cast(axis.dom.extent.dtype, padded)))
    axes = tuple(wider if a is axis else a for a in block.iter_vars)
    padded_block = replace(block, iter_vars=axes, body=body, init=init)
    edit = Rebuild(tree)
    edit.put_block(block, padded_block)
    edit.amend(loop.loop, lambda at: replace(at, extent=padded))
    state.update(loop.func_name, edit)
