"""Products of matrices: a block of threads has a tile of the result, a thread a smaller one in registers.

Strips of both operands are fetched into shared memory by all threads of a block, depth by depth. A thread's tile is
some pieces of 4 x 4 (virtual threads), so that a warp's loads from shared memory go by whole vectors without conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES, thread_nest
from mlcc.passes.auto_schedule.gpu.product_parts import (
    absorb_readers,
    as_gemm,
    fetched,
    has_several_axes,
    loops_down_to,
    pad_to_tiles,
)
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.nests import vector_place
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

PIECE = 4  # rows and columns of a piece of a thread's tile
BANKS = 32  # of shared memory, 4 bytes wide
LEAST = 16  # rows and columns from which on tiles pay


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` of the result in a block of `y` x `x` threads, `depth` products at a time. `speed` is how fast
    a full multiprocessor works on such tiles, about, the largest being 1: small ones load more for each product."""

    rows: int
    columns: int
    depth: int
    y: int
    x: int
    speed: float

    def __str__(self) -> str:
        return f"tiles of {self.rows} x {self.columns} in {self.y} x {self.x} threads, {self.depth} deep"


TILES = (
    Tile(128, 128, 8, 16, 16, 1.0),
    Tile(128, 64, 8, 16, 16, 0.85),
    Tile(64, 64, 16, 16, 16, 0.7),
    Tile(32, 64, 16, 8, 16, 0.6),
    Tile(32, 32, 16, 8, 8, 0.4),
    Tile(16, 64, 16, 4, 16, 0.4),
)


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
    tiled(kernel, *as_gemm(kernel, block, product))
    return f"`{name}` is a convolution"


def tiled(kernel: GpuKernel, block: BlockRV, product: Contraction) -> None:
    """Schedule a product of matrices by tiles, and whatever else there is."""
    if product.m is None or any((product.extent(p) or LEAST) < LEAST for p in (product.m, product.n)):
        not_this("too few rows or columns for tiles")
    tile = _best_tile(kernel, product)
    kernel.say(str(tile))
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, tile.depth)
    for reader in kernel.sch.get_consumers(block):  # while all of it is still whole
        absorb_readers(kernel, reader)
    strips = [_strip(kernel, block, product, o) for o in (product.lhs, product.rhs)]
    store = kernel.sch.cache_write(block, 0, "local")
    thread, depth = _tiles(kernel, block, product, tile)
    for strip in strips:
        _fetch(kernel, strip, depth, tile)
    _store(kernel, store, thread)
    kernel.sch.decompose_reduction(block, depth)
    done = {kernel.sch.get(b) for b in (block, store, *strips)}
    for other in kernel.blocks():
        if not any(kernel.sch.get(other) is b for b in done) and not kernel.stage(other).block.name.endswith("_init"):
            kernel.say(thread_nest(kernel, other))


def _best_tile(kernel: GpuKernel, product: Contraction) -> Tile:
    """The tile with which the whole takes least: rounds of tiles over all multiprocessors. Sizes that are not known are
    taken to be large."""
    m, n = (product.extent(p) or 4096 for p in (product.m, product.n))
    batches = product.times or 16

    def cost(tile: Tile) -> float:
        count = -(-m // tile.rows) * -(-n // tile.columns) * batches
        return -(-count // kernel.facts.sm_count) * tile.rows * tile.columns / tile.speed

    return min(TILES, key=cost)


def _strip(kernel: GpuKernel, block: BlockRV, product: Contraction, operand: Operand) -> BlockRV:
    """The block that copies an operand into shared memory, where what a thread multiplies at a time lies side by
    side."""
    made, buffer = fetched(kernel, block, operand, "shared")
    if product.consecutive(operand) in product.k:
        kernel.sch.transform_layout(made, ("write", 0), _depth_first(buffer, operand, product))
        kernel.sch.storage_align(made, 0, -2, BANKS, PIECE)
    return made


def _depth_first(buffer: tir.Buffer, operand: Operand, product: Contraction) -> tir.IndexMap:
    """The dimensions of an operand with those that are summed up over before its own."""
    given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    own = product.m if operand is product.lhs else product.n
    ranks = dict.fromkeys(product.k, 1) | {own: 2}
    by_rank = sorted(zip(given, operand.places, strict=True), key=lambda pair: ranks.get(pair[1], 0))
    return tir.IndexMap(given, tuple(v for v, _ in by_rank))


def _tiles(kernel: GpuKernel, block: BlockRV, product: Contraction, tile: Tile) -> tuple[LoopRV, LoopRV]:
    """The loops over tiles and within them; gives the innermost one over threads, and the one over depth."""
    sch, loops = kernel.sch, kernel.loops(block)
    assert product.m is not None
    far_m, vm, ty, m = sch.split(loops[product.m], [None, tile.rows // (tile.y * PIECE), tile.y, PIECE])
    far_n, vn, tx, n = sch.split(loops[product.n], [None, tile.columns // (tile.x * PIECE), tile.x, PIECE])
    *upper, last = (loops[p] for p in product.k)
    deep, k = sch.split(last, [None, tile.depth])
    outer = [loops[p] for p in product.outer]
    sch.reorder(*outer, far_m, far_n, vm, vn, ty, tx, *upper, deep, k, m, n)
    sch.bind(sch.fuse(*outer, far_m, far_n), "blockIdx.x")
    for loop, axis, count in ((vm, "vthread.y", tile.rows // tile.y), (vn, "vthread.x", tile.columns // tile.x)):
        if count > PIECE:
            sch.bind(loop, axis)
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    for loop in (k, m, n):
        sch.unroll(loop)
    return tx, sch.fuse(*upper, deep) if upper else deep


def _fetch(kernel: GpuKernel, strip: BlockRV, depth: LoopRV, tile: Tile) -> None:
    """All threads of a block fetch a strip together, in vectors where that reads memory as it lies."""
    sch = kernel.sch
    sch.compute_at(strip, depth)
    lanes = _lanes(kernel.stage(strip))
    own = kernel.loops(strip)[loops_down_to(kernel, strip, depth) :]
    fused = sch.fuse(*own) if len(own) > 1 else own[0]
    _, y, x, *vector = sch.split(fused, [None, tile.y, tile.x, *([lanes] if lanes > 1 else [])])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    for lane in vector:
        sch.vectorize(lane)


def _lanes(stage: Stage) -> int:
    """Elements that one access fetches."""
    innermost = stage.extents[-1]
    loads = [(s, a) for s, a in zip(stage.steps_by(len(stage.loops) - 1), stage.accesses, strict=True) if not a.stored]
    if innermost is None or any(s != 1 for s, _ in loads):
        return 1
    lanes = VECTOR_BYTES // stage.element_bytes
    rows = [tir.const_int(a.buffer.shape[-1]) for _, a in loads]
    guarded = not isinstance(stage.stores[0].value, tir.BufferLoad)
    while lanes > 1 and (guarded or innermost % lanes or any(r is None or r % lanes for r in rows)):
        lanes //= 2
    return max(lanes, 1)


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
