"""A vector times a matrix that is contiguous along the result (GEMV); each element of the matrix is used once.

The matrix is streamed row by row, a few rows at a time, while the sums of a block of columns stay in the L1 cache.
Cores share blocks of columns or, if there are too few of these, rows: then each core computes partial sums, which are
added at the end.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing, parallelize_outer, vectorizable_loop
from mlcc.passes.auto_schedule.products import element_lanes, elementwise_consumer, only_product, schedule_others
from mlcc.passes.schedule.handles import BlockRV, LoopRV

# rows at a time: fewer reload the sums more often, more exceed the prefetchers' streams
ROWS_AT_A_TIME = (8, 7, 6, 5, 4)
OTHER_ROWS_AT_A_TIME = (16, 2, 1)  # further options
MIN_ROWS_PER_CORE = 64  # rows per core that make partial sums worth combining


def matvec(kernel: Kernel) -> str:
    """Schedule a product in blocks of columns, then rows, then vectors of columns; see the module."""
    block, product = only_product(kernel)
    if product.extent(product.m) != 1:
        not_applicable("the left operand is not a vector")
    if product.contiguous_axis(product.rhs) != product.n:
        not_applicable("the matrix is contiguous along the reduction")
    if kernel.is_constant(product.rhs.buffer):
        not_applicable("the matrix is a constant, which is packed into panels at compile time")
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    parallel = is_worth_parallelizing(kernel, product.stage)
    vectors = _choose_vectors(kernel, product)
    blocks = _block_count(kernel, product, vectors)
    pieces = _row_pieces(kernel, product, blocks) if parallel else 1
    if pieces > 1:
        depth_loop = kernel.loops(block)[product.k[-1]]
        kernel.sch.pad_reduction(depth_loop, pieces)
        sums = kernel.sch.rfactor(kernel.sch.split(depth_loop, [pieces, None])[0], 0)
        outer, depth = _schedule_sums(kernel, sums, product, vectors, pieced=True)
        parallelize_outer(kernel, outer[:1])
        others.append(block)
    else:
        sums, reader = block, elementwise_consumer(kernel, block)
        if reader is not None:
            kernel.sch.set_scope(block, 0, "local")
        epilogue = kernel.sch.cache_write(block, 0, "local") if reader is None else reader
        outer, depth = _schedule_sums(kernel, sums, product, vectors, pieced=False)
        _schedule_epilogue(kernel, epilogue, outer, element_lanes(kernel, product))
        others = [b for b in others if kernel.sch.get(b) is not kernel.sch.get(epilogue)]
        if parallel:
            parallelize_outer(kernel, outer)
    kernel.sch.decompose_reduction(sums, depth)
    schedule_others(kernel, others, sums)
    return f"`{product.stage.block.name}` is a vector times a matrix"


def _schedule_sums(
    kernel: Kernel, block: BlockRV, product: Contraction, vectors: int, pieced: bool
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the loops of the sums; return the loops over parts of the result, and the first one over rows.

    `pieced`: the last reduction axis is split, and its outer part is an axis of the result.
    """
    sch, lanes = kernel.sch, element_lanes(kernel, product)
    loops = kernel.loops(block)
    last = product.k[-1]
    piece_loops = [loops.pop(last)] if pieced else []
    columns, column, lane = sch.split(loops[product.n], [None, vectors, lanes])
    depth_loops = [loops[p] for p in product.k]
    rows = kernel.choose(
        "rows", "rows of the matrix at a time", _row_candidates(kernel.stage(block).extents[last + pieced])
    )
    row_group, row = sch.split(depth_loops.pop(), [None, rows])
    outer = [*piece_loops, *(loops[p] for p in range(len(loops)) if p != product.n and p not in product.k), columns]
    sch.reorder(*outer, *depth_loops, row_group, column, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    kernel.say(f"blocks of {vectors} vectors of {lanes}, {rows} rows at a time")
    return outer, (depth_loops or [row_group])[0]


def _schedule_epilogue(kernel: Kernel, epilogue: BlockRV, outer: list[LoopRV], lanes: int) -> None:
    """Compute the epilogue for each block of columns, in vectors."""
    kernel.sch.reverse_compute_at(epilogue, outer[-1])
    loops = kernel.loops(epilogue)
    vector = vectorizable_loop(kernel.stage(epilogue), list(range(len(outer), len(loops))))
    if vector is not None:
        kernel.sch.vectorize(kernel.sch.split(loops[vector], [None, lanes])[1])


def _choose_vectors(kernel: Kernel, product: Contraction) -> int:
    """Choose the columns of a block, in vectors: as many as half of the L1 cache holds."""
    max_vectors = max(kernel.facts.l1_bytes // 2 // kernel.facts.vector_bytes, 1)
    n = product.extent(product.n)
    about = "vectors of columns per block"
    if n is None:
        return kernel.choose("vectors", about, [n for n in (max_vectors, max_vectors // 2, max_vectors // 4) if n])
    total_vectors = max(-(-n // element_lanes(kernel, product)), 1)
    blocks = -(-total_vectors // max_vectors)
    counts = [n for n in (blocks, blocks * 2, blocks * 4, blocks * 8, blocks // 2) if 0 < n <= total_vectors]
    return kernel.choose("vectors", about, list(dict.fromkeys(-(-total_vectors // n) for n in counts)))


def _block_count(kernel: Kernel, product: Contraction, vectors: int) -> int | None:
    """Return the number of blocks of `vectors` vectors, or None if unknown."""
    n = product.extent(product.n)
    return None if n is None else -(-max(-(-n // element_lanes(kernel, product)), 1) // vectors)


def _row_pieces(kernel: Kernel, product: Contraction, blocks: int | None) -> int:
    """Return the number of pieces into which rows are split, for cores to share them."""
    depth, times = product.extent(product.k[-1]), product.times
    if blocks is None or depth is None or times is None or blocks * times >= kernel.facts.cores:
        return 1
    return max(min(kernel.facts.cores, depth // MIN_ROWS_PER_CORE), 1)


def _row_candidates(depth: int | None) -> list[int]:
    """Return the candidate numbers of rows at a time, best guess first."""
    if depth is None:
        return [*reversed(ROWS_AT_A_TIME)]
    divisors = [r for r in (*ROWS_AT_A_TIME, *OTHER_ROWS_AT_A_TIME) if depth % r == 0]
    default = next(iter(divisors), 0)
    default = default if default in ROWS_AT_A_TIME else min(ROWS_AT_A_TIME[0], max(depth, 1))
    return list(dict.fromkeys((default, *divisors)))
