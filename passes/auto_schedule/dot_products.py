"""Products of few rows with a matrix that is contiguous along the reduction: several dot products at a time.

Each dot product accumulates in the lanes of its own vector, which are combined at the end. A tile of dot products
shares the loads of its rows and columns.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.dot_groups import grouped_in_place, unroll_group
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer
from mlcc.passes.auto_schedule.products import element_lanes, elementwise_consumer, only_product, schedule_others
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MAX_STREAMS = 4  # rows of the matrix read at a time, limited by prefetching
LANES_PER_STEP = 4  # lanes that one step combines at the end


def dots(kernel: Kernel) -> str:
    """Schedule a product as tiles of dot products; see the module."""
    block, product = only_product(kernel)
    mismatch = dot_products_mismatch(kernel, product)
    if mismatch is not None:
        not_applicable(mismatch)
    lanes = element_lanes(kernel, product)
    group_size = 1
    depth = product.extent(product.k[-1])
    if depth is None or depth >= lanes * 4:
        product, group_size = grouped_in_place(kernel, block, product)
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    parallel = is_worth_parallelizing(kernel, product.stage)
    rows, columns = _choose_tile(kernel, product)
    group_note = f", sums of {group_size} products at a time" if group_size > 1 else ""
    kernel.say(f"{rows} x {columns} dot products at a time, in vectors of {lanes}{group_note}")
    epilogue = elementwise_consumer(kernel, block)
    partial_blocks = _split_into_lanes(kernel, block, product, lanes, group_size)
    outer = _tile_loops(kernel, block, product, rows, columns)
    if epilogue is not None:
        kernel.sch.reverse_compute_at(epilogue, outer[-1])
        kernel.sch.set_scope(block, 0, "local")
    for part in reversed(partial_blocks):
        kernel.sch.compute_at(part, outer[-1])
    sums = [
        (part, _schedule_lanes(kernel, part, len(outer), part is partial_blocks[0], group_size))
        for part in partial_blocks
    ]
    if parallel:
        parallelize_outer(kernel, outer)
    for part, first in sums:
        kernel.sch.decompose_reduction(part, first)
    schedule_others(kernel, others, epilogue or block)
    return f"`{product.stage.block.name}` consists of a few dot products of long rows"


def dot_products_mismatch(kernel: Kernel, product: Contraction) -> str | None:
    """Return why a product cannot run as dot products along contiguous elements, or None if it can."""
    last = product.k[-1]
    depth = product.extent(last)
    lanes = element_lanes(kernel, product)
    if product.contiguous_axis(product.rhs) not in product.k or product.contiguous_axis(product.lhs) not in product.k:
        return "an operand is not contiguous along the reduction"
    if product.contiguous_axis(product.rhs) != last or product.contiguous_axis(product.lhs) != last:
        return "the operands are contiguous along different axes"
    if lanes < 2 or (depth is not None and depth < 2 * lanes):
        return "the sums are too short for vectors"
    return None


def _choose_tile(kernel: Kernel, product: Contraction) -> tuple[int, int]:
    """Choose the rows and columns of a tile: divisors of the extents with the fewest loads per product.

    The accumulators of a tile take at most half of the vector registers.
    """
    max_accumulators = kernel.facts.vector_registers // 2
    candidates = [
        (rows, columns)
        for rows in _tile_sizes(kernel, product, product.m, max_accumulators)
        for columns in _tile_sizes(kernel, product, product.n, MAX_STREAMS)
        if rows * columns <= max_accumulators
    ]

    def products_per_load(tile: tuple[int, int]) -> float:
        """Products for each load."""
        return tile[0] * tile[1] / (tile[0] + tile[1])

    ranked = sorted(candidates, key=lambda t: (products_per_load(t), -t[0]), reverse=True)
    row_costs: dict[int, float] = {}
    for tile in ranked:
        row_costs.setdefault(tile[0], products_per_load(ranked[0]) / products_per_load(tile))
    rows = kernel.choose("rows", "rows whose dot products are computed at a time", row_costs, "tile")
    ranked = [t for t in ranked if t[0] == rows]
    costs = {t[1]: products_per_load(ranked[0]) / products_per_load(t) for t in ranked}
    return rows, kernel.choose("columns", "columns of these dot products", costs, "tile")


def _tile_sizes(kernel: Kernel, product: Contraction, position: int | None, largest: int) -> list[int]:
    """Return the sizes of a tile along an axis: divisors of its extent, and a few where one of several is unknown."""
    size = product.extent(position)
    if size is not None:
        return [n for n in range(1, largest + 1) if n == 1 or size % n == 0]
    assert position is not None
    greatest = kernel.bounds(product.stage.loops[position].extent)[1]
    return [1] if greatest is None else [n for n in (1, 2, 3) if n <= min(largest, greatest)]


def _split_into_lanes(
    kernel: Kernel, block: BlockRV, product: Contraction, lanes: int, group_size: int
) -> list[BlockRV]:
    """Split a reduction into partial sums in lanes, `group_size` neighbours each, and steps that combine lanes.

    `block` becomes the last step.
    """
    sch = kernel.sch
    axis = len(product.stage.stores[0].indices)
    loop = kernel.loops(block)[product.k[-1]]
    sch.pad_reduction(loop, lanes * group_size)
    partials: list[BlockRV] = []
    width = lanes
    while True:
        factors = [None, width] if partials or group_size == 1 else [None, width, group_size]
        lane = sch.split(loop, factors=factors)[1]
        partials.append(sch.rfactor(lane, axis))
        sch.set_scope(partials[-1], 0, "local")
        if width <= LANES_PER_STEP:
            return partials
        width //= LANES_PER_STEP
        loop = kernel.loops(block)[-1]


def _tile_loops(kernel: Kernel, block: BlockRV, product: Contraction, rows: int, columns: int) -> list[LoopRV]:
    """Tile the spatial loops; return the loops over tiles."""
    sch = kernel.sch
    loops = kernel.loops(block)
    spatial = dict(zip(product.stage.spatial, loops, strict=False))
    column, column_in_tile = sch.split(spatial[product.n], [None, columns])
    row, *row_in_tile = sch.split(spatial[product.m], [None, rows]) if product.m is not None else (None,)
    outer = [*(spatial[p] for p in product.outer), column, *([row] if row is not None else [])]
    sch.reorder(*outer, *row_in_tile, column_in_tile, loops[-1])
    for loop in (*row_in_tile, column_in_tile, loops[-1]):
        sch.unroll(loop)
    return outer


def _schedule_lanes(kernel: Kernel, part: BlockRV, outer_count: int, is_first_step: bool, group_size: int) -> LoopRV:
    """Schedule the partial sums in lanes, or a step that combines lanes; return the reduction loop.

    `is_first_step` is True for the sums themselves, which add up `group_size` neighbours at a time.
    """
    sch, stage = kernel.sch, kernel.stage(part)
    loops = kernel.loops(part)
    spatial_loops = [n for n in range(outer_count, len(loops)) if n in stage.spatial]
    depth = [loops[n] for n in stage.reduced]
    spatial_loops.sort(key=lambda n: stage.store_stride(n) == 1)  # the lanes, with contiguous results, innermost
    members = depth[-1:] if is_first_step and group_size > 1 else []
    sch.reorder(*depth[: len(depth) - len(members)], *(loops[n] for n in spatial_loops), *members)
    for n in spatial_loops[:-1]:
        sch.unroll(loops[n])
    unroll_group(kernel, stage, members)
    sch.vectorize(loops[spatial_loops[-1]])
    if not is_first_step:
        sch.unroll(depth[0])
    return depth[0]
