"""cache_inplace: a block that updates a buffer works on a copy of it in other memory."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis import scope_root
from mlcc.passes.schedule.bindings import bindings
from mlcc.passes.schedule.buffers import BufferArg, listing, region_of
from mlcc.passes.schedule.cache import check_readers_covered
from mlcc.passes.schedule.cache_stage import Stage, copy_stage, in_scope
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.retarget import Retarget
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def cache_inplace(state: State, block: BlockRef, read_buffer_index: BufferArg, storage_scope: str) -> list[BlockRef]:
    """Let a block that reads and writes a buffer do so in a cache: copied in right before it, and out right behind it.

    Before:  f(A[0:64])
    After:   for ax0 in T.serial(64): A_local[v0] = A[v0]        # the block "A_local"
             f(A_local[0:64])
             for ax0 in T.serial(64): A[v0] = A_local[v0]        # another block "A_local"

    Returns both copying blocks. Refused for a buffer that the block does not both read and write (E0644), for an
    unknown scope (E0641), and if readers of the buffer read more than was written before (E0642).
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = read_buffer_index.of(node, "read")
    buffer = place.buffer
    state.recorded["read_buffer_index"] = place.index
    scope = scope_root(tree, node)
    check_readers_covered(tree, scope, buffer)
    read = region_of(node.reads, buffer, node)
    written = region_of(node.writes, buffer, node)
    assert read is not None
    if written is None:
        raise Refusal(
            "E0644", f"block `{node.name}` reads `{buffer.name}` and does not write it", node,
            f'{listing(node)}; to cache what is only read: `sch.cache_read("{node.name}", {place.index}, scope)`',
        )  # fmt: skip

    cache = in_scope(buffer, storage_scope)
    realize = tree.realize(node)
    copy_in = _guarded(realize, copy_stage(_outside(realize, read), buffer, cache, storage_scope, compact=False))
    copy_out = _guarded(realize, copy_stage(_outside(realize, written), cache, buffer, storage_scope, compact=False))
    inside = {n for n in walk(node) if isinstance(n, tir.Block)}
    retarget = Retarget(buffer, cache, takes=inside.__contains__, stores=True)
    edit = Rebuild(tree)
    at = realize
    edit.put(realize, retarget.visit(realize))
    edit.before(at, copy_in.nest)
    edit.after(at, copy_out.nest)
    edit.allocate(scope, cache)
    state.update(block.func_name, edit, reuse=retarget.reuse)
    return [state.block_ref(block.func_name, stage.block) for stage in (copy_in, copy_out)]


def _outside(realize: tir.BlockRealize, region: tir.BufferRegion) -> tir.BufferRegion:
    """The region over the loops around the block, in the place of its axes."""
    return substitute(region, bindings(realize))  # type: ignore[no-any-return]


def _guarded(realize: tir.BlockRealize, stage: Stage) -> Stage:
    """The stage with the predicate of the block that it serves, if that bounds loops on which the stage depends."""
    if not used_vars(realize.predicate) & used_vars(stage.nest):
        return stage
    return _with_predicate(stage, realize.predicate)


def _with_predicate(stage: Stage, predicate: tir.Expr) -> Stage:
    def inner(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For):
            return replace(stmt, body=tuple(inner(s) for s in stmt.body))  # type: ignore[no-any-return]
        return replace(stmt, predicate=predicate)  # type: ignore[no-any-return]

    return Stage(stage.block, inner(stage.nest))
