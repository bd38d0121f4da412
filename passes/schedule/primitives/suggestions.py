"""Suggestions of legal locations for a block, as steps to copy, when the requested location is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.scope import consumers, producers
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Tree

_MAX_SUGGESTIONS = 3
_CODES = frozenset({"E0645", "E0646", "E0648", "E0649", "E0650", "E0651", "E0656", "E0658"})


@contextmanager
def suggesting_places(state: State, ref: BlockRef, reverse: bool) -> Iterator[None]:
    """Add legal places for the block to refusals inside that suggest nothing.

    `reverse`: those near its producers come first, else those near its consumers.
    """
    try:
        yield
    except Refusal as refusal:
        if refusal.help is None and refusal.code in _CODES:
            refusal.help = legal_places(state, ref, reverse)
        raise


def legal_places(state: State, ref: BlockRef, reverse: bool) -> str | None:
    """Return a few legal steps that move or inline the block, as text; None if there are none."""
    if ref.tree.scope(ref.block) is None:
        return None
    steps = list(islice(_legal_steps(state, ref, reverse), _MAX_SUGGESTIONS))
    return f"legal would be {' or '.join(f'`{m}`' for m in steps)}" if steps else None


def _legal_steps(state: State, ref: BlockRef, reverse: bool) -> Iterator[str]:
    for backward in (reverse, not reverse):
        yield from _legal_loops(state, ref, backward)
        if _can_be_inlined(ref, backward):
            yield f"sch.{'reverse_' * backward}compute_inline({block_text(ref.tree, ref.block)})"


def _legal_loops(state: State, ref: BlockRef, reverse: bool) -> Iterator[str]:
    from mlcc.passes.schedule.primitives.compute_at import can_compute_at

    tree, name = ref.tree, "reverse_compute_at" if reverse else "compute_at"
    for other in (producers if reverse else consumers)(tree, ref.block)[:1]:
        loops = tree.loops_above(other)
        for at in reversed(range(len(loops))):
            if can_compute_at(ref, LoopRef(state, ref.func_name, loops[at]), reverse=reverse):
                yield f"sch.{name}({block_text(tree, ref.block)}, {loop_text(tree, other, at)})"


def _can_be_inlined(ref: BlockRef, reverse: bool) -> bool:
    from mlcc.passes.schedule.primitives.inline import can_inline, can_reverse_inline

    return can_reverse_inline(ref) if reverse else can_inline(ref.state, ref)


def block_text(tree: Tree, block: tir.Block) -> str:
    """A block as an argument."""
    return f'"{block.name}"' if len(tree.blocks_named(block.name)) == 1 else f"<block {block.name}>"


def loop_text(tree: Tree, block: tir.Block, at: int) -> str:
    """A loop around a block as an argument."""
    return f"sch.get_loops({block_text(tree, block)})[{at}]"
