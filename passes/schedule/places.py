"""Places to offer when a stage cannot go where it was asked to: loops, as they could be pasted."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.analysis import consumers, producers
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Tree

_OFFERED = 3


def legal_places(state: State, ref: BlockRef, reverse: bool = False) -> str | None:
    """Moves of a block that would be accepted, innermost loops first; None if there are none."""
    from mlcc.passes.schedule.compute_at import can_compute_at

    tree, name = ref.tree, "reverse_compute_at" if reverse else "compute_at"
    if tree.scope(ref.block) is None:
        return None
    made = []
    for other in (producers if reverse else consumers)(tree, ref.block)[:1]:
        loops = tree.loops_above(other)
        for at in reversed(range(len(loops))):
            if can_compute_at(ref, LoopRef(state, ref.func_name, loops[at]), reverse=reverse):
                made.append(f"sch.{name}({block_text(tree, ref.block)}, {loop_text(tree, other, at)})")
    if not made:
        return None
    more = f" (and {len(made) - _OFFERED} more)" if len(made) > _OFFERED else ""
    return f"legal would be {' or '.join(f'`{m}`' for m in made[:_OFFERED])}{more}"


def block_text(tree: Tree, block: tir.Block) -> str:
    """A block as an argument."""
    return f'"{block.name}"' if len(tree.blocks_named(block.name)) == 1 else f"<block {block.name}>"


def loop_text(tree: Tree, block: tir.Block, at: int) -> str:
    """A loop around a block as an argument."""
    return f"sch.get_loops({block_text(tree, block)})[{at}]"
