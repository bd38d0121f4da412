"""Where a block may be computed: what `sample_compute_location` chooses from."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind
from mlcc.passes.schedule.analysis.scope import consumers
from mlcc.passes.schedule.primitives.inline import can_inline
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.state import BlockRef
from mlcc.passes.schedule.tree import Tree


def compute_locations(block: BlockRef) -> list[tuple[int, tir.For | None]]:
    """The legal places in order of their decisions: -2 for inlining, -1 for staying, else the index of a loop of the
    first consumer.

    As in TVM, loops of one iteration, spatial loops below others, and what is below the last spatial loop are left out:
    computing there would only repeat work.
    """
    places: list[tuple[int, tir.For | None]] = []
    if can_inline(block.state.copy(), block):
        places.append((-2, None))
    places.append((-1, None))
    tree = block.tree
    readers = consumers(tree, block.block)
    boundary = _boundary(tree, readers)
    if boundary is None:
        return places
    loops = tree.loops_above(readers[0])
    loops = loops[: loops.index(boundary) + 1]
    spatial = [loop_iter_kind(tree, loop) is tir.IterKind.SPATIAL for loop in loops]
    last_spatial = max((i for i, yes in enumerate(spatial) if yes), default=-1)
    below_other = False
    for index, loop in enumerate(loops):
        if tir.const_int(loop.extent) == 1:
            continue
        if spatial[index]:
            if below_other:
                break
        else:
            below_other = True
            if index > last_spatial:
                break
        if _can_compute_at(block, loop):
            places.append((index, loop))
    return places


def _boundary(tree: Tree, readers: list[tir.Block]) -> tir.For | None:
    """The innermost loop around all readers, if they share one in their scope."""
    if not readers:
        return None
    for at in tree.ancestors(tree.realize(readers[0])):
        if all(tree.is_under(tree.realize(r), at) for r in readers):
            return at if isinstance(at, tir.For) else None
    return None


def _can_compute_at(block: BlockRef, loop: tir.For) -> bool:
    from mlcc.passes.schedule.primitives.compute_at import compute_at

    trial = block.state.copy()
    try:
        compute_at(
            trial, trial.block_ref(block.func_name, block.block), trial.loop_ref(block.func_name, loop.var), True
        )
    except Refusal:
        return False
    return True
