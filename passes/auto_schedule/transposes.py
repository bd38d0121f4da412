"""Kernels that read along one axis and store along another: transposes, other layouts, and what is computed on the way.

Blocks of both axes, as wide as a line of the cache, so that what is read and what is stored are whole lines. Code
generation turns them in registers (`lowering/register_transpose`).
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import owned, share_out, spatial_nest, vector_place, worth_threads
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV


def transposes(kernel: Kernel) -> str:
    """The rule: stages that cross their data in blocks, others as they are."""
    for stage in kernel.stages():
        if stage.reduced or not stage.plain:
            not_this(f"block `{stage.block.name}` reduces, or does more than store expressions")
    inline_cheap(kernel)
    crossed = [(block, crossing(kernel.stage(block))) for block in kernel.blocks()]
    if not any(pair for _, pair in crossed):
        not_this("no block reads along another axis than it stores")
    for block, pair in crossed:
        if pair is None:
            kernel.say(spatial_nest(kernel, block))
        else:
            _in_blocks(kernel, block, *pair)
    return "stores along another axis than it reads"


def crossing(stage: Stage) -> tuple[int, int] | None:
    """Return the loop along which a stage stores and another along which it reads; None if it does not transpose."""
    free = [n for n in range(len(stage.loops)) if owned(stage, n)]
    store = vector_place(stage, free)
    if store is None or len(free) != len(stage.loops):
        return None
    steps = stage.steps_by(store)
    for place in reversed(free):
        if place == store or stage.extents[place] == 1:
            continue
        for along, across in zip(stage.steps_by(place), steps, strict=True):
            if along == 1 and (across is None or across > MOST_STEP):
                return store, place
    return None


MOST_STEP = 4  # elements between those that a vector is still put together from by a few loads


def _in_blocks(kernel: Kernel, block: BlockRV, store: int, read: int) -> None:
    """Block after block along whichever axis is longer: that makes streams, of as many rows as a block has."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    many = worth_threads(kernel, stage)
    line = max(kernel.facts.line_bytes // stage.element_bytes, 2)
    stored, loaded = alike(stage, store, read), alike(stage, read, store)
    outer = [loop for n, loop in enumerate(loops) if n not in (*stored, *loaded)]
    sch.reorder(*outer, *(loops[n] for n in (*loaded, *stored)))
    along, across = kernel.fused([loops[n] for n in loaded]), kernel.fused([loops[n] for n in stored])
    reads, stores = stage.times(loaded), stage.times(stored)
    columns = kernel.choose("columns", "elements that a block stores side by side", _sizes(stores, line))
    rows = kernel.choose("rows", "elements that a block reads side by side", _sizes(reads, line))
    far, near = sch.split(across, [None, columns])
    strip, row = sch.split(along, [None, rows])
    stored_first = stores is None or reads is not None and reads <= stores
    stored_first = kernel.either("stored_first", "blocks go along what is stored first", stored_first)
    first, second = (strip, far) if stored_first else (far, strip)
    sch.reorder(*outer, first, second, row, near)
    sch.vectorize(near)
    kernel.say(f"`{stage.block.name}`: blocks of {line} x {line}")
    if many:
        share_out(kernel, [*outer, first, second])


def alike(stage: Stage, place: int, other: int) -> list[int]:
    """The loops that may as well be one with a loop, outermost first: everything lies alike along them."""
    group = [place]
    for n in reversed(range(place)):
        if n == other or not stage.fusable(n, group[0]):
            break
        group.insert(0, n)
    return group


def _sizes(size: int | None, line: int) -> list[int]:
    """Return the candidate extents of a block along an axis, best guess first."""
    others = (_part(size, n) for n in (2 * line, line // 2, line // 4) if n > 1)
    return list(dict.fromkeys((_part(size, line), *others)))


def _part(size: int | None, most: int) -> int:
    """Return the extent of a block along an axis: a cache line, or half of one if that leaves no tail.

    Short axes round up to a power of two.
    """
    if size is None:
        return most
    if size % most and size % (most // 2) == 0:
        return max(most // 2, 1)
    return min(most, 1 << max(size - 1, 0).bit_length())
