"""cache_inplace: a block that updates a buffer works on a copy of it in other memory."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import TRUE, IntImm, Range
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import bindings
from mlcc.passes.schedule.analysis.block_access import allocating_block
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.buffers import BufferArg, list_buffers, region_of
from mlcc.passes.schedule.primitives.cache import check_reads_covered
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import Stage, buffer_in_scope, copy_stage, stage_in_loops
from mlcc.passes.schedule.rewrite.retarget import Retarget
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def cache_inplace(state: State, block: BlockRef, read_buffer_index: BufferArg, storage_scope: str) -> list[BlockRef]:
    """Let a block read and write a buffer in a cache, which is filled right before the block and copied back right
    after it.

    Before:  f(A[0:64])
    After:   for ax0 in T.serial(64): A_local[v0] = A[v0]        # the block "A_local"
             f(A_local[0:64])
             for ax0 in T.serial(64): A[v0] = A_local[v0]        # another block "A_local"

    Returns both copying blocks. Refused for a buffer that the block does not both read and write (E0644), for an
    unknown scope (E0641), and if the block, or another reader of the buffer, reads more than was written before
    (E0642).
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = read_buffer_index.of(node, "read")
    buffer = place.buffer
    state.recorded["read_buffer_index"] = place.index
    scope = scope_root(tree, node)
    check_reads_covered(tree, scope, buffer)
    read = region_of(node.reads, buffer, node)
    written = region_of(node.writes, buffer, node)
    assert read is not None
    if written is None:
        raise Refusal(
            "E0644", f"block `{node.name}` reads `{buffer.name}` and does not write it", node,
            f'{list_buffers(node)}; to cache what is only read: `sch.cache_read("{node.name}", {place.index}, scope)`',
        )  # fmt: skip
    _check_filled(tree, node, buffer)

    cache = buffer_in_scope(buffer, storage_scope)
    realize = tree.realize(node)
    stages = []
    for region, source, target in ((read, buffer, cache), (written, cache, buffer)):
        outside = substitute(region, bindings(realize))  # over the loops around, in the place of the axes
        stage = copy_stage(outside, source, target, storage_scope, compact=False)
        stages.append(_guarded(tree, realize, stage, outside))
    copy_in, copy_out = stages
    inside = {n for n in walk(node) if isinstance(n, tir.Block)}
    retarget = Retarget(buffer, cache, applies_to=inside.__contains__, stores=True)
    edit = Rebuild(tree)
    edit.put(realize, retarget.visit(realize))
    edit.before(realize, copy_in.nest)
    edit.after(realize, copy_out.nest)
    edit.allocate(scope, cache)
    state.update(block.func_name, edit, reuse=retarget.reuse)
    return [state.block_ref(block.func_name, stage.block) for stage in (copy_in, copy_out)]


def _check_filled(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0642) an intermediate buffer that only `block` writes: nothing is in it when it is copied in.

    A block that stands further down writes it before if it shares a loop with `block`.
    """
    if allocating_block(tree, buffer) is None:
        return
    realize = tree.realize(block)
    own = {realize, *tree.ancestors(realize)}
    loops = tree.all_loops_above(realize)
    places = {id(one): at for at, one in enumerate(tree.realizes)}
    for other in tree.realizes:
        if other in own or tree.is_under(other, realize) or region_of(other.block.writes, buffer, other.block) is None:
            continue
        if places[id(other)] < places[id(realize)] or any(tree.is_under(other, loop) for loop in loops):
            return
    raise Refusal(
        "E0642", f"nothing writes `{buffer.name}` before block `{block.name}`, and the copy would read it", block,
        f'to write to a cache and not read from it: `sch.cache_write("{block.name}", "{buffer.name}", scope)`',
    )  # fmt: skip


def _has_constant_loops(condition: tir.Expr, loops: list[tir.For], tree: Tree, realize: tir.BlockRealize) -> bool:
    """Return True if the condition uses only loops of constant extent, so that it can be evaluated."""
    known = {o.var for o in (*tree.all_loops_above(realize), *loops) if tir.const_int(o.extent) is not None}
    return used_vars(condition) <= known


def _guarded(tree: Tree, realize: tir.BlockRealize, stage: Stage, region: tir.BufferRegion) -> Stage:
    """Return the stage under the predicate of the block, if that bounds its loops; refuse (E0643) one that may leave
    the buffer.
    """
    predicate = realize.predicate if used_vars(realize.predicate) & used_vars(stage.nest) else TRUE
    loops, inner = [], stage.nest
    while isinstance(inner, tir.For):
        loops.append(inner)
        (inner,) = inner.body
    assert isinstance(inner, tir.BlockRealize)
    analyzer = Analyzer()
    for loop in (*tree.all_loops_above(realize), *loops):
        analyzer.bind(loop.var, Range(loop.min, loop.extent))
    with analyzer.constraint(realize.predicate):
        for index, extent in zip(inner.values, region.buffer.shape, strict=True):
            for inside in (c.greater_equal(index, IntImm(index.dtype, 0)), c.less(index, extent)):
                if _has_constant_loops(inside, loops, tree, realize) and not analyzer.prove(inside):
                    raise Refusal(
                        "E0643", f"block `{realize.block.name}` uses `{region.buffer.name}` at {index}, which"
                        " may be outside of the buffer: a copy would go there, too", realize.block,
                    )  # fmt: skip
    if predicate is TRUE:
        return stage
    return stage_in_loops([(o.var, Range(o.min, o.extent)) for o in loops], replace(inner, predicate=predicate))
