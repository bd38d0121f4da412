"""`compute_inline` and `reverse_compute_inline`: inline a stage into its consumers, or into its producer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.checks import check_complete_block, check_not_output, scope_root
from mlcc.passes.schedule.primitives.suggestions import suggesting_places
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.inline_consumer import ConsumerInlining, single_producer, single_read
from mlcc.passes.schedule.rewrite.inline_producer import ProducerInlining
from mlcc.passes.schedule.rewrite.inline_rewrite import ScopeRewriter, pointer_use
from mlcc.passes.schedule.rewrite.removal import removable_statement
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def compute_inline(state: State, block: BlockRef) -> None:
    """Replace every load of a block's buffer by what the block computes, and remove the block and the buffer.

    The block is complete, stores one expression to one intermediate buffer, at indices that are its axes or invert to
    them, and is not the only one of its scope. Refused otherwise (E0645, E0646, E0647, E0656, E0658, E0659).
    TVM: `compute_inline`.
    """
    with suggesting_places(state, block, reverse=False):
        inline_into_consumers(state, block)


@primitive()
def reverse_compute_inline(state: State, block: BlockRef) -> None:
    """Move a block's computation to where its only producer stores, and remove the block and the buffer between them.

    The block is complete, stores one expression, and reads one buffer that the scope computes; that buffer has one
    complete producer and no other reader; its indices determine the block's axes, and the producer reaches all of
    them. Where the producer computes more than the block takes, it gets a predicate. Refused otherwise (E0645, E0646,
    E0647, E0656, E0658, E0659). TVM: `reverse_compute_inline`.
    """
    with suggesting_places(state, block, reverse=True):
        inline_into_producer(state, block)


def inline_into_consumers(state: State, ref: BlockRef, check_only: bool = False) -> None:
    """Apply `compute_inline`; with `check_only`, only check it."""
    tree, block = ref.tree, ref.block
    scope, removed, inlining = _checked(tree, block)
    if not check_only:
        buffers = (block.writes[0].buffer,)
        _rewrite(state, ref, scope, (removed,), ScopeRewriter(buffers, (block,), tree, load=inlining.value_at))


def inline_all_into_consumers(state: State, refs: Sequence[BlockRef]) -> None:
    """Apply `compute_inline` to blocks of one scope, in one pass over it: what they compute may go into one another.

    That is the same as one after the other if each has one reader, which loads one element.
    """
    tree = refs[0].tree
    checked = [_checked(tree, ref.block) for ref in refs]
    at = {ref.block.writes[0].buffer: inlining for ref, (_, _, inlining) in zip(refs, checked, strict=True)}
    rewriter = ScopeRewriter(at, [ref.block for ref in refs], tree, load=lambda load: at[load.buffer].value_at(load))
    _rewrite(state, refs[0], checked[0][0], [removed for _, removed, _ in checked], rewriter)


def _checked(tree: Tree, block: tir.Block) -> tuple[tir.Block, tir.Stmt, ProducerInlining]:
    """Check `compute_inline`; return the scope, the statement to remove, and the value that replaces loads."""
    check_no_init(block)
    if len(block.writes) != 1:
        names = ", ".join(f"`{w.buffer.name}`" for w in block.writes)
        raise Refusal("E0645", f"block `{block.name}` must write one buffer, but writes {names or 'none'}", block)
    buffer = block.writes[0].buffer
    scope = scope_root(tree, block, require_stage_pipeline=True)
    check_not_output(tree, block, scope)
    check_complete_block(tree, block, scope)
    inlining = ProducerInlining(block, buffer)
    removed = removable_statement(tree, block)
    check_no_pointer_use(tree, scope, block, buffer)
    return scope, removed, inlining


def can_inline(state: State, ref: BlockRef) -> bool:
    """Return True if `compute_inline` would accept the block."""
    try:
        inline_into_consumers(state, ref, check_only=True)
    except Refusal:
        return False
    return True


def can_reverse_inline(ref: BlockRef) -> bool:
    """Return True if `reverse_compute_inline` would accept the block."""
    try:
        inline_into_producer(ref.state, ref, check_only=True)
    except Refusal:
        return False
    return True


def inline_into_producer(state: State, ref: BlockRef, check_only: bool = False) -> None:
    """Apply `reverse_compute_inline`; with `check_only`, only check it."""
    tree, block = ref.tree, ref.block
    check_no_init(block)
    scope = scope_root(tree, block, require_stage_pipeline=True)
    buffer = single_read(tree, block, scope)
    check_complete_block(tree, block, scope)
    producer = single_producer(tree, block, scope, buffer)
    check_not_output(tree, producer, scope)
    around = tree.loops_above(producer)
    inlining = ConsumerInlining(ref.realize, tree.loops_above(block), producer, buffer, around)
    removed = removable_statement(tree, block)
    check_no_pointer_use(tree, scope, block, buffer)
    if check_only:
        return
    rewriter = ScopeRewriter((buffer,), (block,), tree, store=inlining.store_for, realize=inlining.realize)
    _rewrite(state, ref, scope, (removed,), rewriter)


def _rewrite(
    state: State, ref: BlockRef, scope: tir.Block, removed: Iterable[tir.Stmt], rewriter: ScopeRewriter
) -> None:
    edit = Rebuild(ref.tree)
    rewriter.reuse = edit.reuse
    for stmt in removed:
        edit.put(stmt)
    edit.amend(scope, rewriter.scope)
    state.update(ref.func_name, edit)


def check_no_init(block: tir.Block) -> None:
    """Refuse (E0645) a block with an init, which accumulates."""
    if block.init is not None:
        axes = [a.var.name for a in block.iter_vars if a.kind is tir.IterKind.REDUCE]
        over = f" over {', '.join(f'`{a}`' for a in axes)}" if axes else ""
        raise Refusal(
            "E0645",
            f"block `{block.name}` has an init: it accumulates{over}, so its result is not a single expression",
            block,
        )


def check_no_pointer_use(tree: Tree, scope: tir.Block, block: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0646) a buffer whose address is taken in the scope."""
    user = pointer_use(tree, scope.body, buffer)
    if user is False:
        return
    where = f"block `{user.name}`" if isinstance(user, tir.Block) else "a statement of the scope"
    raise Refusal(
        "E0646",
        f"`{buffer.name}` cannot be removed: {where} uses it by pointer, or matches a region of it to another buffer",
        tuple(b for b in (block, user) if isinstance(b, tir.Block)),
    )
