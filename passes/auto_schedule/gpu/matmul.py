"""Matrix products without tensor cores: a block of threads computes a tile, each thread a register tile of it.

All threads of a block fetch strips of both operands into shared memory, step by step along the depth. A thread's tile
consists of pieces of 4 x 4 (virtual threads), so that a warp loads whole vectors from shared memory without bank
conflicts. Blocks that run at the same time have neighbouring tiles, in rows and columns, and share operands in the L2
cache.
"""

from __future__ import annotations

from functools import partial
from math import isqrt

from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.gpu.product_parts import (
    MIN_TILED_EXTENT,
    as_gemm,
    fuse_epilogue,
    has_several_axes,
    loop_depth,
    pad_to_tiles,
    schedule_rest,
)
from mlcc.passes.auto_schedule.gpu.simt_tiles import PARTS, PIECE, Tile, fitting_tiles, product_seconds
from mlcc.passes.auto_schedule.gpu.split_k import add_parts, split_to_gemm, splittable_sizes
from mlcc.passes.auto_schedule.gpu.strips import cache_strip, fetch, pipeline
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.nests import vectorizable_loop
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.auto_schedule.tuning_choices import divisors, nearest_first
from mlcc.passes.schedule.handles import BlockRV, LoopRV


def matmul(kernel: GpuKernel) -> str:
    """Schedule a matrix product whose operands are indexed by axes; see the module."""
    block, product = only_product(kernel)
    if has_several_axes(product) and None not in product.stage.extents:
        block, product = as_gemm(kernel, block, product)
    schedule_tiled(kernel, block, product)
    return f"`{product.stage.block.name}` is a matrix product"


def conv(kernel: GpuKernel) -> str:
    """Schedule a convolution as a matrix product, one operand of which is read at windows as it is fetched."""
    block, product = only_product(kernel, windows=True)
    name = product.stage.block.name
    schedule_tiled(kernel, *as_gemm(kernel, block, product), windows=True)
    return f"`{name}` is a convolution"


def schedule_tiled(kernel: GpuKernel, block: BlockRV, product: Contraction, windows: bool = False) -> None:
    """Schedule a matrix product in tiles, and all other blocks. An operand may be read at `windows`."""
    if product.m is None or any(
        (product.extent(p) or MIN_TILED_EXTENT) < MIN_TILED_EXTENT for p in (product.m, product.n)
    ):
        not_applicable("too few rows or columns for tiles")
    element = max(o.buffer.dtype.bytes for o in (product.lhs, product.rhs, product.stage.stores[0]))
    m, n = product.extent(product.m), product.extent(product.n)
    tiles = fitting_tiles(kernel.facts, m, n, product.times, element, windows)
    split = None
    known = None if windows else splittable_sizes(product)
    if known is not None:
        dtype = product.stage.stores[0].buffer.dtype
        time = partial(product_seconds, kernel.facts, *known[:2], element, dtype)
        split = split_to_gemm(kernel, block, product, time)
    if split is not None:
        block, product = split.partial, split.product
        tiles = fitting_tiles(kernel.facts, m, n, product.times, element)
    tile = choose_tile(kernel, tiles, PARTS)
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, tile.depth)
    for reader in kernel.sch.get_consumers(block):  # before the product is tiled
        fuse_epilogue(kernel, reader)
    strips = [cache_strip(kernel, block, product, o) for o in (product.lhs, product.rhs)]
    store = kernel.sch.cache_write(block, 0, "local")
    thread, depth = _tile_loops(kernel, block, product, tile)
    for copy in strips:
        fetch(kernel, copy, depth, tile)
    _store_tile(kernel, store, thread)
    kernel.sch.decompose_reduction(block, depth)
    steps_ahead = pipeline(kernel, depth, strips, tile) - 1
    kernel.say(str(tile) + (f", fetched {steps_ahead} steps ahead" if steps_ahead else ""))
    done = [block, store, *strips]
    if split is not None:
        done += [split.total, add_parts(kernel, split.total)]
    schedule_rest(kernel, done)


def _tile_loops(kernel: GpuKernel, block: BlockRV, product: Contraction, tile: Tile) -> tuple[LoopRV, LoopRV]:
    """Tile and bind the loops; return the innermost one over threads, and the one over depth."""
    sch, loops = kernel.sch, kernel.loops(block)
    assert product.m is not None
    block_m, vm, ty, m = sch.split(loops[product.m], [None, tile.rows // (tile.y * PIECE), tile.y, PIECE])
    block_n, vn, tx, n = sch.split(loops[product.n], [None, tile.columns // (tile.x * PIECE), tile.x, PIECE])
    *upper, last = (loops[p] for p in product.k)
    deep, k = sch.split(last, [None, tile.depth])
    outer = [loops[p] for p in product.outer]
    block_rows = _choose_block_rows(kernel, product, tile)
    block_m, *row_in_group = sch.split(block_m, [None, block_rows]) if block_rows > 1 else (block_m,)
    sch.reorder(*outer, block_m, block_n, *row_in_group, vm, vn, ty, tx, *upper, deep, k, m, n)
    sch.bind(sch.fuse(*outer, block_m, block_n, *row_in_group), "blockIdx.x")
    for loop, axis, count in ((vm, "vthread.y", tile.rows // tile.y), (vn, "vthread.x", tile.columns // tile.x)):
        if count > PIECE:
            sch.bind(loop, axis)
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    for loop in (k, m, n):
        sch.unroll(loop)
    return tx, sch.fuse(*upper, deep) if upper else deep


def _choose_block_rows(kernel: GpuKernel, product: Contraction, tile: Tile) -> int:
    """Choose how many rows of tiles neighbouring blocks traverse together (swizzle), to reuse operands in the L2 cache.

    The default is 1 if the operands fit the L2 cache, else about the number of columns of tiles in flight.
    """
    m, n, depth = product.extent(product.m), product.extent(product.n), product.depth
    if m is None or n is None or depth is None:
        return 1
    count, max_rows = -(-m // tile.rows), isqrt(kernel.facts.sm_count)
    options = divisors(count, max_rows)
    default = 1 if (m + n) * depth * product.lhs.buffer.dtype.bytes <= kernel.facts.l2_bytes else options[-1]
    return kernel.choose("together", "rows of tiles that blocks traverse together", nearest_first(default, options))


def _store_tile(kernel: GpuKernel, block: BlockRV, thread: LoopRV) -> None:
    """Store a thread's tile with its epilogue, in vectors where the result is contiguous and aligned."""
    sch = kernel.sch
    sch.reverse_compute_at(block, thread)
    fuse_epilogue(kernel, block)
    first = loop_depth(kernel, block, thread)
    stage, loops = kernel.stage(block), kernel.loops(block)
    last = len(loops) - 1
    is_full_vector = (
        stage.extents[last] == PIECE and (tir.const_int(stage.stores[0].buffer.shape[-1]) or 1) % PIECE == 0
    )
    for position in range(first, last):
        sch.unroll(loops[position])
    if is_full_vector and vectorizable_loop(stage, [last]) == last and set(stage.steps_by(last)) <= {0, 1}:
        sch.vectorize(loops[last])
    else:
        sch.unroll(loops[last])
