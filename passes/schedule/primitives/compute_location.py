"""Legal places to compute a block, from which `sample_compute_location` chooses."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind
from mlcc.passes.schedule.analysis.scope import consumers
from mlcc.passes.schedule.primitives.compute_at import can_compute_at
from mlcc.passes.schedule.primitives.inline import can_inline
from mlcc.passes.schedule.state import BlockRef, LoopRef
from mlcc.passes.schedule.tree import Tree


def compute_locations(block: BlockRef) -> list[tuple[int, tir.For | None]]:
    """Return the legal places in order of their decisions.

    -2 is inlining, -1 staying, any other the index of a loop of the first consumer.
    """
    return [place for place in _places(block) if _is_legal(block, *place)]


def location_at(block: BlockRef, decision: int) -> tuple[int, tir.For | None]:
    """Return the last legal location up to a decision; if there is none, the block stays where it is."""
    before = [place for place in _places(block) if place[0] <= decision]
    return next((place for place in reversed(before) if _is_legal(block, *place)), (-1, None))


def _places(block: BlockRef) -> list[tuple[int, tir.For | None]]:
    """Return the candidate places.

    As in TVM, loops of one iteration, spatial loops below others, and what is below the last spatial loop are left out:
    computing there would only repeat work.
    """
    places: list[tuple[int, tir.For | None]] = [(-2, None), (-1, None)]
    tree = block.tree
    readers = consumers(tree, block.block)
    boundary = _innermost_common_loop(tree, readers)
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
        places.append((index, loop))
    return places


def _is_legal(block: BlockRef, decision: int, loop: tir.For | None) -> bool:
    if loop is None:
        return decision == -1 or can_inline(block.state.copy(), block)
    key = ("place", block.block, loop)
    if key not in block.tree.cache:
        place = LoopRef(block.state, block.func_name, loop)
        block.tree.cache[key] = can_compute_at(block, place, preserve_unit_loops=True)
    return block.tree.cache[key]  # type: ignore[no-any-return]


def _innermost_common_loop(tree: Tree, readers: list[tir.Block]) -> tir.For | None:
    """The innermost loop around all readers, if they share one in their scope."""
    if not readers:
        return None
    for at in tree.ancestors(tree.realize(readers[0])):
        if all(tree.is_under(tree.realize(r), at) for r in readers):
            return at if isinstance(at, tir.For) else None
    return None
