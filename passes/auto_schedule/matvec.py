"""A vector times a matrix that is consecutive along the result: each element of the matrix is used once.

The matrix goes by row after row, as memory likes it, a few rows at a time; the sums of a block of columns stay in the
first cache meanwhile. Cores share blocks of columns, or, where there are too few of them, rows: then each sums up its
own, and the sums are added up at the end.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import share_out, vector_place, worth_threads
from mlcc.passes.auto_schedule.products import element_lanes, only_product, only_reader, schedule_others
from mlcc.passes.schedule.handles import BlockRV, LoopRV

ROWS = (8, 7, 6, 5, 4)  # rows at a time: fewer make more trips to the sums, more take more streams than are prefetched
MORE_ROWS = (16, 2, 1)  # what else may be wanted
LEAST_ROWS = 64  # of a core, so that what it sums up is worth adding up afterwards


def matvec(kernel: Kernel) -> str:
    """The rule: blocks of columns, then rows, then columns in vectors."""
    block, product = only_product(kernel)
    if product.extent(product.m) != 1:
        not_this("the left operand is no vector")
    if product.consecutive(product.rhs) != product.n:
        not_this("the matrix is consecutive in depth")
    if kernel.is_constant(product.rhs.buffer):
        not_this("the matrix is a constant, which panels are made of once")
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    many = worth_threads(kernel, product.stage)
    vectors = _vectors(kernel, product)
    blocks = _count(kernel, product, vectors)
    pieces = _pieces(kernel, product, blocks) if many else 1
    if pieces > 1:
        deep = kernel.loops(block)[product.k[-1]]
        kernel.sch.pad_reduction(deep, pieces)
        part = kernel.sch.rfactor(kernel.sch.split(deep, [pieces, None])[0], 0)
        outer, depth = _stream(kernel, part, product, vectors, pieced=True)
        share_out(kernel, outer[:1])
        others.append(block)
    else:
        part, reader = block, only_reader(kernel, block)
        if reader is not None:
            kernel.sch.set_scope(block, 0, "local")
        epilogue = kernel.sch.cache_write(block, 0, "local") if reader is None else reader
        outer, depth = _stream(kernel, part, product, vectors, pieced=False)
        _stores(kernel, epilogue, outer, element_lanes(kernel, product))
        others = [b for b in others if kernel.sch.get(b) is not kernel.sch.get(epilogue)]
        if many:
            share_out(kernel, outer)
    kernel.sch.decompose_reduction(part, depth)
    schedule_others(kernel, others, part)
    return f"`{product.stage.block.name}` is a vector times a matrix"


def _stream(
    kernel: Kernel, block: BlockRV, product: Contraction, vectors: int, pieced: bool
) -> tuple[list[LoopRV], LoopRV]:
    """Schedule the loops of the sums; return those over parts of the result, and the first one over rows.

    `pieced`: the last axis of the depth is split, and its outer part is a part of the result.
    """
    sch, lanes = kernel.sch, element_lanes(kernel, product)
    loops = kernel.loops(block)
    last = product.k[-1]
    piece = [loops.pop(last)] if pieced else []
    columns, column, lane = sch.split(loops[product.n], [None, vectors, lanes])
    deep = [loops[p] for p in product.k]
    rows = kernel.choose("rows", "rows of the matrix at a time", _rows(kernel.stage(block).extents[last + pieced]))
    far, near = sch.split(deep.pop(), [None, rows])
    outer = [*piece, *(loops[p] for p in range(len(loops)) if p != product.n and p not in product.k), columns]
    sch.reorder(*outer, *deep, far, column, near, lane)
    sch.unroll(near)
    sch.vectorize(lane)
    kernel.say(f"blocks of {vectors} vectors of {lanes}, {rows} rows at a time")
    return outer, (deep or [far])[0]


def _stores(kernel: Kernel, epilogue: BlockRV, outer: list[LoopRV], lanes: int) -> None:
    """Compute the epilogue for each block of columns, in vectors."""
    kernel.sch.reverse_compute_at(epilogue, outer[-1])
    loops = kernel.loops(epilogue)
    vector = vector_place(kernel.stage(epilogue), list(range(len(outer), len(loops))))
    if vector is not None:
        kernel.sch.vectorize(kernel.sch.split(loops[vector], [None, lanes])[1])


def _vectors(kernel: Kernel, product: Contraction) -> int:
    """The columns of a block in vectors: as many as half of the first cache takes."""
    most = max(kernel.facts.l1_bytes // 2 // kernel.facts.vector_bytes, 1)
    n = product.extent(product.n)
    about = "vectors of columns that go by together"
    if n is None:
        return kernel.choose("vectors", about, [n for n in (most, most // 2, most // 4) if n])
    whole = max(-(-n // element_lanes(kernel, product)), 1)
    blocks = -(-whole // most)
    counts = [n for n in (blocks, blocks * 2, blocks * 4, blocks * 8, blocks // 2) if 0 < n <= whole]
    return kernel.choose("vectors", about, list(dict.fromkeys(-(-whole // n) for n in counts)))


def _count(kernel: Kernel, product: Contraction, vectors: int) -> int | None:
    """Return the number of blocks of `vectors` vectors, or None if unknown."""
    n = product.extent(product.n)
    return None if n is None else -(-max(-(-n // element_lanes(kernel, product)), 1) // vectors)


def _pieces(kernel: Kernel, product: Contraction, blocks: int | None) -> int:
    """Return the number of pieces into which rows are split, for cores to share them."""
    depth, times = product.extent(product.k[-1]), product.times
    if blocks is None or depth is None or times is None or blocks * times >= kernel.facts.cores:
        return 1
    return max(min(kernel.facts.cores, depth // LEAST_ROWS), 1)


def _rows(depth: int | None) -> list[int]:
    """Return the candidate numbers of rows at a time, best guess first."""
    if depth is None:
        return [*reversed(ROWS)]
    dividing = [r for r in (*ROWS, *MORE_ROWS) if depth % r == 0]
    guess = next(iter(dividing), 0)
    guess = guess if guess in ROWS else min(ROWS[0], max(depth, 1))
    return list(dict.fromkeys((guess, *dividing)))
