"""Products of matrices in every layout, with what is computed from them element by element.

The sums of a tile of the result (`tiles`) stay in registers while the whole depth goes by; what follows is computed as
the tile is stored. The operand that vectors are loaded from stands ready in panels as wide as a tile, where it is large
and its reuse pays for the copy; the other one is read element by element. Columns that the tile does not divide are
padded: with zeros where they are read, and with stores that leave out what is beyond the end, so that the last tile is
narrower. Rows beyond the end are left out, so that the last tile has fewer; of unknown sizes they are padded.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.dot_products import why_no_dots
from mlcc.passes.auto_schedule.groups import Groups, fill, grouped, inline_into, side_by_side, sum_nests
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import PIECES, share_out, worth_threads
from mlcc.passes.auto_schedule.offers import OTHER, around, divisors
from mlcc.passes.auto_schedule.products import (
    element_lanes,
    in_registers,
    number_of,
    only_product,
    padding_of,
    schedule_others,
    shared_columns,
    tile_stores,
)
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.auto_schedule.tiles import PARTS, Tile, tiles
from mlcc.passes.auto_schedule.widen_half import widened
from mlcc.passes.schedule.handles import BlockRV, LoopRV

LEAST_REUSE = 24  # rows that a panel has to serve before making it takes less time than it saves
LEAST_REUSE_IN_ROWS = 128  # the same where vectors can be loaded without panels, from more lines and pages
LARGEST_IN_ROWS = 768 << 10  # bytes: a larger operand's rows are in more pages than loads find without a detour
LONG, TOO_LONG = 96, 1.3  # multiplications that decoded code has room for; the time that is expected with more
MOST_UNROLLED = 8  # steps of the sums that are written out one after the other

LONG_DOTS = 16  # vectors of a dot product beside whose products the sum of its lanes takes little time


def matmul(kernel: Kernel) -> str:
    """The rule: tiles over panels, as the module says."""
    block, product = only_product(kernel)
    product, groups = grouped(kernel, block, product)
    plan = _plan(kernel, product, groups)
    kernel.say(str(plan))
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    many = worth_threads(kernel, product.stage)
    rows, deep = plan.tile.rows if plan.whole else 1, {groups.place: groups.size} if groups else None
    epilogue = in_registers(kernel, block, product, max(plan.tile.columns, plan.step), rows, deep)
    copies = _copies(kernel, block, product, plan)
    outer, depth = _tiles(kernel, block, epilogue, product, plan)
    for copy in copies:
        others += _place(kernel, block, copy, product, plan, outer)
    if many:
        share_out(kernel, outer[: plan.level] or outer)
    kernel.sch.decompose_reduction(block, depth)
    if groups is not None:
        others = sum_nests(kernel, others, epilogue, plan.tile, plan.step, groups)
    schedule_others(kernel, others, epilogue)
    return f"`{product.stage.block.name}` is a product of matrices"


# ---------------------------------------------------------------- what is to be done


@dataclass(frozen=True)
class Plan:
    """The choices of a schedule for a product.

    Of the operands, `panels` packs the one from which vectors are loaded, and `rows` the other where its layout is in
    the way. Rows are padded to `whole` tiles, or the tail is a smaller tile. `outer` is the order of the outer axes;
    copies are made under the first `level` of them, so that those for one matrix of a batch are read while they are in
    the cache. `together` panels are multiplied by each strip before the next one. `unrolled` steps of the depth are
    unrolled. `groups` says how bytes are added up in groups. `wide` is the type of copies if it is not that of the
    operands. `shared` is the width of the panels that versions of the kernel share, or 0.
    """

    tile: Tile
    panels: bool
    rows: bool
    whole: bool
    outer: tuple[int, ...]
    level: int
    together: int = 1
    unrolled: int = 1
    groups: Groups | None = None
    wide: str = ""
    shared: int = 0

    @property
    def step(self) -> int:
        """The columns of a panel."""
        return self.shared or self.tile.columns

    def __str__(self) -> str:
        tile = f"tiles of {self.tile.rows} rows and {self.tile.vectors} vectors of {self.tile.lanes}"
        copies = ["panels of the right operand"] * self.panels + ["strips of the left one"] * self.rows
        each = " for each matrix of the batch" if self.level and copies else ""
        in_groups = f"; {self.groups}" if self.groups else ""
        return f"{tile}; {' and '.join(copies) or 'operands as they are'}{each}{in_groups}"


def _plan(kernel: Kernel, product: Contraction, groups: Groups | None) -> Plan:
    m, n, depth = product.extent(product.m), product.extent(product.n), product.depth
    facts = kernel.facts
    lanes = element_lanes(kernel, product)
    row = None if n is None else n * product.rhs.buffer.dtype.bits // 8
    size = None if row is None or depth is None else row * depth
    in_rows = product.consecutive(product.rhs) == product.n
    near = size is not None and size <= min(facts.l2_bytes * 3 // 4, LARGEST_IN_ROWS)
    ready = in_rows and near and (n or 0) >= lanes
    constant = kernel.is_constant(product.rhs.buffer)
    reused = (product.reuse or 0) >= (LEAST_REUSE_IN_ROWS if in_rows else LEAST_REUSE)
    # how often they serve is not known: panels for one row cost less than short dot products, one by one, for many
    long = depth is not None and depth >= LONG_DOTS * lanes
    unknown = product.reuse is None and not in_rows and not long and (n is None or n >= lanes)
    panels = constant or unknown or (reused and not ready) or groups is not None
    if not panels and not in_rows:
        if why_no_dots(kernel, product) is None:
            kernel.rather_not(
                "the right operand is consecutive in depth, and read too rarely to be worth another layout"
            )
        panels = True
    if in_rows and not constant and groups is None:
        panels = kernel.either("panels", "the right operand is copied to panels as wide as a tile", panels)
    spare = groups.spare(kernel) if groups else None
    halves = panels and groups is None  # half a vector in rows often lies in two lines
    shared = shared_columns(kernel, product, m)
    candidates = [(1 / tile.efficiency(m, n), tile) for tile in tiles(facts, m, n, lanes, spare, halves, shared)]
    tile = choose_tile(kernel, candidates, PARTS)
    across = product.m is not None and product.consecutive(product.lhs) == product.m
    fits = size is not None and size <= facts.l1_bytes // 2
    if groups is not None:
        strips = product.consecutive(product.lhs) != groups.place
    else:
        strips = across and not fits and tile.rows > 1
        if product.m is not None and tile.rows > 1:
            strips = kernel.either("strips", "the left operand is copied to strips as high as a tile", strips)
    own = [p for p in product.outer if product.rhs.has(p)]
    outer = (*own, *(p for p in product.outer if p not in own))
    batches = product.count(tuple(own))
    level = len(own) if not constant and batches is not None and batches >= PIECES * facts.cores else 0
    if own and (panels or strips):
        level = kernel.choose(
            "level", "loops over a batch that copies are made under", around(level, range(len(own) + 1))
        )
    return Plan(
        tile, panels, strips, strips or m is None, outer, level, _together(kernel, product, tile, bool(shared)),
        _unrolled(kernel, product, tile, groups), groups, widened(product), shared,
    )  # fmt: skip


def _together(kernel: Kernel, product: Contraction, tile: Tile, shared: bool) -> int:
    """Choose how many panels are multiplied by each strip before the next strip; 1 by default."""
    n = product.extent(product.n)
    if product.m is None or n is None or shared or (product.extent(product.m) or tile.rows + 1) <= tile.rows:
        return 1
    return kernel.choose("together", "panels that go by before the next strip does", divisors(-(-n // tile.columns)))


def _unrolled(kernel: Kernel, product: Contraction, tile: Tile, groups: Groups | None) -> int:
    """Choose how many steps of the reduction to unroll; 1 by default."""
    depth = product.extent(product.k[-1])
    if groups is not None or depth is None:
        return 1
    sums = tile.rows * tile.vectors
    times = {n: 1.0 if n == 1 else OTHER if n * sums <= LONG else TOO_LONG for n in divisors(depth, MOST_UNROLLED)}
    return kernel.choose("unrolled", "steps of the sums that are written out", times)


# ---------------------------------------------------------------- the operands


@dataclass(frozen=True)
class Copy:
    """The block that copies an operand; `step` elements along the loop `place` stand side by side, 0: as they did."""

    block: BlockRV
    operand: Operand
    place: int | None
    step: int


def _copies(kernel: Kernel, block: BlockRV, product: Contraction, plan: Plan) -> list[Copy]:
    """Copy the operands that are padded, or wanted in another layout."""
    copies = []
    for operand, place, step, wanted in (
        (product.rhs, product.n, plan.step, plan.panels),
        (product.lhs, product.m, plan.tile.rows, plan.rows),
    ):
        copy = padding_of(kernel, block, operand.buffer)
        if copy is not None and not wanted and operand is product.rhs and try_inline(kernel, copy):
            continue
        wide = plan.groups.dtype if plan.groups else plan.wide
        if operand is product.rhs and plan.wide and (not wanted or kernel.is_constant(operand.buffer)):
            wide = ""  # vectors are converted as they are loaded
        if copy is None and (wanted or wide):
            copy = kernel.sch.cache_read(block, number_of(kernel, block, operand.buffer), "global")
        if copy is None:
            continue
        if plan.groups or wide:
            inline_into(kernel, copy)
        if wide and wide != str(kernel.stage(copy).block.writes[0].buffer.dtype):
            kernel.sch.widen(copy, 0, wide)
        copies.append(Copy(copy, operand, place, step if wanted and place is not None else 0))
    return copies


def _place(
    kernel: Kernel, block: BlockRV, copy: Copy, product: Contraction, plan: Plan, outer: list[LoopRV]
) -> list[BlockRV]:
    """Put a copy where it is made, in its layout; gives it back if its loops are still to be scheduled."""
    level = plan.level if all(copy.operand.has(p) for p in plan.outer[: plan.level]) else 0
    if level:
        try:
            kernel.sch.compute_at(copy.block, outer[level - 1], preserve_unit_loops=True)
        except CompileError:  # not proven to be whole where it is read: then all copies are made first
            level = 0
    if not copy.step:
        if not level:
            return [copy.block]
        inner = kernel.loops(copy.block)[level:]
        kernel.sch.vectorize(kernel.sch.split(inner[-1], [None, plan.tile.lanes])[1])
        return []
    written = kernel.stage(copy.block).block.writes[0].buffer
    index_map = _in_panels(written, copy, product.k, plan.groups)
    kernel.sch.transform_layout(block, ("read", number_of(kernel, block, written)), index_map)
    if plan.groups is None:
        _fill_panels(kernel, copy, product, plan.tile.lanes, level)
        return []
    many = worth_threads(kernel, kernel.stage(copy.block)) and not level
    around = fill(kernel, copy.block, copy.operand, copy.place, copy.step, plan.groups, level)  # type: ignore[arg-type]
    if many:
        share_out(kernel, around)
    return []


def _in_panels(buffer: tir.Buffer, copy: Copy, depth: tuple[int, ...], groups: Groups | None) -> tir.IndexMap:
    """Return the index map to panels: outer axes, panels, depth, and the contiguous elements of a panel."""
    given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    if groups is not None:
        return tir.IndexMap(given, side_by_side(given, copy.operand, copy.place, copy.step, depth, groups))
    by_place = list(zip(given, copy.operand.places, strict=True))
    outer = [v for v, p in by_place if p != copy.place and p not in depth]
    deep = [v for v, p in by_place if p in depth]
    (own,) = (v for v, p in by_place if p == copy.place)
    return tir.IndexMap(given, (*outer, c.floordiv(own, copy.step), *deep, c.floormod(own, copy.step)))


def _fill_panels(kernel: Kernel, copy: Copy, product: Contraction, lanes: int, level: int) -> None:
    """Schedule a copy into panels, panel by panel.

    It runs in vectors where the operand is contiguous along panels, else in squares of whole cache lines.
    """
    sch, operand, step = kernel.sch, copy.operand, copy.step
    many = worth_threads(kernel, kernel.stage(copy.block)) and not level
    loops = kernel.loops(copy.block)[level:]  # one for each dimension of the operand
    at = operand.places.index(copy.place)
    deep = [n for n, p in enumerate(operand.places) if p in product.k]
    outer = [loops[n] for n in range(len(loops)) if n != at and n not in deep]
    inside = [loops[n] for n in deep]
    parts = [None, step // lanes, lanes] if step % lanes == 0 else [None, step]
    panel, *strip = sch.split(loops[at], parts)
    if product.consecutive(operand) == copy.place:
        sch.reorder(*outer, panel, *inside, *strip)
        if len(strip) > 1:
            sch.vectorize(strip[-1])
    else:
        far, near = sch.split(inside.pop(), [None, lanes])
        sch.reorder(*outer, panel, *strip[:-1], *inside, far, near, strip[-1])
        sch.vectorize(strip[-1])
    if many:
        share_out(kernel, [*outer, panel])


# ---------------------------------------------------------------- the tiles


def _tiles(
    kernel: Kernel, block: BlockRV, epilogue: BlockRV, product: Contraction, plan: Plan
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the sums over the depth and the stores, tile by tile; return the tile loops and the first depth loop."""
    sch, tile = kernel.sch, plan.tile
    loops = kernel.loops(block)
    panel, *columns = sch.split(loops[product.n], [None, tile.vectors, tile.lanes])
    strip, *rows = sch.split(loops[product.m], [None, tile.rows]) if product.m is not None else (None,)
    panel, *near = sch.split(panel, [None, plan.together]) if plan.together > 1 else (panel,)
    outer = [*(loops[p] for p in plan.outer), panel, *([strip] if strip is not None else []), *near]
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
    for loop in (*steps, *inner, *members):
        sch.unroll(loop)
    sch.vectorize(columns[1])
    tile_stores(kernel, epilogue, len(outer), tile)
    return outer, depth[0]
