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
    others = [b for b in kernel.blocks() if sch.get(b) not in (sch.get(block), sch.get(decoder))]
    many = worth_threads(kernel, product.stage)
    loops = kernel.loops(block)
    part, vector, lane = sch.split(loops[product.n], [None, columns // lanes, lanes])
    (deep,) = (loops[p] for p in product.k)
    far, near = sch.split(deep, [None, rows])
    inside = [loops[p] for p in range(len(loops)) if p != product.n and p not in product.k]
    sch.reorder(part, far, *inside, vector, near, lane)
    sch.compute_at(decoder, far)
    _decode(kernel, decoder, lanes)
    written = kernel.stage(decoder).stores[0].buffer
    sch.transform_layout(block, ("read", number_of(kernel, block, written)), _side_by_side(written, lanes))
    sch.unroll(near)
    sch.vectorize(lane)
    if many:
        share_out(kernel, [part])
    sch.decompose_reduction(block, far)
    schedule_others(kernel, others, block)
    kernel.say(f"{rows} rows of {columns} columns decoded at a time, vectors of {lanes}")
    return f"`{product.stage.block.name}` multiplies with a matrix that is decoded on the way"


def _product(kernel: Kernel) -> tuple[BlockRV, BlockRV, Contraction]:
    """The only product, what decodes its right operand, and how it contracts; all else that is cheap is inlined."""
    found = [b for b in kernel.blocks() if kernel.stage(b).reduced]
    if len(found) != 1:
        not_this(f"{len(found)} reductions")
    (block,) = found
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
    most = max(kernel.facts.l1_bytes // 2 // kernel.facts.vector_bytes // ROWS[0], 1)
    widths = [n for n in range(1, min(vectors, most) + 1) if vectors % n == 0]
    cores = kernel.facts.cores
    busy = [n for n in widths if (vectors // n) % cores == 0 or vectors // n >= PIECES * cores]
    return max(busy or widths) * lanes


def _rows(product: Contraction) -> int:
    depth = product.extent(product.k[0])
    found = next((r for r in ROWS if depth is not None and depth % r == 0), None)
    if found is None:
        not_this("the depth is no multiple of the rows that are decoded at a time")
    return found


def _side_by_side(buffer: tir.Buffer, lanes: int) -> tir.IndexMap:
    """What is decoded of a vector of columns stands together, row by row."""
    row, column = given = tuple(tir.Var(name, size.dtype) for name, size in zip("ij", buffer.shape, strict=True))
    return tir.IndexMap(given, (c.floordiv(column, lanes), row, c.floormod(column, lanes)))


def _decode(kernel: Kernel, decoder: BlockRV, lanes: int) -> None:
    """The loops of the rows that are decoded: vectors of each of them in turn, as those of a byte share its load."""
    sch = kernel.sch
    row, column = kernel.loops(decoder)[-2:]
    vector, lane = sch.split(column, [None, lanes])
    sch.reorder(vector, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
