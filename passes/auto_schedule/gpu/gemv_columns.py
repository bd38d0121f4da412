"""Products `y[n] = sum of x[k] * W[k, n]` with few vectors x, and W contiguous along n.

Threads run along n, each with some adjacent columns, so that a warp reads whole cache lines; groups of threads split k.
The partial sums of the groups are exchanged through shared memory, where each thread adds up those of some results.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.passes.auto_schedule.gpu.product_parts import (
    fuse_epilogue,
    inline_copies,
    loop_depth,
    pad_axes,
    schedule_rest,
)
from mlcc.passes.auto_schedule.gpu.skinny_gemm import (
    MAX_SUMS,
    SkinnyGemm,
    blocks_for,
    match_skinny_gemm,
    reorder_by_role,
)
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.tuning_choices import descending_powers_of_two
from mlcc.passes.schedule.handles import BlockRV, LoopRV

ROWS_IN_FLIGHT = (4, 2)  # rows of the matrix in flight per thread: for up to 4 vectors, and for more
LINE_BYTES = 128  # least contiguous bytes that adjacent threads read
THREADS = (256, 512)  # threads per block: with enough blocks, and with few


@dataclass(frozen=True)
class BlockShape:
    """The shape of a thread block: `x` threads of `lanes` columns each, in `y` groups that take `rows` rows in turn."""

    x: int
    y: int
    lanes: int
    rows: int


def columns(kernel: GpuKernel) -> str:
    """Schedule a skinny product whose matrix is contiguous along the results; see the module."""
    gemm = match_skinny_gemm(kernel)
    if gemm.product.contiguous_axis(gemm.matrix) != gemm.matrix_axes[-1]:
        not_applicable("the matrix is not contiguous along the results")
    shape = _choose_shape(kernel, gemm)
    sch, stage, name = kernel.sch, gemm.product.stage, gemm.product.stage.block.name
    pad_axes(kernel, gemm.block, gemm.product, {gemm.matrix_axes[-1]: shape.x * shape.lanes})
    for reader in sch.get_consumers(gemm.block):  # before the product is tiled
        fuse_epilogue(kernel, reader)
    inline_copies(kernel, gemm.block)
    *_, depth_loop = reorder_by_role(kernel, gemm)
    step, depth = shape.y * shape.rows, gemm.product.depth
    if depth is None or depth % step:
        if len(gemm.reduce_axes) > 1:
            not_applicable("the rows span several axes, which the groups do not divide")
        sch.pad_reduction(depth_loop, step)
    _, group, _ = sch.split(depth_loop, [None, shape.y, shape.rows])
    partial = sch.rfactor(group, 0)
    _schedule(kernel, gemm, partial, shape)
    kernel.say(f"{shape.x} threads of {shape.lanes} columns each, in {shape.y} groups over the rows")
    return (
        f"`{name}` reads a matrix of {_size_text(stage.extents[gemm.matrix_axes[-1]])} columns for {gemm.count} vectors"
    )


def _size_text(size: int | None) -> str:
    return "many" if size is None else str(size)


def _choose_shape(kernel: GpuKernel, gemm: SkinnyGemm) -> BlockShape:
    facts, lanes = kernel.facts, gemm.lanes
    rows = ROWS_IN_FLIGHT[gemm.count > ROWS_IN_FLIGHT[0]]
    rows = kernel.choose(
        "rows", "rows of the matrix in flight per thread", [rows, *(n for n in (8, 4, 2, 1) if n != rows)]
    )
    while lanes > 1 and lanes * gemm.count > MAX_SUMS:
        lanes //= 2
    min_threads = max(LINE_BYTES // (lanes * gemm.matrix.buffer.dtype.bytes), 1)
    x = facts.warp
    while x > min(min_threads, facts.warp) and blocks_for(gemm, x * lanes) < 2 * facts.sm_count:
        x //= 2
    threads = THREADS[0] if blocks_for(gemm, x * lanes) >= 4 * facts.sm_count else THREADS[1]
    y, bytes_each = threads // x, x * lanes * gemm.count * max(gemm.product.stage.element_bytes, 4)
    while x > 1 and (gemm.product.extent(gemm.matrix_axes[-1]) or x * lanes) <= x // 2 * lanes:
        x //= 2
    x = kernel.choose("columns", "adjacent threads along the columns", descending_powers_of_two(x))
    while y > 1 and (y * bytes_each > facts.shared_static // 2 or (gemm.product.depth or y * rows) < y * rows):
        y //= 2
    return BlockShape(x, y, lanes, rows)


def _schedule(kernel: GpuKernel, gemm: SkinnyGemm, partial: BlockRV, shape: BlockShape) -> None:
    """Schedule `gemm.block` to add up the partial sums that groups of threads have computed in `partial`."""
    sch = kernel.sch
    sums = sch.cache_write(partial, 0, "local")
    sch.set_scope(sums, 0, "shared")
    store = sch.cache_write(gemm.block, 0, "local")
    fuse_epilogue(kernel, store)
    tile, inner = _bind_results(kernel, gemm, store, shape)
    sch.compute_at(gemm.block, tile)
    sch.compute_at(sums, tile, preserve_unit_loops=True)  # while the loops still show the number of columns
    x = _bind_threads(kernel, gemm, inner, shape)
    sch.compute_at(gemm.block, x)
    sch.unroll(kernel.loops(gemm.block)[-1])
    group, *dims = kernel.loops(sums)[loop_depth(kernel, sums, tile) :]
    column, lane = sch.split(dims.pop(gemm.results.index(gemm.matrix_axes[-1])), [None, shape.lanes])
    sch.reorder(group, column, *dims, lane)
    sch.bind(group, "threadIdx.y")
    sch.bind(column, "threadIdx.x")
    _unroll_and_vectorize(kernel, dims, lane)
    sch.compute_at(partial, column, preserve_unit_loops=True)
    *dims, turn, row = kernel.loops(partial)[loop_depth(kernel, partial, column) + 1 :]
    lane = dims.pop(gemm.results.index(gemm.matrix_axes[-1]))
    sch.reorder(turn, row, *dims, lane)
    sch.unroll(row)
    _unroll_and_vectorize(kernel, dims, lane)
    sch.decompose_reduction(partial, turn)
    schedule_rest(kernel, (partial, sums, gemm.block, store))


def _unroll_and_vectorize(kernel: GpuKernel, dims: list[LoopRV], lane: LoopRV) -> None:
    """Unroll the loops over vectors, and vectorize the one over columns."""
    for loop in dims:
        kernel.sch.unroll(loop)
    kernel.sch.vectorize(lane)


def _bind_results(kernel: GpuKernel, gemm: SkinnyGemm, store: BlockRV, shape: BlockShape) -> tuple[LoopRV, LoopRV]:
    """Bind the loops over the results to thread blocks; return the loops over blocks and within one."""
    sch = kernel.sch
    loops = dict(zip(gemm.results, kernel.loops(store), strict=True))
    column_loop, few = loops.pop(gemm.matrix_axes[-1]), [loops.pop(p) for p in gemm.vector_axes]
    outer = list(loops.values())
    column_block, column = sch.split(column_loop, [None, shape.x * shape.lanes])
    sch.reorder(*outer, column_block, *few, column)
    tile = sch.fuse(*outer, column_block) if outer else column_block
    sch.bind(tile, "blockIdx.x")
    return tile, sch.fuse(*few, column) if few else column


def _bind_threads(kernel: GpuKernel, gemm: SkinnyGemm, results: LoopRV, shape: BlockShape) -> LoopRV:
    """Bind the loop over a block's results to threads; return the loop over threadIdx.x."""
    sch = kernel.sch
    if gemm.count > 1:
        _, y, x = sch.split(results, [None, shape.y, shape.x])
    else:  # whole rows of threads, so that no index exceeds the columns
        groups = min(shape.y, shape.lanes)
        _, y, x = sch.split(results, [None, groups, shape.x])
        _, idle = sch.split(sch.add_unit_loop(y), [None, shape.y // groups])
        y = sch.fuse(idle, y)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    return x
