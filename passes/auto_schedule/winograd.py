"""Winograd convolutions: strips of tiles are transformed into the cache, multiplied by panels of weights, and stored.

The products for each place of a tile are a matrix product of their own, tiles times channels, by the register tiles of
`matmul`. What a strip needs of the transformed data stays in L2, and the products of a panel in L1 or L2; they are
transformed back where results are stored, with the epilogue. Where there are too few strips for all cores, the data
are transformed beforehand, and panels run in parallel, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from operator import attrgetter, itemgetter

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer
from mlcc.passes.auto_schedule.products import (
    elementwise_consumer,
    only_product,
    read_index,
    schedule_others,
    shared_columns,
)
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.auto_schedule.tiles import PARTS, Tile, tiles
from mlcc.passes.auto_schedule.tuning_choices import divisors
from mlcc.passes.lowering.loop_partition import PARTITION
from mlcc.passes.lowering.unroll import LLVM_UNROLL
from mlcc.passes.schedule.handles import BlockRV, LoopRV

# annotations of the products' block: the rows and columns of results of a tile, and of tiles of an image; why this
# variant was chosen
WINOGRAD, WINOGRAD_NOTE = "mlcc.winograd", "mlcc.winograd_note"
L3_BYTES = 32  # bytes read from L3 per cycle, beside multiplications
L2_PANEL_COST = 1.0  # a vector of a panel read from L2 instead of L1, in multiplications
LOOPS_OF_STRIP = 8  # loops over the results of a strip
MAX_IMAGES = 16  # most images of a strip
MAX_TILES = 8  # register tiles that are considered for a strip


def winograd(kernel: Kernel) -> str:
    """Schedule a Winograd convolution strip by strip; see the module."""
    if not any(WINOGRAD in stage.block.annotations for stage in kernel.stages()):
        not_applicable("it is no Winograd convolution")
    block, product = only_product(kernel)
    stages = _Stages.of(kernel, block, product)
    strip = _choose_strip(kernel, product, stages.grid)
    note = product.stage.block.annotations.get(WINOGRAD_NOTE)
    if note is not None:
        kernel.say(note.value if isinstance(note, tir.StringImm) else str(note))
    kernel.say(str(strip))
    others = [b for b in kernel.blocks() if not any(kernel.sch.get(b) is kernel.sch.get(own) for own in stages.all)]
    parallel = is_worth_parallelizing(kernel, product.stage)
    others.append(_pack_weights(kernel, block, product, strip.panel_columns))
    outer, panel, inner = _schedule_results(kernel, stages, strip)
    depth = _schedule_products(kernel, block, panel, strip.tile)
    if strip.transforms_first:
        _schedule_data(kernel, stages, 0, parallel)
    else:
        kernel.sch.compute_at(stages.transform, outer[-1], preserve_unit_loops=True)
        _schedule_data(kernel, stages, len(outer), False)
    for loop in inner:
        kernel.sch.unroll(loop)
    if parallel:
        parallelize_outer(kernel, [*outer, panel] if strip.transforms_first else outer)
    if not strip.transforms_first:  # padding is little of the work: not worth a copy of the code for each edge
        for loop in kernel.loops(stages.result)[:-LOOPS_OF_STRIP]:
            kernel.sch.annotate(loop, PARTITION, 0)
    kernel.sch.decompose_reduction(block, depth)
    schedule_others(kernel, others, stages.result)
    _keep_loops(kernel)
    return f"`{product.stage.block.name}` are the products of a Winograd convolution"


# ---------------------------------------------------------------- analysis


@dataclass(frozen=True)
class _Stages:
    """The blocks around the products: `padding`, `data_rows` and `result_rows` may be missing.

    `result` stores the results, and `epilogue` what is computed of them element by element, if it is not inlined.
    `tile_outputs` are the rows and columns of results of a tile, `grid` those of tiles of an image.
    """

    products: BlockRV
    transform: BlockRV
    data_rows: BlockRV | None
    padding: BlockRV | None
    result_rows: BlockRV | None
    result: BlockRV
    epilogue: BlockRV | None
    tile_outputs: tuple[int, int]
    grid: tuple[int, int]

    @property
    def all(self) -> list[BlockRV]:
        blocks = (
            self.products, self.transform, self.data_rows, self.padding, self.result_rows, self.result, self.epilogue,
        )  # fmt: skip
        return [b for b in blocks if b is not None]

    @staticmethod
    def of(kernel: Kernel, block: BlockRV, product: Contraction) -> _Stages:
        """Find the blocks. Raise RuleNotApplicable if they are not those that lowering made."""
        producers = kernel.sch.get_producers(block)
        transforms = [p for p in producers if kernel.stage(p).block.writes[0].buffer is product.lhs.buffer]
        if len(transforms) != 1:
            not_applicable("the data are not transformed in the kernel")
        before = kernel.sch.get_producers(transforms[0])
        rows = before[0] if before and 1 not in product.stage.extents[:2] else None
        padding = next(iter(kernel.sch.get_producers(rows) if rows is not None else before), None)
        result_rows, readers = None, kernel.sch.get_consumers(block)
        if len(readers) == 1 and len(kernel.loops(readers[0])) == 6:
            (result_rows,) = readers
            readers = kernel.sch.get_consumers(result_rows)
        if len(readers) != 1 or len(kernel.loops(readers[0])) != 4:
            not_applicable("the results are not transformed by one block")
        epilogue = elementwise_consumer(kernel, readers[0])
        down, across, *grid = (tir.const_int(n) or 1 for n in product.stage.block.annotations[WINOGRAD])
        return _Stages(
            block, transforms[0], rows, padding, result_rows, readers[0], epilogue, (down, across), (grid[0], grid[1])
        )


@dataclass(frozen=True)
class _Strip:
    """The tiles that are computed together: `rows` of tiles of each of `images`, in register tiles of `tile`.

    With `transforms_first`, the data of all strips are transformed before.
    """

    images: int
    rows: int
    columns: int
    tile: Tile
    panel_columns: int
    transforms_first: bool

    @property
    def height(self) -> int:
        """The number of tiles: the rows of a product."""
        return self.images * self.rows * self.columns

    def __str__(self) -> str:
        images = f"{self.images} images of " if self.images > 1 else ""
        where = "before" if self.transforms_first else "strip by strip"
        return (
            f"strips of {images}{self.rows} x {self.columns} tiles, data transformed {where}; register tiles of"
            f" {self.tile.rows} rows and {self.tile.vectors} vectors of {self.tile.lanes}; panels of the weights"
        )


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a convolution: images (1 if unknown), rows and columns of tiles of an image, places of a tile that
    are multiplied, and channels of the data and of the results."""

    images: int
    rows: int
    columns: int
    places: int
    inputs: int
    outputs: int

    def expected_time(self, strip: _Strip, facts: CpuFacts) -> float:
        """Estimate the cycles of the products in strips: multiplications, reads beyond L2, and idle cores."""
        tile, panels = strip.tile, self.outputs // strip.tile.columns
        strips = -(-self.images // strip.images) * (self.rows // strip.rows)
        products = self.places * strip.height * self.inputs * self.outputs
        multiplied = products / (2 * facts.lanes(4) * tile.efficiency(strip.height, self.outputs))
        if 4 * self.inputs * tile.columns > facts.l1_bytes // 2:
            multiplied *= 1 + L2_PANEL_COST / tile.rows
        weight_bytes = 4 * self.places * self.inputs * self.outputs
        data_bytes = 4 * self.places * strip.height * self.inputs
        in_l2 = facts.l2_bytes // 2
        moved = weight_bytes * (weight_bytes > in_l2) + data_bytes * panels * (data_bytes > in_l2)
        if strip.transforms_first and strips * data_bytes > in_l2:
            moved += 3 * data_bytes  # stored, and read again
        parts = strips * (panels if strip.transforms_first else 1)
        return strips * (multiplied + moved / L3_BYTES) * -(-parts // facts.cores) * facts.cores / parts


def _choose_strip(kernel: Kernel, product: Contraction, grid: tuple[int, int]) -> _Strip:
    """Choose strips that register tiles divide, by expected time. `grid`: the rows and columns of tiles of an image."""
    facts, lanes = kernel.facts, kernel.facts.lanes(4)
    down, across, count, outputs, inputs = product.stage.extents
    if outputs is None or inputs is None or down is None or across is None:
        not_applicable("the channels are unknown")
    images = None if count is None else count // (grid[0] * grid[1])
    sizes = _Sizes(images or 1, *grid, down * across, inputs, outputs)
    shared = shared_columns(kernel, product, None)
    candidates: list[tuple[float, _Strip]] = []
    for strip_images, strip_rows in _strip_sizes(images, grid[0]):
        height = strip_images * strip_rows * grid[1]
        whole = [t for t in tiles(facts, height, outputs, lanes, panel=shared) if height % t.rows == 0]
        for tile in [t for t in whole if outputs % t.columns == 0][:MAX_TILES]:
            for first in (False, True):
                strip = _Strip(strip_images, strip_rows, grid[1], tile, shared or tile.columns, first)
                candidates.append((sizes.expected_time(strip, facts), strip))
    if not candidates:
        not_applicable("no register tile divides the channels of the result")
    parts: list[tuple[str, str, Callable[[_Strip], int]]] = [
        ("images", "images of a strip", attrgetter("images")),
        ("strip_rows", "rows of tiles of a strip", attrgetter("rows")),
        ("transforms_first", "transform the data of all strips first", lambda s: int(s.transforms_first)),
        *((name, about, attrgetter(f"tile.{name}")) for name, about, _ in PARTS),
    ]
    return choose_tile(kernel, sorted(candidates, key=itemgetter(0)), parts)


def _strip_sizes(images: int | None, rows: int) -> list[tuple[int, int]]:
    """Return the numbers of images and of rows of tiles that strips may have: several images only as a whole."""
    together = [] if images is None else [(n, rows) for n in divisors(images, MAX_IMAGES) if n > 1]
    return [*((1, n) for n in divisors(rows, rows)), *together]


# ---------------------------------------------------------------- stages


def _pack_weights(kernel: Kernel, block: BlockRV, product: Contraction, panel_columns: int) -> BlockRV:
    """Pack the transformed weights into panels; return the copy."""
    copy = kernel.sch.cache_read(block, read_index(kernel, block, product.rhs.buffer), "global")
    packed = kernel.stage(copy).block.writes[0].buffer
    down, across, depth, column = (tir.Var(f"i{n}", size.dtype) for n, size in enumerate(packed.shape))
    panels = (down, across, c.floordiv(column, panel_columns), depth, c.floormod(column, panel_columns))
    index_map = tir.IndexMap((down, across, depth, column), panels)
    kernel.sch.transform_layout(block, ("read", read_index(kernel, block, packed)), index_map)
    return copy


def _schedule_results(
    kernel: Kernel, stages: _Stages, strip: _Strip
) -> tuple[list[LoopRV], LoopRV, list[LoopRV]]:  # fmt: skip
    """Schedule the results tile by tile, with their epilogue.

    Return the loops over strips, the one over panels, and those to be unrolled.
    """
    sch, tile = kernel.sch, strip.tile
    down, across = stages.tile_outputs
    n, y, x, channel = kernel.loops(stages.result)
    image, image_in_strip = sch.split(n, [None, strip.images])
    tile_row, dy = sch.split(y, [None, down])
    band, row = sch.split(tile_row, [None, strip.rows])
    column, dx = sch.split(x, [stages.grid[1], across])
    panel, vector, lane = sch.split(channel, [None, tile.vectors, tile.lanes])
    sch.reorder(image, band, panel, image_in_strip, row, column, vector, dy, dx, lane)
    inner = [dy, dx]
    if stages.result_rows is not None:
        sch.compute_at(stages.result_rows, vector, preserve_unit_loops=True)
        *_, first, second, last = kernel.loops(stages.result_rows)
        sch.vectorize(last)
        inner += [first, second]
    if stages.epilogue is not None:
        sch.reverse_compute_at(stages.epilogue, vector, preserve_unit_loops=True)
        *_, first, second, last = kernel.loops(stages.epilogue)
        sch.vectorize(last)
        inner += [first, second]
    sch.vectorize(lane)
    return [image, band], panel, inner


def _schedule_products(kernel: Kernel, block: BlockRV, panel: LoopRV, tile: Tile) -> LoopRV:
    """Schedule the products of a strip and a panel in register tiles; return the reduction loop."""
    sch = kernel.sch
    sums = sch.cache_write(block, 0, "local")
    sch.compute_at(sums, panel, preserve_unit_loops=True)
    *_, strip, channel = kernel.loops(sums)
    part, row = sch.split(strip, [None, tile.rows])
    vector, lane = sch.split(channel, [None, tile.lanes])
    _unrolled_tile(kernel, row, vector, lane)
    sch.compute_at(block, part, preserve_unit_loops=True)
    *_, row, channel, depth = kernel.loops(block)
    vector, lane = sch.split(channel, [None, tile.lanes])
    sch.reorder(depth, *([row, vector] if tile.vectors <= tile.rows else [vector, row]), lane)
    _unrolled_tile(kernel, row, vector, lane)
    return depth


def _keep_loops(kernel: Kernel) -> None:
    """Have LLVM unroll none of the short loops that stay: half of its time again, for code that is no faster."""
    kept: set[tir.Var] = set()
    for block in kernel.blocks():
        for handle in kernel.loops(block):
            loop = kernel.sch.get(handle)
            if loop.kind is tir.ForKind.SERIAL and loop.var not in kept and 1 < (tir.const_int(loop.extent) or 1) <= 64:
                kept.add(loop.var)
                kernel.sch.annotate(handle, LLVM_UNROLL, 0)


def _unrolled_tile(kernel: Kernel, row: LoopRV, vector: LoopRV, lane: LoopRV) -> None:
    kernel.sch.unroll(row)
    kernel.sch.unroll(vector)
    kernel.sch.vectorize(lane)


def _schedule_data(kernel: Kernel, stages: _Stages, level: int, parallel: bool) -> None:
    """Schedule the transform of the data inside `level` loops: for each tile, vectors of channels."""
    sch = kernel.sch
    down, across, strip, channel = kernel.loops(stages.transform)[level:]
    extent = kernel.stage(stages.transform).extents[-1] or 1
    lanes = gcd(extent, kernel.facts.lanes(4))
    vector, lane = sch.split(channel, [None, lanes])
    row, column = sch.split(strip, [None, stages.grid[1]])
    sch.reorder(row, column, vector, down, across, lane)
    inner = [down, across]
    if stages.data_rows is not None:
        sch.compute_at(stages.data_rows, vector, preserve_unit_loops=True)
        *_, first, second, last = kernel.loops(stages.data_rows)
        sch.vectorize(last)
        inner += [first, second]
    if stages.padding is not None:
        around = kernel.loops(stages.transform)[:level]
        sch.compute_at(stages.padding, around[-1] if around else row, preserve_unit_loops=True)
        sch.vectorize(sch.split(kernel.loops(stages.padding)[-1], [None, lanes])[1])
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lane)
    if parallel:
        parallelize_outer(kernel, [row])
