"""Products `y[n] = sum of x[k] * W[k, n]` with few vectors x, and W contiguous along n.

Threads run along n, with some neighbouring columns each, so that a warp reads whole lines; groups of threads split k.
The groups' partial sums meet in shared memory, where each thread adds up those of some results.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.passes.auto_schedule.gpu.product_parts import (
    absorb_readers,
    inline_copies,
    loops_down_to,
    pad_axes,
    schedule_rest,
)
from mlcc.passes.auto_schedule.gpu.skinny import SUMS, Skinny, blocks_for, in_order, skinny
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.offers import halves
from mlcc.passes.schedule.handles import BlockRV, LoopRV

ROWS = (4, 2)  # of the matrix that a thread has under way at a time: for up to so many vectors, and for more
LINE = 128  # bytes that threads side by side read at the least
THREADS = (256, 512)  # of a block: where there are enough of them, and where not


@dataclass(frozen=True)
class Share:
    """A block has `x` threads of `lanes` columns each, `y` times, which take `rows` rows in turn."""

    x: int
    y: int
    lanes: int
    rows: int


def columns(kernel: GpuKernel) -> str:
    """The rule, as the module says."""
    it = skinny(kernel)
    if it.product.consecutive(it.matrix) != it.wide[-1]:
        not_this("the matrix is not consecutive along what is not summed up over")
    share = _share(kernel, it)
    sch, stage, name = kernel.sch, it.product.stage, it.product.stage.block.name
    pad_axes(kernel, it.block, it.product, {it.wide[-1]: share.x * share.lanes})
    for reader in sch.get_consumers(it.block):  # while all of it is still whole
        absorb_readers(kernel, reader)
    inline_copies(kernel, it.block)
    *_, deep = in_order(kernel, it)
    step, depth = share.y * share.rows, it.product.depth
    if depth is None or depth % step:
        if len(it.deep) > 1:
            not_this("rows of several axes, which groups do not divide")
        sch.pad_reduction(deep, step)
    _, group, _ = sch.split(deep, [None, share.y, share.rows])
    partial = sch.rfactor(group, 0)
    _schedule(kernel, it, partial, share)
    kernel.say(f"{share.x} threads of {share.lanes} columns each, {share.y} times for other rows")
    return f"`{name}` reads a matrix of {_said(stage.extents[it.wide[-1]])} columns for {it.count} vectors"


def _said(size: int | None) -> str:
    return "many" if size is None else str(size)


def _share(kernel: GpuKernel, it: Skinny) -> Share:
    facts, lanes = kernel.facts, it.lanes
    rows = ROWS[it.count > ROWS[0]]
    rows = kernel.choose(
        "rows", "rows of the matrix that a thread has under way", [rows, *(n for n in (8, 4, 2, 1) if n != rows)]
    )
    while lanes > 1 and lanes * it.count > SUMS:
        lanes //= 2
    least = max(LINE // (lanes * it.matrix.buffer.dtype.bytes), 1)
    x = facts.warp
    while x > min(least, facts.warp) and blocks_for(it, x * lanes) < 2 * facts.sm_count:
        x //= 2
    threads = THREADS[0] if blocks_for(it, x * lanes) >= 4 * facts.sm_count else THREADS[1]
    y, bytes_each = threads // x, x * lanes * it.count * max(it.product.stage.element_bytes, 4)
    while x > 1 and (it.product.extent(it.wide[-1]) or x * lanes) <= x // 2 * lanes:
        x //= 2
    x = kernel.choose("columns", "threads side by side along the columns", halves(x))
    while y > 1 and (y * bytes_each > facts.shared_static // 2 or (it.product.depth or y * rows) < y * rows):
        y //= 2
    return Share(x, y, lanes, rows)


def _schedule(kernel: GpuKernel, it: Skinny, partial: BlockRV, share: Share) -> None:
    """`it.block` sums up what groups have summed up in `partial`."""
    sch = kernel.sch
    sums = sch.cache_write(partial, 0, "local")
    sch.set_scope(sums, 0, "shared")
    store = sch.cache_write(it.block, 0, "local")
    absorb_readers(kernel, store)
    tile, inner = _results(kernel, it, store, share)
    sch.compute_at(it.block, tile)
    sch.compute_at(sums, tile, preserve_unit_loops=True)  # while loops say how many columns there are
    x = _over_threads(kernel, it, inner, share)
    sch.compute_at(it.block, x)
    sch.unroll(kernel.loops(it.block)[-1])
    group, *dims = kernel.loops(sums)[loops_down_to(kernel, sums, tile) :]
    column, lane = sch.split(dims.pop(it.results.index(it.wide[-1])), [None, share.lanes])
    sch.reorder(group, column, *dims, lane)
    sch.bind(group, "threadIdx.y")
    sch.bind(column, "threadIdx.x")
    _written_out(kernel, dims, lane)
    sch.compute_at(partial, column, preserve_unit_loops=True)
    *dims, turn, row = kernel.loops(partial)[loops_down_to(kernel, partial, column) + 1 :]
    lane = dims.pop(it.results.index(it.wide[-1]))
    sch.reorder(turn, row, *dims, lane)
    sch.unroll(row)
    _written_out(kernel, dims, lane)
    sch.decompose_reduction(partial, turn)
    schedule_rest(kernel, (partial, sums, it.block, store))


def _written_out(kernel: GpuKernel, dims: list[LoopRV], lane: LoopRV) -> None:
    """Sums of several vectors side by side, of some columns as a vector."""
    for loop in dims:
        kernel.sch.unroll(loop)
    kernel.sch.vectorize(lane)


def _results(kernel: GpuKernel, it: Skinny, store: BlockRV, share: Share) -> tuple[LoopRV, LoopRV]:
    """The loops over the results: blocks of threads, and within one, neighbours along the columns."""
    sch = kernel.sch
    loops = dict(zip(it.results, kernel.loops(store), strict=True))
    wide, few = loops.pop(it.wide[-1]), [loops.pop(p) for p in it.few]
    outer = list(loops.values())
    far, near = sch.split(wide, [None, share.x * share.lanes])
    sch.reorder(*outer, far, *few, near)
    tile = sch.fuse(*outer, far) if outer else far
    sch.bind(tile, "blockIdx.x")
    return tile, sch.fuse(*few, near) if few else near


def _over_threads(kernel: GpuKernel, it: Skinny, results: LoopRV, share: Share) -> LoopRV:
    """Bind the loop over a block's results; gives the loop over the threads."""
    sch = kernel.sch
    if it.count > 1:
        _, y, x = sch.split(results, [None, share.y, share.x])
    else:  # whole rows of threads, so that no index goes beyond the columns
        groups = min(share.y, share.lanes)
        _, y, x = sch.split(results, [None, groups, share.x])
        _, idle = sch.split(sch.add_unit_loop(y), [None, share.y // groups])
        y = sch.fuse(idle, y)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    return x
