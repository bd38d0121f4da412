"""Matrix products in every layout, with an elementwise epilogue.

The sums of a tile of the result (`tiles`) stay in registers during the whole reduction; the epilogue is computed as the
tile is stored. The operand that vectors are loaded from is packed into panels as wide as a tile, where it is large and
its reuse pays for the copy; the other one is read element by element. Columns that the tile does not divide are padded:
with zeros where they are read, and with masked stores, so that the last tile is narrower. The last tile also has fewer
rows: where their number is unknown, lowering writes out a tile for each number that may be left (`loop_partition`).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.dot_groups import (
    DotGroups,
    form_dot_groups,
    grouped_panel_indices,
    inline_into,
    schedule_corrections,
    schedule_panel_copy,
    unroll_group,
)
from mlcc.passes.auto_schedule.dot_products import dot_products_mismatch
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import PIECES_PER_CORE, is_worth_parallelizing, parallelize_outer
from mlcc.passes.auto_schedule.products import (
    accumulate_locally,
    element_lanes,
    only_product,
    padding_copy,
    read_index,
    schedule_others,
    schedule_tile_stores,
    shared_columns,
)
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.auto_schedule.tiles import PARTS, TYPICAL_SIZES, Tile, tiles, typical_sizes
from mlcc.passes.auto_schedule.tuning_choices import UNRATED_COST, divisors, nearest_first
from mlcc.passes.auto_schedule.widen_half import widened_dtype
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MIN_PANEL_REUSE = 24  # least rows per panel for packing to pay
MIN_PANEL_REUSE_ROW_MAJOR = 128  # the same where vectors can be loaded without panels
MAX_ROW_MAJOR_BYTES = 768 << 10  # bytes: rows of a larger operand miss the TLB
# multiplications that fit the decoded code; the expected relative time with more
MAX_UNROLLED_PRODUCTS, LONG_CODE_COST = 96, 1.3
CROSSING_COST = 1.015  # relative time of half vectors that are read in rows, where they often cross cache lines
PACKING_COST = 10.0  # of an element of a panel, in multiplications
SHARING_COST = 20.0  # the same, of one that another core reads
MAX_SERIAL_COST = 1.02  # relative time with one thread of tiles whose panels are packed by each task
MAX_UNROLLED = 8  # most steps of the reduction that are unrolled

MIN_DOT_VECTORS = 16  # least vectors per dot product for the lane sum to be negligible


def matmul(kernel: Kernel) -> str:
    """Schedule a matrix product in tiles over packed panels; see the module."""
    block, product = only_product(kernel)
    product, groups = form_dot_groups(kernel, block, product)
    plan = _choose_plan(kernel, product, groups)
    kernel.say(str(plan))
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    parallel = is_worth_parallelizing(kernel, product.stage)
    rows, depth_multiples = plan.tile.rows if plan.pack_lhs else 1, {groups.place: groups.size} if groups else None
    epilogue = accumulate_locally(kernel, block, product, max(plan.tile.columns, plan.step), rows, depth_multiples)
    copies = _copy_operands(kernel, block, product, plan)
    outer, depth = _schedule_tiles(kernel, block, epilogue, product, plan)
    for copy in copies:
        others += _place_copy(kernel, block, copy, product, plan, outer)
    if parallel:
        parallelize_outer(kernel, outer[: plan.level] or outer)
    kernel.sch.decompose_reduction(block, depth)
    if groups is not None:
        others = schedule_corrections(kernel, others, epilogue, plan.tile, plan.step, groups)
    schedule_others(kernel, others, epilogue)
    return f"`{product.stage.block.name}` is a matrix product"


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True)
class MatmulPlan:
    """The choices of a schedule for a product.

    `pack_rhs` packs the right operand, which vectors are loaded from, into panels; `pack_lhs` packs the left one into
    strips, padded to whole tiles; otherwise the tail is a smaller tile. `outer` is the order of the outer axes. Copies
    are made inside the first `level` of them, so that those for one matrix of a batch are read while they are in the
    cache; with one more, each panel is packed by the task that multiplies it, and stays with its core.
    `panels_per_strip` panels are multiplied by each strip before the next one. `unrolled` steps of the depth are
    unrolled. `groups` describes how bytes are accumulated in groups. `copy_dtype` is
    the type of copies if it is not that of the operands. `shared_panel_columns` is the width of the panels that
    versions of the kernel share, or 0.
    """

    tile: Tile
    pack_rhs: bool
    pack_lhs: bool
    outer: tuple[int, ...]
    level: int
    panels_per_strip: int = 1
    unrolled: int = 1
    groups: DotGroups | None = None
    copy_dtype: str = ""
    shared_panel_columns: int = 0

    @property
    def step(self) -> int:
        """The columns of a panel."""
        return self.shared_panel_columns or self.tile.columns

    def __str__(self) -> str:
        tile = f"tiles of {self.tile.rows} rows and {self.tile.vectors} vectors of {self.tile.lanes}"
        copies = ["panels of the right operand"] * self.pack_rhs + ["strips of the left one"] * self.pack_lhs
        in_tasks = self.level > len(self.outer)
        each = ", by the task that multiplies them" if in_tasks else " for each matrix of the batch"
        in_groups = f"; {self.groups}" if self.groups else ""
        made = f"{' and '.join(copies)}{each if self.level else ''}" if copies else "operands as they are"
        return f"{tile}; {made}{in_groups}"


def _typical_extents(kernel: Kernel, product: Contraction, position: int | None) -> tuple[int, ...]:
    """Return sizes that stand for the extent of a loop, within its bounds, if it is unknown."""
    if position is None or product.extent(position) is not None:
        return TYPICAL_SIZES
    return typical_sizes(*kernel.bounds_of_loops(product.stage, [position]))


def _choose_plan(kernel: Kernel, product: Contraction, groups: DotGroups | None) -> MatmulPlan:
    m, n, depth = product.extent(product.m), product.extent(product.n), product.depth
    facts = kernel.facts
    lanes = element_lanes(kernel, product)
    row_bytes = None if n is None else n * product.rhs.buffer.dtype.bits // 8
    rhs_bytes = None if row_bytes is None or depth is None else row_bytes * depth
    in_rows = product.contiguous_axis(product.rhs) == product.n
    in_cache = rhs_bytes is not None and rhs_bytes <= min(facts.l2_bytes * 3 // 4, MAX_ROW_MAJOR_BYTES)
    readable_in_rows = in_rows and in_cache and (n or 0) >= lanes
    is_constant = kernel.is_constant(product.rhs.buffer)
    readers = [p for p in product.stage.spatial if not product.rhs.has(p)]
    least_reuse, greatest_reuse = kernel.bounds_of_loops(product.stage, readers)
    reused = least_reuse >= (MIN_PANEL_REUSE_ROW_MAJOR if in_rows else MIN_PANEL_REUSE)
    rarely_reused = greatest_reuse is not None and greatest_reuse < MIN_PANEL_REUSE
    # reuse is unknown: packing for one row costs less than many separate short dot products
    long_depth = depth is not None and depth >= MIN_DOT_VECTORS * lanes
    unknown_reuse = (
        product.reuse is None and not rarely_reused and not in_rows and not long_depth and (n is None or n >= lanes)
    )
    pack_rhs = is_constant or unknown_reuse or (reused and not readable_in_rows) or groups is not None
    if not pack_rhs and not in_rows:
        if dot_products_mismatch(kernel, product) is None:
            kernel.prefer_next_rule(
                "the right operand is contiguous along the reduction, and reused too rarely to be packed"
            )
        pack_rhs = True
    if in_rows and not is_constant and groups is None:
        pack_rhs = kernel.choose_bool("panels", "pack the right operand into panels as wide as a tile", pack_rhs)
    reserved = groups.reserved_registers(kernel) if groups else None
    halves = groups is None
    crossing = 1.0 if pack_rhs else CROSSING_COST
    panel_columns = shared_columns(kernel, product, m)
    heights, widths = _typical_extents(kernel, product, product.m), _typical_extents(kernel, product, product.n)
    candidates = [
        ((crossing if tile.lanes < lanes else 1.0) / tile.efficiency(m, n, heights, widths), tile)
        for tile in tiles(facts, m, n, lanes, reserved, halves, panel_columns, heights=heights, widths=widths)
    ]
    candidates.sort(key=itemgetter(0))
    lhs_along_rows = product.m is not None and product.contiguous_axis(product.lhs) == product.m
    packed_each_call = pack_rhs and not is_constant and groups is None and not widened_dtype(product)
    own = None
    if packed_each_call and not product.outer and not lhs_along_rows:
        own = _tile_of_own_panels(kernel, product, [tile for _, tile in candidates])
    if own is not None:
        candidates = [(candidates[0][0], own), *(pair for pair in candidates if pair[1] != own)]
    tile = choose_tile(kernel, candidates, PARTS)
    rhs_in_l1 = rhs_bytes is not None and rhs_bytes <= facts.l1_bytes // 2
    if groups is not None:
        pack_lhs = product.contiguous_axis(product.lhs) != groups.place
    else:
        pack_lhs = lhs_along_rows and not rhs_in_l1 and tile.rows > 1
        if product.m is not None and tile.rows > 1:
            pack_lhs = kernel.choose_bool("strips", "pack the left operand into strips as high as a tile", pack_lhs)
    rhs_axes = [p for p in product.outer if product.rhs.has(p)]
    outer = (*rhs_axes, *(p for p in product.outer if p not in rhs_axes))
    batches = product.count(tuple(rhs_axes))
    level = len(rhs_axes) if not is_constant and batches is not None and batches >= PIECES_PER_CORE * facts.cores else 0
    if rhs_axes and (pack_rhs or pack_lhs):
        level = kernel.choose(
            "level", "batch loops that copies are made in", nearest_first(level, range(len(rhs_axes) + 1))
        )
    if own is not None and not pack_lhs:
        level = kernel.choose(
            "level", "1: each task packs the panel that it multiplies; 0: all are packed first", [1, 0]
        )
    return MatmulPlan(
        tile,
        pack_rhs,
        pack_lhs,
        outer,
        level,
        _panels_per_strip(kernel, product, tile, bool(panel_columns)),
        _unroll_factor(kernel, product, tile, groups),
        groups,
        widened_dtype(product),
        panel_columns,
    )


def _tile_of_own_panels(kernel: Kernel, product: Contraction, candidates: list[Tile]) -> Tile | None:
    """Return the tile with the least expected time on all cores if each task packs the panel that it multiplies.

    None if the best of `candidates`, with panels that are packed before and shared, is expected to be faster: where
    there are few panels for the cores.
    """
    m, n, depth, cores = product.extent(product.m), product.extent(product.n), product.depth, kernel.facts.cores
    if cores == 1 or not m or not n or not depth or not is_worth_parallelizing(kernel, product.stage):
        return None
    fits = kernel.facts.l2_bytes // (depth * product.rhs.buffer.dtype.bytes)  # columns of a panel

    def times(tile: Tile) -> tuple[float, float]:
        """Return the time of all tasks, and of the thread that ends last, in multiplications for each step."""
        vectors = -(-n // tile.lanes)
        per_vector = m * tile.lanes / tile.efficiency(m, n) + PACKING_COST * tile.lanes
        panels = [min(tile.vectors, vectors - at) * per_vector for at in range(0, vectors, tile.vectors)]
        loads = [0.0] * cores
        for panel in panels:
            loads[loads.index(min(loads))] += panel
        return sum(panels), max(loads)

    serial = times(candidates[0])[0]
    shared = serial / cores + (PACKING_COST + SHARING_COST) * n * (1 - 1 / cores)
    own = [
        (time, at)
        for at, tile in enumerate(candidates)
        for whole, time in (times(tile),)
        if tile.columns <= fits and whole <= serial * MAX_SERIAL_COST and time < shared
    ]
    return candidates[min(own)[1]] if own else None


def _panels_per_strip(kernel: Kernel, product: Contraction, tile: Tile, shared: bool) -> int:
    """Choose how many panels are multiplied by each strip before the next strip; 1 by default."""
    n = product.extent(product.n)
    if product.m is None or n is None or shared or (product.extent(product.m) or tile.rows + 1) <= tile.rows:
        return 1
    return kernel.choose("together", "panels multiplied before the next strip", divisors(-(-n // tile.columns)))


def _unroll_factor(kernel: Kernel, product: Contraction, tile: Tile, groups: DotGroups | None) -> int:
    """Choose how many steps of the reduction to unroll; 1 by default."""
    depth = product.extent(product.k[-1])
    if groups is not None or depth is None:
        return 1
    sums = tile.rows * tile.vectors
    costs = {
        n: 1.0 if n == 1 else UNRATED_COST if n * sums <= MAX_UNROLLED_PRODUCTS else LONG_CODE_COST
        for n in divisors(depth, MAX_UNROLLED)
    }
    return kernel.choose("unrolled", "steps of the reduction that are unrolled", costs)


# ---------------------------------------------------------------- operands


@dataclass(frozen=True)
class OperandCopy:
    """A block that copies an operand; `step` elements along loop `place` become contiguous (0: layout unchanged)."""

    block: BlockRV
    operand: Operand
    place: int | None
    step: int


def _copy_operands(kernel: Kernel, block: BlockRV, product: Contraction, plan: MatmulPlan) -> list[OperandCopy]:
    """Copy the operands that are padded, or needed in another layout."""
    copies = []
    for operand, axis, step, wanted in (
        (product.rhs, product.n, plan.step, plan.pack_rhs),
        (product.lhs, product.m, plan.tile.rows, plan.pack_lhs),
    ):
        copy = padding_copy(kernel, block, operand.buffer)
        if copy is not None and not wanted and operand is product.rhs and try_inline(kernel, copy):
            continue
        copy_dtype = plan.groups.dtype if plan.groups else plan.copy_dtype
        if operand is product.rhs and plan.copy_dtype and (not wanted or kernel.is_constant(operand.buffer)):
            copy_dtype = ""  # vectors are converted as they are loaded
        if copy is None and (wanted or copy_dtype):
            copy = kernel.sch.cache_read(block, read_index(kernel, block, operand.buffer), "global")
        if copy is None:
            continue
        if plan.groups or copy_dtype:
            inline_into(kernel, copy)
        if copy_dtype and copy_dtype != str(kernel.stage(copy).block.writes[0].buffer.dtype):
            kernel.sch.widen(copy, 0, copy_dtype)
        copies.append(OperandCopy(copy, operand, axis, step if wanted and axis is not None else 0))
    return copies


def _place_copy(
    kernel: Kernel, block: BlockRV, copy: OperandCopy, product: Contraction, plan: MatmulPlan, outer: list[LoopRV]
) -> list[BlockRV]:
    """Place a copy at its loop level and set its layout; return it if its loops are still to be scheduled."""
    level = plan.level if all(copy.operand.has(p) for p in plan.outer[: plan.level]) else 0
    if level > len(plan.outer) and copy.operand is not product.rhs:
        level = 0  # the loop over panels
    if level:
        try:
            kernel.sch.compute_at(copy.block, outer[level - 1], preserve_unit_loops=True)
        except CompileError:  # not provably complete where it is read: make all copies first
            level = 0
    if not copy.step:
        if not level:
            return [copy.block]
        inner = kernel.loops(copy.block)[level:]
        kernel.sch.vectorize(kernel.sch.split(inner[-1], [None, plan.tile.lanes])[1])
        return []
    packed = kernel.stage(copy.block).block.writes[0].buffer
    index_map = _panel_index_map(packed, copy, product.k, plan.groups)
    kernel.sch.transform_layout(block, ("read", read_index(kernel, block, packed)), index_map)
    if plan.groups is None:
        _fill_panels(kernel, copy, product, plan.tile.lanes, level)
        return []
    parallel = is_worth_parallelizing(kernel, kernel.stage(copy.block)) and not level
    outer_loops = schedule_panel_copy(kernel, copy.block, copy.operand, copy.place, copy.step, plan.groups, level)  # type: ignore[arg-type]
    if parallel:
        parallelize_outer(kernel, outer_loops)
    return []


def _panel_index_map(
    buffer: tir.Buffer, copy: OperandCopy, depth: tuple[int, ...], groups: DotGroups | None
) -> tir.IndexMap:
    """Return the index map into panels: outer axes, panels, depth, and the contiguous elements of a panel."""
    index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    if groups is not None:
        return tir.IndexMap(
            index_vars, grouped_panel_indices(index_vars, copy.operand, copy.place, copy.step, depth, groups)
        )
    by_place = list(zip(index_vars, copy.operand.places, strict=True))
    outer = [v for v, p in by_place if p != copy.place and p not in depth]
    depth_indices = [v for v, p in by_place if p in depth]
    (panel_index,) = (v for v, p in by_place if p == copy.place)
    return tir.IndexMap(
        index_vars, (*outer, c.floordiv(panel_index, copy.step), *depth_indices, c.floormod(panel_index, copy.step))
    )


def _fill_panels(kernel: Kernel, copy: OperandCopy, product: Contraction, lanes: int, level: int) -> None:
    """Schedule a copy into panels, panel by panel.

    The copy is vectorized where the operand is contiguous along panels; otherwise it runs in squares of whole cache
    lines.
    """
    sch, operand, step = kernel.sch, copy.operand, copy.step
    parallel = is_worth_parallelizing(kernel, kernel.stage(copy.block)) and not level
    loops = kernel.loops(copy.block)[level:]  # one for each dimension of the operand
    panel_dimension = operand.places.index(copy.place)
    depth_dimensions = [n for n, p in enumerate(operand.places) if p in product.k]
    outer = [loops[n] for n in range(len(loops)) if n != panel_dimension and n not in depth_dimensions]
    depth_loops = [loops[n] for n in depth_dimensions]
    factors = [None, step // lanes, lanes] if step % lanes == 0 else [None, step]
    panel, *strip = sch.split(loops[panel_dimension], factors)
    if product.contiguous_axis(operand) == copy.place:
        sch.reorder(*outer, panel, *depth_loops, *strip)
        if len(strip) > 1:
            sch.vectorize(strip[-1])
    else:
        line, in_line = sch.split(depth_loops.pop(), [None, lanes])
        sch.reorder(*outer, panel, *strip[:-1], *depth_loops, line, in_line, strip[-1])
        sch.vectorize(strip[-1])
    if parallel:
        parallelize_outer(kernel, [*outer, panel])


# ---------------------------------------------------------------- tiles


def _schedule_tiles(
    kernel: Kernel, block: BlockRV, epilogue: BlockRV, product: Contraction, plan: MatmulPlan
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the sums and the epilogue, tile by tile; return the tile loops and the first reduction loop."""
    sch, tile = kernel.sch, plan.tile
    loops = kernel.loops(block)
    panel, *columns = sch.split(loops[product.n], [None, tile.vectors, tile.lanes])
    strip, *rows = sch.split(loops[product.m], [None, tile.rows]) if product.m is not None else (None,)
    panel, *panel_in_group = sch.split(panel, [None, plan.panels_per_strip]) if plan.panels_per_strip > 1 else (panel,)
    outer = [*(loops[p] for p in plan.outer), panel, *([strip] if strip is not None else []), *panel_in_group]
    groups = plan.groups
    members: list[LoopRV] = []
    if groups is not None:
        loops[groups.place], *members = sch.split(loops[groups.place], [None, groups.size])
    depth = [loops[p] for p in product.k]
    inner = [*rows, columns[0]] if tile.vectors <= tile.rows else [columns[0], *rows]
    steps: list[LoopRV] = []
    if plan.unrolled > 1:
        depth[-1], *steps = sch.split(depth[-1], [None, plan.unrolled])
    sch.reorder(*outer, *depth, *steps, *inner, columns[1], *members)
    sch.reverse_compute_at(epilogue, outer[-1])
    for loop in (*steps, *inner):
        sch.unroll(loop)
    unroll_group(kernel, product.stage, members)
    sch.vectorize(columns[1])
    schedule_tile_stores(kernel, epilogue, len(outer), tile)
    return outer, depth[0]
