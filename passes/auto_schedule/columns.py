"""Reductions with contiguous results: pooling, depthwise convolutions, sums over outer axes, softmax over channels.

The sums of a tile (some vectors along the contiguous axis, perhaps of several rows) stay in registers during the whole
reduction. All other stages are computed for the same tile, before and after. Data that are read at windows along the
vectors are copied beforehand with their padding, rounded up to whole vectors (`padded_copies`); elsewhere padding is
selected where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd

from mlcc.arith.conditions import conjuncts
from mlcc.ir import tir
from mlcc.ir.node import find, walk
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.auto_schedule.inlining import inline_cheap, try_inline
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import (
    is_worth_parallelizing,
    parallelize_outer,
    stores_disjointly,
    vectorizable_loop,
)
from mlcc.passes.auto_schedule.padded_copies import copied_windows, place_copies, windows_along
from mlcc.passes.auto_schedule.stage import CALL_OPERATIONS, Access, Stage
from mlcc.passes.auto_schedule.tuning_choices import nearest_first
from mlcc.passes.lowering.loop_partition import ALONE, PARTITION
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MAX_OPTIONS = 6  # most options for the vectors or rows of a tile
UNROLL_LIMIT = 16  # most window elements that are unrolled
HALF_VECTOR_COST = 0.6  # the cost of a half-width vector relative to a full one


def columns(kernel: Kernel) -> str:
    """Schedule reductions with contiguous results in tiles of vectors; see the module."""
    inline_cheap(kernel)
    sums = _reductions(kernel)
    width = _choose_width(kernel, kernel.stage(sums[0]))
    windows = windows_along(kernel.stage(sums[0]), width.along) if len(sums) == 1 else []
    if windows and not kernel.choose_bool("padded", "copy data that are read at windows, with their padding", True):
        windows = []
    copies = copied_windows(kernel, sums[0], width.along, width.lanes * width.vectors, windows) if windows else []
    if not copies:
        _inline_padding(kernel)
    last = kernel.blocks()[-1]
    if kernel.stage(last).reduced:
        last = kernel.sch.cache_write(last, 0, "local")
    tile = _choose_tile(kernel, sums, kernel.stage(last), width)
    kernel.say(str(tile))
    parallel = any(is_worth_parallelizing(kernel, s) for s in kernel.stages())
    placed = [kernel.sch.get(b) for b in (last, *copies)]
    others = [b for b in kernel.blocks() if not any(kernel.sch.get(b) is other for other in placed)]
    outer = _tile_output(kernel, last, tile)
    for block in reversed(others):
        kernel.sch.compute_at(block, outer[-1])
    for block in sums:
        kernel.sch.set_scope(block, 0, "local")
        _separate_rows(kernel, block, tile)
    reduction_loops = [(block, _schedule_stage(kernel, block, len(outer), tile)) for block in others]
    level = place_copies(kernel, copies, outer, width.lanes) if copies else 0
    if parallel:
        parallelize_outer(kernel, outer[:level] or outer)
    for block, loop in reduction_loops:
        if loop is not None:
            kernel.sch.decompose_reduction(block, loop)
    return f"{len(sums)} reductions with contiguous results"


# ---------------------------------------------------------------- analysis


def _reductions(kernel: Kernel) -> list[BlockRV]:
    """Return the blocks that reduce. Raise RuleNotApplicable for kernels that the rule does not take."""
    reductions = []
    stages = kernel.stages()
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_applicable("there are several outputs")
    for block, stage in zip(kernel.blocks(), stages, strict=True):
        if not stage.plain or len(stage.stores) != 1:
            not_applicable(f"block `{stage.block.name}` does more than store one expression")
        if stage.reduced:
            if stage.block.init is None:
                not_applicable(f"block `{stage.block.name}` has no initial value")
            reductions.append(block)
    if not reductions:
        not_applicable("no block reduces")
    return reductions


def _inline_padding(kernel: Kernel) -> None:
    """Inline padding and cheap stages, so that padding is selected where windows are read.

    Away from the edges of the data nothing has to be selected.
    """
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if kernel.is_output(stage) or stage.reduced or not stage.plain or len(stage.stores) != 1:
            continue
        calls = sum(isinstance(n, tir.Call) for n in walk(stage.block.body))
        if stage.operations < CALL_OPERATIONS or (_is_padding(stage) and calls == 1):
            try_inline(kernel, block)


def _is_padding(stage: Stage) -> bool:
    value = stage.stores[0].value
    return (
        isinstance(value, tir.Call)
        and isinstance(value.op, tir.Op)
        and value.op.name == "tir.if_then_else"
        and isinstance(value.args[2], (tir.FloatImm, tir.IntImm))
    )


@dataclass(frozen=True)
class Width:
    """The width of a tile: `vectors` vectors of `lanes` elements along the loop `along` of a stage."""

    along: int
    lanes: int
    vectors: int


def _choose_width(kernel: Kernel, stage: Stage) -> Width:
    """Choose the width of tiles, in vectors along the axis that a stage stores contiguously."""
    along = vectorizable_loop(stage, [n for n in stage.spatial if stores_disjointly(stage, n)])
    if along is None:
        not_applicable(f"block `{stage.block.name}` stores no axis contiguously")
    extent = stage.extents[along]
    period = _reuse_period(stage, along) or extent
    lanes = _lanes(kernel, kernel.facts.lanes(max(s.element_bytes for s in kernel.stages())), period)
    if lanes < 2:
        not_applicable("there is only one column")
    max_vectors = _accumulator_count(kernel)
    if any(_shared_loads(stage, n) for n in stage.spatial if n != along):
        max_vectors = max(max_vectors // 4, 1)  # the other axes provide rows, which share the loaded vectors
    vectors = max(max_vectors // 2, 1) if period is None else _least_waste_group(-(-period // lanes), max_vectors)
    options = nearest_first(
        vectors, range(1, 2 * _accumulator_count(kernel) + 1) if period is None else range(1, -(-period // lanes) + 1)
    )
    candidates = [
        n for n in options[:MAX_OPTIONS] if n == vectors or period == extent or period and period % (lanes * n) == 0
    ]
    vectors = kernel.choose("vectors", "vectors of a tile", candidates)
    if period != extent and period is not None and period % (lanes * vectors):
        not_applicable("groups of channels are not whole vectors")
    _check_contiguous_loads(kernel)
    return Width(along, lanes, vectors)


def _accumulator_count(kernel: Kernel) -> int:
    """Return the number of vector accumulators: enough to hide the latency of an addition."""
    return max(kernel.facts.vector_registers // 4, 1)


def _lanes(kernel: Kernel, full_lanes: int, extent: int | None) -> int:
    """Return the lanes of a vector: all of them, or a half or a quarter where that wastes less."""
    if extent is None:
        return full_lanes
    candidates = [lanes for lanes in (full_lanes, full_lanes // 2, full_lanes // 4) if lanes >= 2]
    cost = {lanes: -(-extent // lanes) * (1.0 if lanes == full_lanes else HALF_VECTOR_COST) for lanes in candidates}
    if extent < 2 or not candidates:
        return 1
    return kernel.choose(
        "lanes", "elements of a vector", {n: cost[n] for n in sorted(candidates, key=lambda n: (cost[n], -n))}
    )


def _least_waste_group(items: int, max_size: int) -> int:
    """Return the group size, at most `max_size`, that covers `items` items with little waste in the last group."""
    return min(range(1, max_size + 1), key=lambda n: (-(-items // n) * (n + 1), -n))


def _reuse_period(stage: Stage, position: int) -> int | None:
    """Return how many consecutive iterations load the same element (`channel // 32`), or None."""
    var = stage.loops[position].var
    divisors = [
        tir.const_int(node.rhs)
        for access in stage.accesses
        for index in access.indices
        for node in walk(index)
        if isinstance(node, tir.FloorDiv) and node.lhs is var
    ]
    return reduce(gcd, (n for n in divisors if n), 0) or None


def _check_contiguous_loads(kernel: Kernel) -> None:
    """Raise RuleNotApplicable if a reduction reads with a large stride along the axis of its results."""
    for stage in kernel.stages():
        if stage.reduced:
            position = vectorizable_loop(stage, list(stage.spatial))
            if position is None:
                not_applicable(f"block `{stage.block.name}` does not store its results contiguously")
            by_groups = _reuse_period(stage, position) is not None
            if any(s is None and not by_groups or s is not None and not 0 <= s <= 4 for s in stage.steps_by(position)):
                not_applicable(f"block `{stage.block.name}` does not read contiguously along its results")


@dataclass(frozen=True)
class Tile:
    """A tile of `rows` rows along the loop `row_axis` (or None) of the last stage, each as wide as `width`.

    `shared_axes` are the loops that index the results of the reductions.
    """

    width: Width
    row_axis: int | None
    rows: int
    shared_axes: tuple[int, ...]

    def __str__(self) -> str:
        rows = f"{self.rows} rows of " if self.rows > 1 else ""
        return f"tiles of {rows}{self.width.vectors} vectors of {self.width.lanes}"


def _choose_tile(kernel: Kernel, sums: list[BlockRV], last: Stage, width: Width) -> Tile:
    if not all(stores_disjointly(last, n) for n in range(len(last.loops))):
        not_applicable(f"block `{last.block.name}` is not proven to write each element once")
    results = {kernel.stage(b).stores[0].buffer for b in sums}
    reads = [a for a in last.accesses if a.buffer in results and not a.stored]
    shared = [n for n, loop in enumerate(last.loops) if all(loop.var in a.variables for a in reads)]
    along = vectorizable_loop(last, shared)
    if along is None:
        not_applicable("no axis of the results is stored contiguously")
    width = Width(along, width.lanes, width.vectors)
    max_vectors = _accumulator_count(kernel)
    row_axes = [n for n in shared if n != along and last.extents[n] != 1]
    stage = kernel.stage(sums[0])
    row_axis = max(row_axes, key=lambda n: (_shared_loads(stage, n) if len(sums) == 1 else 0, n), default=None)
    if row_axis is None:
        return Tile(width, None, 1, tuple(shared))
    size = last.extents[row_axis]
    rows = (
        1
        if width.vectors > max_vectors // 2
        else _least_waste_group(max_vectors if size is None else size, max_vectors // width.vectors)
    )
    group = _reuse_period(stage, row_axis) if row_axis < len(stage.loops) else None
    while group is not None and group % rows:
        rows -= 1
    candidates = [n for n in nearest_first(rows, range(1, size or max_vectors)) if (group or n) % n == 0]
    rows = kernel.choose("rows", "rows of a tile", candidates[:MAX_OPTIONS])
    return Tile(width, row_axis if rows > 1 else None, rows, tuple(shared))


def _shared_loads(stage: Stage, position: int) -> int:
    """Count the vector loads of a reduction that all rows of a tile along the loop at `position` can share."""
    if position not in stage.spatial:
        return 0
    along = vectorizable_loop(stage, list(stage.spatial))
    has_period = _reuse_period(stage, position) is not None

    def is_invariant(access: Access) -> bool:
        step = stage.step(access, position)
        return tir.const_int(step) == 0 if step is not None else has_period

    steps = stage.steps_by(along) if along is not None and along != position else []
    return sum(step == 1 and not a.stored and is_invariant(a) for step, a in zip(steps, stage.accesses, strict=False))


# ---------------------------------------------------------------- scheduling


def _tile_output(kernel: Kernel, last: BlockRV, tile: Tile) -> list[LoopRV]:
    """Tile the loops of the last stage; return the loops over tiles."""
    sch, loops, width = kernel.sch, kernel.loops(last), tile.width
    panel, vectors, lane = sch.split(loops[width.along], [None, width.vectors, width.lanes])
    strip, row = sch.split(loops[tile.row_axis], [None, tile.rows]) if tile.row_axis is not None else (None, None)
    at = {width.along: panel, tile.row_axis: strip}
    outer = [at.get(n) or loops[n] for n in tile.shared_axes]
    other_loops = [loop for n, loop in enumerate(loops) if n not in tile.shared_axes]
    inner = [*([row] if row is not None else []), vectors]
    sch.reorder(*outer, *other_loops, *inner, lane)
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lane)
    return outer


def _separate_rows(kernel: Kernel, block: BlockRV, tile: Tile) -> None:
    """Let the rows of a tile begin at whole vectors.

    Else the last vector of a row, of which some lanes are off, would overlap the next row, and neither could stay in
    registers.
    """
    shape = kernel.stage(block).stores[0].buffer.shape
    width = tir.const_int(shape[-1])
    if tile.rows > 1 and len(shape) > 1 and width is not None and width % tile.width.lanes:
        kernel.sch.storage_align(block, 0, len(shape) - 2, tile.width.lanes, 0)


def _schedule_stage(kernel: Kernel, block: BlockRV, outer_count: int, tile: Tile) -> LoopRV | None:
    """Schedule the loops of another stage within one tile; return its first reduction loop."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    reduced = [n for n in stage.reduced if n >= outer_count]
    spatial = [n for n in range(outer_count, len(loops)) if n not in reduced]
    along = vectorizable_loop(stage, spatial)
    other_spatial = [n for n in spatial if n != along]
    parts: list[LoopRV] = []
    if along is not None:
        width, size = tile.width, stage.extents[along]
        fits_one_tile = size is not None and size <= width.vectors * width.lanes
        parts = sch.split(loops[along], [None, width.lanes] if fits_one_tile else [None, width.vectors, width.lanes])
    if reduced:
        sch.reorder(*(loops[n] for n in (*reduced, *other_spatial)), *parts)
        for n in other_spatial:
            sch.unroll(loops[n])
        _unroll_window(kernel, stage, [(n, loops[n]) for n in reduced], [n for n in spatial if stage.extents[n] != 1])
    elif parts:
        sch.reorder(*(loops[n] for n in other_spatial), *parts)
    if parts:
        sch.unroll(parts[-2])
        sch.vectorize(parts[-1])
    return loops[reduced[0]] if reduced else None


