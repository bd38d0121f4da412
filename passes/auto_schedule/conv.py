"""Convolutions as they stand, without a matrix of all windows: sums of products of data, read at windows such as
`y * 2 + r`, and weights.

Weights stand in panels as wide as a register tile, which costs nothing where they are known. Data are read where they
are: element by element where results are consecutive over channels (NHWC), in vectors where they are over columns
(NCHW). What a tile has beyond the end is computed from zeros, and not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.groups import Groups, fill, grouped, inline_into, side_by_side, sum_nests
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import share_out, worth_threads
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

MOST_UNROLLED = 16  # steps of the sums that are written out one after the other


def conv(kernel: Kernel) -> str:
    """The rule: tiles over panels of weights, as the module says."""
    block, product = only_product(kernel, windows=True)
    _check(product)
    product, groups = grouped(kernel, block, product)
    product, tile = _tiled(kernel, product, groups)
    step = _shared(kernel, product) or tile.columns
    weights, data = (product.lhs, product.rhs) if product.rhs.windows else (product.rhs, product.lhs)
    in_groups = f"; {groups}" if groups else ""
    kernel.say(
        f"tiles of {tile.rows} rows and {tile.vectors} vectors of {tile.lanes}; panels of the weights{in_groups}"
    )
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    many = worth_threads(kernel, product.stage)
    deep = {groups.place: groups.size} if groups else None
    epilogue = in_registers(kernel, block, product, max(tile.columns, step), tile.rows, deep)
    others += _data(kernel, block, product, data, groups)
    others += _panels(kernel, block, weights, product, step if weights is product.rhs else tile.rows, groups)
    order = _outer_axes(kernel, product, weights, data, tile)
    outer, depth = _tiles(kernel, block, epilogue, product, tile, order, groups)
    if many:
        share_out(kernel, outer)
    kernel.sch.decompose_reduction(block, depth)
    if groups is not None:
        others = sum_nests(kernel, others, epilogue, tile, step, groups)
    schedule_others(kernel, others, epilogue)
    return f"`{product.stage.block.name}` is a convolution"


# ---------------------------------------------------------------- what is to be done


def _check(product: Contraction) -> None:
    """Raise NotThis for products that no tile fits."""
    if product.rhs.windows and product.consecutive(product.rhs) != product.n and not _stride(product):
        not_this("the columns of the data are not neighbours")
    if not _own(product):
        not_this("nothing but the window moves")


def _own(product: Contraction) -> list[int]:
    """Return the axes along which a tile may have its rows."""
    return [p for p in product.stage.spatial if product.lhs.has(p) and not product.rhs.has(p)]


def _tiled(kernel: Kernel, product: Contraction, groups: Groups | None) -> tuple[Contraction, Tile]:
    """Choose the tile that wastes least, over all axes of the left operand along which it may have its rows."""
    lanes, n = element_lanes(kernel, product), product.extent(product.n)
    spare = groups.spare(kernel) if groups else None
    shared, anywhere = _shared(kernel, product), _anywhere(product)
    by_axis = []
    for place in _own(product):
        size = product.extent(place)
        fitting = tiles(kernel.facts, size, n, lanes, spare, groups is None, shared, anywhere)
        by_axis.append([(tile.efficiency(size, n), (place, tile)) for tile in fitting])
    by_axis.sort(key=lambda of_axis: (of_axis[0][0], of_axis[0][1][0]), reverse=True)
    parts = [(name, about, partial(_of_tile, value)) for name, about, value in PARTS]
    along = ("row_axis", "the loop that a tile has its rows along", _axis)
    row, tile = choose_tile(
        kernel, [(1 / worth, one) for of_axis in by_axis for worth, one in of_axis], [along, *parts]
    )
    outer = tuple(p for p in product.stage.spatial if p not in (row, product.n))
    return replace(product, m=row, outer=outer), tile


def _axis(pair: tuple[int, Tile]) -> int:
    return pair[0]


def _of_tile(value: Callable[[Tile], int], pair: tuple[int, Tile]) -> int:
    return value(pair[1])


def _shared(kernel: Kernel, product: Contraction) -> int:
    """The columns of panels of weights that versions of the kernel share: whichever axis gives a tile its rows."""
    return 0 if product.rhs.windows else shared_columns(kernel, product, None)


def _anywhere(product: Contraction) -> bool:
    """Return True if vectors of data may begin at any element of a window."""
    along = product.rhs.windows.get(len(product.rhs.places) - 1, {})
    return not _stride(product) and any(p != product.n and product.extent(p) != 1 for p in along)


def _stride(product: Contraction) -> int:
    """Return the stride of the data between neighbouring columns of the result, or 0 if they are contiguous.

    It is the step along a window in the last dimension.
    """
    last = len(product.rhs.places) - 1
    step = product.rhs.windows.get(last, {}).get(product.n, 1)
    return step if step > 1 else 0


def _outer_axes(kernel: Kernel, product: Contraction, weights: Operand, data: Operand, tile: Tile) -> list[int]:
    """Return the axes around tiles, outermost first: those of `weights` first, unless that moves more memory.

    Compared are reading the data again for each of these axes, and the weights for each tile of the data.
    """
    places = [*product.outer, *([product.m] if product.m is not None else []), product.n]
    steps = {product.m: tile.rows, product.n: tile.columns}

    def again(own: list[int], other: Operand) -> float:
        """Return the bytes read from beyond the L2 cache if `other` is read for each tile along some axes."""
        size = _bytes(other)
        extents = [product.extent(p) for p in own]
        if size is None or None in extents:
            return 0.0
        times = prod(-(-n // steps.get(p, 1)) for n, p in zip(extents, own, strict=True) if n is not None)
        return float(size * (times if size > kernel.facts.l2_bytes // 2 else 1))

    by_weights = [p for p in places if weights.has(p) and not data.has(p)]
    rest = [p for p in places if p not in by_weights]
    outside = again(rest, weights) + again([], data) >= again(by_weights, data) + again([], weights)
    if by_weights and rest:
        outside = kernel.either("weights_outside", "the axes of the weights are around those of the data", outside)
    return [*by_weights, *rest] if outside else [*rest, *by_weights]


def _bytes(operand: Operand) -> int | None:
    extents = [tir.const_int(n) for n in operand.buffer.shape]
    return None if None in extents else prod(n for n in extents if n is not None) * operand.buffer.dtype.bits // 8


# ---------------------------------------------------------------- the operands


def _data(
    kernel: Kernel, block: BlockRV, product: Contraction, data: Operand, groups: Groups | None
) -> list[BlockRV]:  # fmt: skip
    """Data that are padded for the tile, and were padded for the convolution before, are padded once. Columns that are
    read every few elements come to stand side by side: first all even ones, then all odd ones, if that is 2. So do the
    members of a group, where vectors go over columns. Where vectors of data begin where those of results do, what is
    beyond the end is left out as they are loaded."""
    stride = _stride(product)
    apart = groups is not None and data is product.rhs
    copy = padding_of(kernel, block, data.buffer)
    wide = groups.dtype if groups else widened(product)
    if copy is None and wide and not stride and not apart:
        made_before = [
            p for p in kernel.sch.get_producers(block) if kernel.stage(p).block.writes[0].buffer is data.buffer
        ]
        if made_before:
            kernel.sch.widen(made_before[0], 0, wide)
            return []
    if copy is None and not stride and not apart and not wide:
        return []
    spare = copy is not None and not stride and not groups and not wide and _goes_along(product, data)
    if spare and not kernel.either("padded", "data are copied with their padding", False):
        assert copy is not None
        if try_inline(kernel, copy):
            return []
    if copy is None:
        number = number_of(kernel, block, data.buffer)
        copy = kernel.sch.cache_read(block, number, "global")
    inline_into(kernel, copy)
    if wide and wide != str(kernel.stage(copy).block.writes[0].buffer.dtype):
        kernel.sch.widen(copy, 0, wide)
    if stride or apart:
        written = kernel.stage(copy).block.writes[0].buffer
        number = number_of(kernel, block, written)
        given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(written.shape))
        indices: list[tir.Expr] = list(given)
        if stride:
            indices[-1:] = [c.floormod(given[-1], stride), c.floordiv(given[-1], stride)]
        if groups is not None and apart:
            at = data.places.index(groups.place)
            indices[at] = c.floordiv(given[at], groups.size)
            indices.append(c.floormod(given[at], groups.size))
        zero = c.const(0, written.dtype)
        index_map = tir.IndexMap(given, tuple(indices))
        if stride and (tir.const_int(written.shape[-1]) or 1) % stride == 0 and not apart:
            kernel.sch.transform_block_layout(copy, index_map)  # else rows are filled up, by loops of that kind
        kernel.sch.transform_layout(block, ("read", number), index_map, zero)
    return [copy]


def _goes_along(product: Contraction, data: Operand) -> bool:
    """Return True if each column of the result reads the data at one column only."""
    window = data.windows.get(len(data.places) - 1, {data.places[-1]: 1})
    return all(place == product.n or product.extent(place) == 1 for place in window)


def _panels(
    kernel: Kernel, block: BlockRV, weights: Operand, product: Contraction, step: int, groups: Groups | None
) -> list[BlockRV]:  # fmt: skip
    """Pack the weights into panels as wide as a tile; return the blocks that copy and are still to be scheduled."""
    place = product.n if weights is product.rhs else product.m
    copy = padding_of(kernel, block, weights.buffer)
    if place is None or not weights.has(place):
        return [] if copy is None else [copy]
    if copy is None:
        number = number_of(kernel, block, weights.buffer)
        copy = kernel.sch.cache_read(block, number, "global")
    if groups is not None:
        inline_into(kernel, copy)
        if groups.dtype:
            kernel.sch.widen(copy, 0, groups.dtype)
    written = kernel.stage(copy).block.writes[0].buffer
    number = number_of(kernel, block, written)
    given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(written.shape))
    if groups is not None:
        indices = side_by_side(given, weights, place, step, product.k, groups)
        kernel.sch.transform_layout(block, ("read", number), tir.IndexMap(given, indices))
        many = worth_threads(kernel, kernel.stage(copy))
        around = fill(kernel, copy, weights, place, step, groups, 0)
        if many:
            share_out(kernel, around)
        return []
    by_place = dict(zip(weights.places, given, strict=True))
    own = by_place.pop(place)
    deep = [by_place.pop(k) for k in product.k]
    outer = [v for v in given if any(v is rest for rest in by_place.values())]
    indices = (*outer, c.floordiv(own, step), *deep, c.floormod(own, step))
    kernel.sch.transform_layout(block, ("read", number), tir.IndexMap(given, indices))
    return [copy]


# ---------------------------------------------------------------- the tiles


def _tiles(
    kernel: Kernel,
    block: BlockRV,
    epilogue: BlockRV,
    product: Contraction,
    tile: Tile,
    order: list[int],
    groups: Groups | None,
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the sums over the window and the stores, tile by tile.

    Return the loops over tiles and the first reduction loop.
    """
    sch = kernel.sch
    loops = kernel.loops(block)
    panel, vectors, lane = sch.split(loops[product.n], [None, tile.vectors, tile.lanes])
    strip, row = sch.split(loops[product.m], [None, tile.rows])  # type: ignore[index]
    at = {product.n: panel, product.m: strip}
    outer = [at.get(p) or loops[p] for p in order]
    members: list[LoopRV] = []
    if groups is not None:
        loops[groups.place], *members = sch.split(loops[groups.place], [None, groups.size])
    depth = [loops[p] for p in product.k]
    inner = [row, vectors] if tile.vectors <= tile.rows else [vectors, row]
    sch.reorder(*outer, *depth, *inner, lane, *members)
    sch.reverse_compute_at(epilogue, outer[-1])
    written = _written_out(kernel, product) if groups is None else 0
    for loop in (*depth[len(depth) - written :], *inner, *members):
        sch.unroll(loop)
    sch.vectorize(lane)
    tile_stores(kernel, epilogue, len(outer), tile)
    return outer, depth[0]


def _written_out(kernel: Kernel, product: Contraction) -> int:
    """Choose how many of the innermost loops over the window to unroll; none by default."""
    fitting, steps = [0], 1
    for count, place in enumerate(reversed(product.k[1:]), 1):
        steps *= product.extent(place) or MOST_UNROLLED + 1
        if 1 < steps <= MOST_UNROLLED:
            fitting.append(count)
    return kernel.choose("unrolled", "innermost loops over the window that are written out", fitting)
