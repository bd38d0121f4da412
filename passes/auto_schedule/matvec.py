"""A vector times a matrix that is consecutive along the result: each element of the matrix is used once.

The matrix goes by row after row, as memory likes it, a few rows at a time; the sums of a block of columns stay in the
first cache meanwhile.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.inlining import inline_cheap
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import PIECES, share_out, vector_place, worth_threads
from mlcc.passes.auto_schedule.products import element_lanes, only_product, only_reader, schedule_others
from mlcc.passes.schedule.handles import BlockRV

ROWS = (8, 7, 6, 5, 4)  # rows at a time: fewer make more trips to the sums, more take more streams than are prefetched


def matvec(kernel: Kernel) -> str:
    """The rule: blocks of columns, then rows, then columns in vectors."""
    inline_cheap(kernel)
    block, product = only_product(kernel)
    if product.extent(product.m) != 1:
        not_this("the left operand is no vector")
    if product.consecutive(product.rhs) != product.n:
        not_this("the matrix is consecutive in depth")
    if kernel.is_constant(product.rhs.buffer):
        not_this("the matrix is a constant, which panels are made of once")
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    epilogue = only_reader(kernel, block)
    if epilogue is None:
        epilogue = kernel.sch.cache_write(block, 0, "local")
    else:
        kernel.sch.set_scope(block, 0, "local")
    _stream(kernel, block, epilogue, product)
    schedule_others(kernel, [b for b in others if b is not epilogue], epilogue)
    return f"`{product.stage.block.name}` is a vector times a matrix"


def _stream(kernel: Kernel, block: BlockRV, epilogue: BlockRV, product: Contraction) -> None:
    sch = kernel.sch
    stage, loops = kernel.stage(block), kernel.loops(block)
    many = worth_threads(kernel, stage)
    lanes = element_lanes(kernel, product)
    vectors = _vectors(kernel, product, lanes, many)
    columns, column, lane = sch.split(loops[product.n], [None, vectors, lanes])
    deep = [loops[p] for p in product.k]
    rows = _rows(product.extent(product.k[-1]))
    far, near = sch.split(deep.pop(), [None, rows])
    outer = [loops[p] for p in range(len(loops)) if p != product.n and p not in product.k]
    sch.reorder(*outer, columns, *deep, far, column, near, lane)
    sch.reverse_compute_at(epilogue, columns)
    sch.unroll(near)
    sch.vectorize(lane)
    own = list(range(len(outer) + 1, len(kernel.loops(epilogue))))
    vector = vector_place(kernel.stage(epilogue), own)
    if vector is not None:
        sch.vectorize(sch.split(kernel.loops(epilogue)[vector], [None, lanes])[1])
    if many:
        share_out(kernel, [*outer, columns])
    sch.decompose_reduction(block, deep[0] if deep else far)
    kernel.say(f"blocks of {vectors} vectors of {lanes}, {rows} rows at a time")


def _vectors(kernel: Kernel, product: Contraction, lanes: int, many: bool) -> int:
    """The columns of a block in vectors: as many as half of the first cache takes, fewer where cores share them."""
    size = kernel.facts.vector_bytes
    most = max(kernel.facts.l1_bytes // 2 // size, 1)
    n = product.extent(product.n)
    if n is None:
        return min(most, PIECES)
    whole = -(-n // lanes)
    blocks = max(-(-whole // most), 1)
    if many and (product.times or 1) < kernel.facts.cores:
        blocks = max(blocks, min(kernel.facts.cores, whole))
    return -(-whole // blocks) or 1


def _rows(depth: int | None) -> int:
    if depth is None:
        return ROWS[-1]
    return next((r for r in ROWS if depth % r == 0), min(ROWS[0], max(depth, 1)))
