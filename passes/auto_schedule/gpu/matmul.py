"""Products of matrices: a block of threads has a tile of the result, a thread a smaller one in registers.

Strips of both operands are fetched into shared memory by all threads of a block, depth by depth. A thread's tile is
some pieces of 4 x 4 (virtual threads), so that a warp's loads from shared memory go by whole vectors without conflicts.
Blocks that run at the same time have tiles near one another, in rows and in columns: they share what they fetch.
"""

from __future__ import annotations

from math import isqrt

from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.gpu.product_parts import (
    absorb_readers,
    as_gemm,
    has_several_axes,
    loops_down_to,
    pad_to_tiles,
    schedule_rest,
)
from mlcc.passes.auto_schedule.gpu.simt_tiles import PARTS, PIECE, Tile, fitting_tiles
from mlcc.passes.auto_schedule.gpu.strips import fetch, pipeline, strip
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.nests import vector_place
from mlcc.passes.auto_schedule.offers import around, divisors
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.schedule.handles import BlockRV, LoopRV

LEAST = 16  # rows and columns from which on tiles pay


def matmul(kernel: GpuKernel) -> str:
    """The rule for products of matrices whose operands are read by axes, as the module says."""
    block, product = only_product(kernel)
    if has_several_axes(product) and None not in product.stage.extents:
        block, product = as_gemm(kernel, block, product)
    tiled(kernel, block, product)
    return f"`{product.stage.block.name}` is a product of matrices"


def conv(kernel: GpuKernel) -> str:
    """The rule for convolutions: products of matrices, one of which is read at windows as it is fetched."""
    block, product = only_product(kernel, windows=True)
    name = product.stage.block.name
    tiled(kernel, *as_gemm(kernel, block, product), windows=True)
    return f"`{name}` is a convolution"


def tiled(kernel: GpuKernel, block: BlockRV, product: Contraction, windows: bool = False) -> None:
    """Schedule a product of matrices by tiles, and whatever else there is. An operand may be read at `windows`."""
    if product.m is None or any((product.extent(p) or LEAST) < LEAST for p in (product.m, product.n)):
        not_this("too few rows or columns for tiles")
    element = max(o.buffer.dtype.bytes for o in (product.lhs, product.rhs, product.stage.stores[0]))
    m, n = product.extent(product.m), product.extent(product.n)
    tile = choose_tile(kernel, fitting_tiles(kernel.facts, m, n, product.times, element, windows), PARTS)
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, tile.depth)
    for reader in kernel.sch.get_consumers(block):  # while all of it is still whole
        absorb_readers(kernel, reader)
    strips = [strip(kernel, block, product, o) for o in (product.lhs, product.rhs)]
    store = kernel.sch.cache_write(block, 0, "local")
    thread, depth = _tiles(kernel, block, product, tile)
    for copy in strips:
        fetch(kernel, copy, depth, tile)
    _store(kernel, store, thread)
    kernel.sch.decompose_reduction(block, depth)
    ahead = pipeline(kernel, depth, strips, tile) - 1
    kernel.say(str(tile) + (f", fetched {ahead} steps ahead" if ahead else ""))
    schedule_rest(kernel, (block, store, *strips))


def _tiles(kernel: GpuKernel, block: BlockRV, product: Contraction, tile: Tile) -> tuple[LoopRV, LoopRV]:
    """The loops over tiles and within them; gives the innermost one over threads, and the one over depth."""
    sch, loops = kernel.sch, kernel.loops(block)
    assert product.m is not None
    far_m, vm, ty, m = sch.split(loops[product.m], [None, tile.rows // (tile.y * PIECE), tile.y, PIECE])
    far_n, vn, tx, n = sch.split(loops[product.n], [None, tile.columns // (tile.x * PIECE), tile.x, PIECE])
    *upper, last = (loops[p] for p in product.k)
    deep, k = sch.split(last, [None, tile.depth])
    outer = [loops[p] for p in product.outer]
    together = _rows_together(kernel, product, tile)
    far_m, *near_m = sch.split(far_m, [None, together]) if together > 1 else (far_m,)
    sch.reorder(*outer, far_m, far_n, *near_m, vm, vn, ty, tx, *upper, deep, k, m, n)
    sch.bind(sch.fuse(*outer, far_m, far_n, *near_m), "blockIdx.x")
    for loop, axis, count in ((vm, "vthread.y", tile.rows // tile.y), (vn, "vthread.x", tile.columns // tile.x)):
        if count > PIECE:
            sch.bind(loop, axis)
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    for loop in (k, m, n):
        sch.unroll(loop)
    return tx, sch.fuse(*upper, deep) if upper else deep


def _rows_together(kernel: GpuKernel, product: Contraction, tile: Tile) -> int:
    """Choose how many rows of tiles neighbouring blocks traverse together, to reuse operands in the L2 cache.

    The default is 1 if the operands fit the L2 cache, else about the number of columns of tiles in flight.
    """
    m, n, depth = product.extent(product.m), product.extent(product.n), product.depth
    if m is None or n is None or depth is None:
        return 1
    count, most = -(-m // tile.rows), isqrt(kernel.facts.sm_count)
    options = divisors(count, most)
    guess = 1 if (m + n) * depth * product.lhs.buffer.dtype.bytes <= kernel.facts.l2_bytes else options[-1]
    return kernel.choose("together", "rows of tiles that go side by side", around(guess, options))


def _store(kernel: GpuKernel, block: BlockRV, thread: LoopRV) -> None:
    """A thread stores its tile, with what follows element by element, in vectors where memory is as the tile."""
    sch = kernel.sch
    sch.reverse_compute_at(block, thread)
    absorb_readers(kernel, block)
    first = loops_down_to(kernel, block, thread)
    stage, loops = kernel.stage(block), kernel.loops(block)
    last = len(loops) - 1
    whole = stage.extents[last] == PIECE and (tir.const_int(stage.stores[0].buffer.shape[-1]) or 1) % PIECE == 0
    for place in range(first, last):
        sch.unroll(loops[place])
    if whole and vector_place(stage, [last]) == last and set(stage.steps_by(last)) <= {0, 1}:
        sch.vectorize(loops[last])
    else:
        sch.unroll(loops[last])