def _unroll_window(
    kernel: Kernel, stage: Stage, reduced: list[tuple[int, LoopRV]], tile_positions: list[int]
) -> None:  # fmt: skip
    """Unroll the innermost loops of a reduction as long as their product is small.

    An outermost loop that decides on the padding of a whole tile, such as that over the rows of a window, stays a loop
    and divides where padding begins: unrolled, it would take a copy of the tile for every edge of the data.
    """
    several = [n for n, (position, _) in enumerate(reduced) if stage.extents[position] != 1]
    outermost = (
        several[0] if len(several) > 1 and _selects_padding(stage, reduced[several[0]][0], tile_positions) else None
    )
    iterations, candidates = 1, [0]
    for number, (position, _) in enumerate(reversed(reduced), 1):
        iterations *= stage.extents[position] or 2 * UNROLL_LIMIT + 1
        if iterations > 2 * UNROLL_LIMIT:
            break
        candidates.append(number)
        if iterations <= UNROLL_LIMIT and (outermost is None or number < len(reduced) - outermost):
            candidates[0] = number
    about = f"innermost loops of `{stage.block.name}` that are unrolled"
    count = kernel.choose("unrolled", about, list(dict.fromkeys((*candidates, 0))))
    for _, loop in [*reversed(reduced)][:count]:
        kernel.sch.unroll(loop)
    if outermost is not None and count < len(reduced) - outermost:
        kernel.sch.annotate(reduced[outermost][1], PARTITION, ALONE)


def _selects_padding(stage: Stage, position: int, tile_positions: list[int]) -> bool:
    """Return True if a condition depends on the loop at `position`, and on loops around the tile but none in it."""
    var, own = stage.loops[position].var, {stage.loops[n].var for n in tile_positions}
    conditions = [node.args[0] for node in find(stage.block.body, tir.Call) if node.op == tir.Op("tir.if_then_else")]
    compared = [used_vars(substitute(part, stage.axes)) for whole in conditions for part in conjuncts(whole)]
    return any(var in used and len(used) > 1 and not used & own for used in compared)
