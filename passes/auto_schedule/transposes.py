"""Kernels that read along one axis and store along another: transposes, layout conversions, and fused elementwise work.

They run in blocks of both axes, as wide as a cache line, so that loads and stores touch whole lines. Code generation
transposes them in registers (`lowering/register_transpose`).
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import (
    is_worth_parallelizing,
    parallelize_outer,
    spatial_nest,
    stores_disjointly,
    vectorizable_loop,
)
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV


def transposes(kernel: Kernel) -> str:
    """Schedule stages that transpose their data in blocks, and the others as they are."""
    for stage in kernel.stages():
        if stage.reduced or not stage.plain:
            not_applicable(f"block `{stage.block.name}` reduces, or does more than store expressions")
    inline_cheap(kernel)
    loop_pairs = [(block, transposed_loops(kernel.stage(block))) for block in kernel.blocks()]
    if not any(pair for _, pair in loop_pairs):
        not_applicable("no block reads along one axis and stores along another")
    for block, pair in loop_pairs:
        if pair is None:
            kernel.say(spatial_nest(kernel, block))
        else:
            _schedule_blocks(kernel, block, *pair)
    return "reads along one axis and stores along another"


def transposed_loops(stage: Stage) -> tuple[int, int] | None:
    """Return the loop along which a stage stores and another along which it reads; None if it does not transpose."""
    disjoint = [n for n in range(len(stage.loops)) if stores_disjointly(stage, n)]
    store = vectorizable_loop(stage, disjoint)
    if store is None or len(disjoint) != len(stage.loops):
        return None
    steps = stage.steps_by(store)
    for position in reversed(disjoint):
        if position == store or stage.extents[position] == 1:
            continue
        for along, across in zip(stage.steps_by(position), steps, strict=True):
            if along == 1 and (across is None or across > MAX_GATHER_STRIDE):
                return store, position
    return None


MAX_GATHER_STRIDE = 4  # the largest stride at which a few loads still gather a vector


def _schedule_blocks(kernel: Kernel, block: BlockRV, store: int, read: int) -> None:
    """Schedule a transposing stage in blocks, traversed along the longer axis, which streams the rows of a block."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    parallel = is_worth_parallelizing(kernel, stage)
    line = max(kernel.facts.line_bytes // stage.element_bytes, 2)
    stored, loaded = fusable_loops(stage, store, read), fusable_loops(stage, read, store)
    outer = [loop for n, loop in enumerate(loops) if n not in (*stored, *loaded)]
    sch.reorder(*outer, *(loops[n] for n in (*loaded, *stored)))
    along, across = kernel.fused([loops[n] for n in loaded]), kernel.fused([loops[n] for n in stored])
    reads, stores = stage.times(loaded), stage.times(stored)
    columns = kernel.choose("columns", "contiguous elements that a block stores", _block_sizes(stores, line))
    rows = kernel.choose("rows", "contiguous elements that a block reads", _block_sizes(reads, line))
    column_block, column = sch.split(across, [None, columns])
    row_block, row = sch.split(along, [None, rows])
    stored_first = stores is None or reads is not None and reads <= stores
    stored_first = kernel.choose_bool("stored_first", "blocks are traversed along the stored axis first", stored_first)
    first, second = (row_block, column_block) if stored_first else (column_block, row_block)
    sch.reorder(*outer, first, second, row, column)
    sch.vectorize(column)
    kernel.say(f"`{stage.block.name}`: blocks of {line} x {line}")
    if parallel:
        parallelize_outer(kernel, [*outer, first, second])


def fusable_loops(stage: Stage, position: int, other: int) -> list[int]:
    """Return the loops that can be fused with a loop, outermost first.

    Every access traverses them like a single loop.
    """
    group = [position]
    for n in reversed(range(position)):
        if n == other or not stage.fusable(n, group[0]):
            break
        group.insert(0, n)
    return group


def _block_sizes(size: int | None, line: int) -> list[int]:
    """Return the candidate extents of a block along an axis, best guess first."""
    others = (_block_size(size, n) for n in (2 * line, line // 2, line // 4) if n > 1)
    return list(dict.fromkeys((_block_size(size, line), *others)))


def _block_size(size: int | None, max_size: int) -> int:
    """Return the extent of a block along an axis: a cache line, or half of one if that leaves no tail.

    Short axes round up to a power of two.
    """
    if size is None:
        return max_size
    if size % max_size and size % (max_size // 2) == 0:
        return max(max_size // 2, 1)
    return min(max_size, 1 << max(size - 1, 0).bit_length())
