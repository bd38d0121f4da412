"""Products with a matrix that is decoded where it is used: weights in few bits with scales, or in other small types.

A few rows of the matrix are decoded at a time, a block of columns of them that stays in the first cache, and are
multiplied with every row of the left operand before the next ones come. So what is coded is read once, as it lies,
however many rows there are, and the decoded matrix is never in memory.
"""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, contraction
from mlcc.passes.auto_schedule.inlining import inline_all_but
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import PIECES, share_out, worth_threads
from mlcc.passes.auto_schedule.products import element_lanes, number_of, schedule_others
from mlcc.passes.schedule.handles import BlockRV

ROWS = (8, 4, 2)  # of the matrix that are decoded at a time: as many sums go through a register before it is stored


def decoded(kernel: Kernel) -> str:
    """The rule: blocks of columns, then a few rows decoded, then what they are multiplied with."""
    block, decoder, product = _product(kernel)
    columns, rows = _columns(kernel, product), _rows(product)
    sch = kernel.sch
    lanes = element_lanes(kernel, product)
    if product.extent(product.m) != 1:
        _pack_rows(kernel, block, product, rows, lanes)
    others = [b for b in kernel.blocks() if sch.get(b) not in (sch.get(block), sch.get(decoder))]
    many = worth_threads(kernel, product.stage)
    loops = kernel.loops(block)
    part, vector, lane = sch.split(loops[product.n], [None, columns // lanes, lanes])
    (deep,) = (loops[p] for p in product.k)
    far, near = sch.split(deep, [None, rows])
    inside = [loops[p] for p in range(len(loops)) if p != product.n and p not in product.k]
    sch.reorder(part, far, vector, *inside, near, lane)
    sch.compute_at(decoder, vector)
    sch.set_scope(decoder, 0, "local")
    row, column = kernel.loops(decoder)[-2:]
    sch.unroll(row)
    sch.vectorize(column)
    sch.unroll(near)
    sch.vectorize(lane)
    if many:
        share_out(kernel, [part])
    sch.decompose_reduction(block, far)
    schedule_others(kernel, others, block)
    kernel.say(f"{rows} rows of {columns} columns decoded at a time, vectors of {lanes}")
    return f"`{product.stage.block.name}` multiplies with a matrix that is decoded on the way"


def _pack_rows(kernel: Kernel, block: BlockRV, product: Contraction, rows: int, lanes: int) -> None:
    """Let the parts of all rows that a vector of the matrix needs be neighbours, in a copy of them and in the sums."""
    sch, stage = kernel.sch, product.stage
    sch.cache_read(block, number_of(kernel, block, product.lhs.buffer), "global")
    if kernel.is_output(stage):
        sch.cache_write(block, 0, "global")
    now = contraction(kernel.stage(block))
    assert isinstance(now, Contraction)
    sums = now.stage.stores[0]
    places = tuple(now.stage.axis_place(i) for i in sums.indices)
    for where, buffer, own, place, step in (
        (("read", number_of(kernel, block, now.lhs.buffer)), now.lhs.buffer, now.lhs.places, now.k[0], rows),
        (("write", 0), sums.buffer, places, now.n, lanes),
    ):
        given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
        along = given[own.index(place)]
        others = (v for v in given if v is not along)
        sch.transform_layout(
            block, where, tir.IndexMap(given, (c.floordiv(along, step), *others, c.floormod(along, step)))
        )


def _product(kernel: Kernel) -> tuple[BlockRV, BlockRV, Contraction]:
    """Return the block of the only product, the decoder of its right operand, and the contraction.

    Inline everything else that is cheap.
    """
    reductions = [b for b in kernel.blocks() if kernel.stage(b).reduced]
    if len(reductions) != 1:
        not_this(f"{len(reductions)} reductions")
    (block,) = reductions
    product = contraction(kernel.stage(block))
    if isinstance(product, str):
        not_this(product)
    makers = [p for p in kernel.sch.get_producers(block) if _writes(kernel, p, product)]
    if len(makers) != 1 or kernel.stage(makers[0]).reduced:
        not_this("the right operand is no result of the kernel")
    (decoder,) = makers
    inline_all_but(kernel, decoder)
    stage, again = kernel.stage(decoder), contraction(kernel.stage(block))
    if isinstance(again, str) or len(again.k) != 1 or again.rhs.windows or again.rhs.places != (again.k[0], again.n):
        not_this("the right operand is no matrix whose columns become the results' columns")
    last = len(stage.loops) - 1
    if any(step not in (0, 1) for step in stage.steps_by(last)):
        not_this("what is decoded does not lie along the results")
    return block, decoder, again


def _writes(kernel: Kernel, block: BlockRV, product: Contraction) -> bool:
    return any(store.buffer is product.rhs.buffer for store in kernel.stage(block).stores)


def _columns(kernel: Kernel, product: Contraction) -> int:
    """The columns of a block: whole vectors of which the decoded rows fill half of the first cache at most, in as many
    equal blocks as keep all cores busy."""
    size, lanes = product.extent(product.n), element_lanes(kernel, product)
    if size is None or size % lanes:
        not_this("the columns are no whole number of vectors")
    vectors = size // lanes
    most = max(kernel.facts.l1_bytes // 2 // kernel.facts.vector_bytes // 2, 1)
    widths = [n for n in range(1, min(vectors, most) + 1) if vectors % n == 0]
    cores = kernel.facts.cores
    busy = [n for n in widths if (vectors // n) % cores == 0 or vectors // n >= PIECES * cores]
    return max(busy or widths) * lanes


def _rows(product: Contraction) -> int:
    depth = product.extent(product.k[0])
    rows = next((r for r in ROWS if depth is not None and depth % r == 0), None)
    if rows is None:
        not_this("the depth is no multiple of the rows that are decoded at a time")
    return rows
