"""Direct convolutions, without im2col: products of weights and data, which are read at windows (`y * 2 + r`).

Weights are packed into panels as wide as a register tile, at no cost where they are constants. Data are read in place:
element by element where the results are contiguous over channels (NHWC), in vectors where they are contiguous over
columns (NCHW). The part of a tile past the end is computed from zeros and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.data_strips import Strips, choose_strips, place_copy
from mlcc.passes.auto_schedule.dot_groups import (
    DotGroups,
    form_dot_groups,
    grouped_panel_indices,
    inline_into,
    schedule_corrections,
    schedule_panel_copy,
    unroll_group,
)
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer
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
from mlcc.passes.auto_schedule.tiles import PARTS, Tile, tiles
from mlcc.passes.auto_schedule.widen_half import widened_dtype
from mlcc.passes.lowering.loop_partition import ALONE, PARTITION
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MAX_UNROLLED = 16  # most steps of the reduction that are unrolled


def conv(kernel: Kernel) -> str:
    """Schedule a direct convolution in tiles over panels of weights; see the module."""
    block, product = only_product(kernel, windows=True)
    _check(product)
    product, groups = form_dot_groups(kernel, block, product)
    product, tile = _choose_tile(kernel, product, groups)
    panel_columns = _shared_panel_columns(kernel, product) or tile.columns
    weights, data = (product.lhs, product.rhs) if product.rhs.windows else (product.rhs, product.lhs)
    group_note = f"; {groups}" if groups else ""
    kernel.say(
        f"tiles of {tile.rows} rows and {tile.vectors} vectors of {tile.lanes}; panels of the weights{group_note}"
    )
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    parallel = is_worth_parallelizing(kernel, product.stage)
    depth_multiples = {groups.place: groups.size} if groups else None
    epilogue = accumulate_locally(kernel, block, product, max(tile.columns, panel_columns), tile.rows, depth_multiples)
    copies = _prepare_data(kernel, block, product, data, groups)
    strips = choose_strips(kernel, product, data, weights) if copies and parallel and groups is None else None
    others += _pack_weights(
        kernel, block, weights, product, panel_columns if weights is product.rhs else tile.rows, groups
    )
    order = _outer_axes(kernel, product, weights, data, tile)
    outer, depth = _schedule_tiles(kernel, block, epilogue, product, tile, order, groups, strips)
    if strips is not None:
        loops, lanes, name = outer[: strips.depth], element_lanes(kernel, product), kernel.sch.get(copies[0]).name
        if place_copy(kernel, copies[0], strips, loops[-1], lanes, _stride(product) > 0):
            kernel.say(f"`{name}`: vectors of {lanes}, by each task for its {strips.rows} rows of results")
            copies, outer = [], [loop for loop in loops if tir.const_int(kernel.sch.get(loop).extent) != 1]
    others += copies
    if parallel:
        parallelize_outer(kernel, outer)
    kernel.sch.decompose_reduction(block, depth)
    if groups is not None:
        others = schedule_corrections(kernel, others, epilogue, tile, panel_columns, groups)
    schedule_others(kernel, others, epilogue)
    return f"`{product.stage.block.name}` is a convolution"


# ---------------------------------------------------------------- analysis


def _check(product: Contraction) -> None:
    """Raise RuleNotApplicable for products that no tile fits."""
    if product.rhs.windows and product.contiguous_axis(product.rhs) != product.n and not _stride(product):
        not_applicable("the columns of the data are not adjacent")
    if not _row_axes(product):
        not_applicable("there is no axis for the rows of a tile")


def _row_axes(product: Contraction) -> list[int]:
    """Return the axes that a tile may have its rows along."""
    return [p for p in product.stage.spatial if product.lhs.has(p) and not product.rhs.has(p)]


def _choose_tile(kernel: Kernel, product: Contraction, groups: DotGroups | None) -> tuple[Contraction, Tile]:
    """Choose the tile that wastes least, over all axes of the left operand that may provide its rows."""
    lanes, n = element_lanes(kernel, product), product.extent(product.n)
    reserved = groups.reserved_registers(kernel) if groups else None
    panel_columns, unaligned = _shared_panel_columns(kernel, product), _has_unaligned_vectors(product)
    by_axis = []
    for axis in _row_axes(product):
        size = product.extent(axis)
        candidates = tiles(kernel.facts, size, n, lanes, reserved, groups is None, panel_columns, unaligned)
        by_axis.append([(tile.efficiency(size, n), (axis, tile)) for tile in candidates])
    by_axis.sort(key=lambda of_axis: (of_axis[0][0], of_axis[0][1][0]), reverse=True)
    parts = [(name, about, partial(_tile_dimension, value)) for name, about, value in PARTS]
    row_choice = ("row_axis", "the loop that provides the rows of a tile", _row_axis)
    row, tile = choose_tile(
        kernel, [(1 / worth, choice) for of_axis in by_axis for worth, choice in of_axis], [row_choice, *parts]
    )
    outer = tuple(p for p in product.stage.spatial if p not in (row, product.n))
    return replace(product, m=row, outer=outer), tile


def _row_axis(pair: tuple[int, Tile]) -> int:
    return pair[0]


def _tile_dimension(value: Callable[[Tile], int], pair: tuple[int, Tile]) -> int:
    return value(pair[1])


def _shared_panel_columns(kernel: Kernel, product: Contraction) -> int:
    """Return the columns of the weight panels that versions of the kernel share, whichever axis provides the rows."""
    return 0 if product.rhs.windows else shared_columns(kernel, product, None)


def _has_unaligned_vectors(product: Contraction) -> bool:
    """Return True if vectors of data may begin at any element of a window."""
    window = product.rhs.windows.get(len(product.rhs.places) - 1, {})
    return not _stride(product) and any(p != product.n and product.extent(p) != 1 for p in window)


def _stride(product: Contraction) -> int:
    """Return the stride of the data between neighbouring columns of the result, or 0 if they are contiguous.

    It is the stride of the window in the last dimension.
    """
    last = len(product.rhs.places) - 1
    step = product.rhs.windows.get(last, {}).get(product.n, 1)
    return step if step > 1 else 0


def _outer_axes(kernel: Kernel, product: Contraction, weights: Operand, data: Operand, tile: Tile) -> list[int]:
    """Return the axes over tiles, outermost first: those of `weights` first, unless that moves more memory.

    The comparison is between rereading the data for each of these axes, and the weights for each tile of the data.
    """
    positions = [*product.outer, *([product.m] if product.m is not None else []), product.n]
    tile_extents = {product.m: tile.rows, product.n: tile.columns}

    def bytes_read(axes: list[int], other: Operand) -> float:
        """Return the bytes read from beyond the L2 cache if `other` is read for each tile along some axes."""
        size = _bytes(other)
        extents = [product.extent(p) for p in axes]
        if size is None or None in extents:
            return 0.0
        times = prod(-(-n // tile_extents.get(p, 1)) for n, p in zip(extents, axes, strict=True) if n is not None)
        return float(size * (times if size > kernel.facts.l2_bytes // 2 else 1))

    weight_axes = [p for p in positions if weights.has(p) and not data.has(p)]
    other_axes = [p for p in positions if p not in weight_axes]
    data_outside = bytes_read(other_axes, weights) + bytes_read([], data)
    weights_outer = data_outside >= bytes_read(weight_axes, data) + bytes_read([], weights)
    if weight_axes and other_axes:
        weights_outer = kernel.choose_bool(
            "weights_outside", "the loops over weights are outside those over data", weights_outer
        )
    return [*weight_axes, *other_axes] if weights_outer else [*other_axes, *weight_axes]


def _bytes(operand: Operand) -> int | None:
    extents = [tir.const_int(n) for n in operand.buffer.shape]
    return None if None in extents else prod(n for n in extents if n is not None) * operand.buffer.dtype.bits // 8


# ---------------------------------------------------------------- operands


def _prepare_data(
    kernel: Kernel, block: BlockRV, product: Contraction, data: Operand, groups: DotGroups | None
) -> list[BlockRV]:  # fmt: skip
    """Pad and rearrange the data where the tile needs it; return the copies that are still to be scheduled.

    Padding for the tile and padding of the convolution itself are merged into one copy. Columns that are read with a
    stride are split by phase (for stride 2 the even ones, then the odd ones), so that each phase is contiguous. The
    members of a dot-product group become contiguous, too, where they are not. Where vectors of data begin
    at the same columns as those of results, elements past the end are masked as they are loaded.
    """
    stride = _stride(product)
    data_in_groups = groups is not None and (data is product.rhs or product.contiguous_axis(data) != groups.place)
    copy = padding_copy(kernel, block, data.buffer)
    copy_dtype = groups.dtype if groups else widened_dtype(product)
    if copy is None and copy_dtype and not stride and not data_in_groups:
        data_producers = [
            p for p in kernel.sch.get_producers(block) if kernel.stage(p).block.writes[0].buffer is data.buffer
        ]
        if data_producers:
            kernel.sch.widen(data_producers[0], 0, copy_dtype)
            return []
    if copy is None and not stride and not data_in_groups and not copy_dtype:
        return []
    could_inline = (
        copy is not None and not stride and not groups and not copy_dtype and _reads_own_column(product, data)
    )
    if could_inline and not kernel.choose_bool("padded", "copy data with their padding", False):
        assert copy is not None
        if try_inline(kernel, copy):
            return []
    if copy is None:
        number = read_index(kernel, block, data.buffer)
        copy = kernel.sch.cache_read(block, number, "global")
    inline_into(kernel, copy)
    if copy_dtype and copy_dtype != str(kernel.stage(copy).block.writes[0].buffer.dtype):
        kernel.sch.widen(copy, 0, copy_dtype)
    if stride or data_in_groups:
        written = kernel.stage(copy).block.writes[0].buffer
        number = read_index(kernel, block, written)
        index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(written.shape))
        indices: list[tir.Expr] = list(index_vars)
        if stride:
            indices[-1:] = [c.floormod(index_vars[-1], stride), c.floordiv(index_vars[-1], stride)]
        if groups is not None and data_in_groups:
            dimension = data.places.index(groups.place)
            indices[dimension] = c.floordiv(index_vars[dimension], groups.size)
            indices.append(c.floormod(index_vars[dimension], groups.size))
        zero = c.const(0, written.dtype)
        index_map = tir.IndexMap(index_vars, tuple(indices))
        if stride and (tir.const_int(written.shape[-1]) or 1) % stride == 0 and not data_in_groups:
            kernel.sch.transform_block_layout(copy, index_map)  # otherwise rows are padded
        kernel.sch.transform_layout(block, ("read", number), index_map, zero)
    return [copy]


def _reads_own_column(product: Contraction, data: Operand) -> bool:
    """Return True if each column of the result reads the data at one column only."""
    window = data.windows.get(len(data.places) - 1, {data.places[-1]: 1})
    return all(axis == product.n or product.extent(axis) == 1 for axis in window)


def _pack_weights(
    kernel: Kernel, block: BlockRV, weights: Operand, product: Contraction, panel_columns: int, groups: DotGroups | None
) -> list[BlockRV]:  # fmt: skip
    """Pack the weights into panels as wide as a tile; return the copies that are still to be scheduled."""
    panel_axis = product.n if weights is product.rhs else product.m
    copy = padding_copy(kernel, block, weights.buffer)
    if panel_axis is None or not weights.has(panel_axis):
        return [] if copy is None else [copy]
    if copy is None:
        number = read_index(kernel, block, weights.buffer)
        copy = kernel.sch.cache_read(block, number, "global")
    if groups is not None:
        inline_into(kernel, copy)
        if groups.dtype:
            kernel.sch.widen(copy, 0, groups.dtype)
    written = kernel.stage(copy).block.writes[0].buffer
    number = read_index(kernel, block, written)
    index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(written.shape))
    if groups is not None:
        indices = grouped_panel_indices(index_vars, weights, panel_axis, panel_columns, product.k, groups)
        kernel.sch.transform_layout(block, ("read", number), tir.IndexMap(index_vars, indices))
        parallel = is_worth_parallelizing(kernel, kernel.stage(copy))
        outer_loops = schedule_panel_copy(kernel, copy, weights, panel_axis, panel_columns, groups, 0)
        if parallel:
            parallelize_outer(kernel, outer_loops)
        return []
    by_place = dict(zip(weights.places, index_vars, strict=True))
    panel_index = by_place.pop(panel_axis)
    depth_indices = [by_place.pop(k) for k in product.k]
    outer = [v for v in index_vars if any(v is rest for rest in by_place.values())]
    indices = (*outer, c.floordiv(panel_index, panel_columns), *depth_indices, c.floormod(panel_index, panel_columns))
    kernel.sch.transform_layout(block, ("read", number), tir.IndexMap(index_vars, indices))
    return [copy]


# ---------------------------------------------------------------- tiles


def _schedule_tiles(
    kernel: Kernel,
    block: BlockRV,
    epilogue: BlockRV,
    product: Contraction,
    tile: Tile,
    axis_order: list[int],
    groups: DotGroups | None,
    strips: Strips | None,
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the sums over the window and the stores, tile by tile.

    Return the loops over tiles, those over strips first, and the first reduction loop.
    """
    sch = kernel.sch
    loops = kernel.loops(block)
    panel, vectors, lane = sch.split(loops[product.n], [None, tile.vectors, tile.lanes])
    strip, row = sch.split(loops[product.m], [None, tile.rows])  # type: ignore[index]
    tile_loops = {product.n: panel, product.m: strip}
    lead: list[LoopRV] = []
    if strips is not None:
        lead, axis_order = [loops[p] for p in strips.lead], [p for p in axis_order if p not in strips.lead]
        strip_loop, loops[strips.axis] = sch.split(loops[strips.axis], [None, strips.rows])
        sch.annotate(loops[strips.axis], PARTITION, ALONE)  # the last strip may have fewer rows
        lead.append(strip_loop)
    outer = [*lead, *(tile_loops.get(p) or loops[p] for p in axis_order)]
    members: list[LoopRV] = []
    if groups is not None:
        loops[groups.place], *members = sch.split(loops[groups.place], [None, groups.size])
    depth = [loops[p] for p in product.k]
    inner = [row, vectors] if tile.vectors <= tile.rows else [vectors, row]
    sch.reorder(*outer, *depth, *inner, lane, *members)
    sch.reverse_compute_at(epilogue, outer[-1])
    unroll_count = _unrolled_loops(kernel, product) if groups is None else 0
    for loop in (*depth[len(depth) - unroll_count :], *inner):
        sch.unroll(loop)
    unroll_group(kernel, product.stage, members)
    sch.vectorize(lane)
    schedule_tile_stores(kernel, epilogue, len(outer), tile)
    return outer, depth[0]


def _unrolled_loops(kernel: Kernel, product: Contraction) -> int:
    """Choose how many of the innermost loops over the window to unroll; none by default."""
    candidates, steps = [0], 1
    for count, axis in enumerate(reversed(product.k[1:]), 1):
        steps *= product.extent(axis) or MAX_UNROLLED + 1
        if 1 < steps <= MAX_UNROLLED:
            candidates.append(count)
    return kernel.choose("unrolled", "innermost loops over the window that are unrolled", candidates)
