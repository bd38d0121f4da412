"""Products with a matrix that is decoded on the fly: quantized weights with scales, or other small types.

A few rows of the matrix are decoded at a time, for a block of columns that fits the L1 cache, and are multiplied with
every row of the left operand before the next ones. The encoded matrix is read once, in place, however many rows there
are, and the decoded matrix never reaches memory.
"""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, match_contraction
from mlcc.passes.auto_schedule.inlining import inline_all_but
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import PIECES_PER_CORE, is_worth_parallelizing, parallelize_outer, spatial_nest
from mlcc.passes.auto_schedule.products import element_lanes, read_index, schedule_others
from mlcc.passes.schedule.handles import BlockRV

# rows of the matrix decoded at a time: as many products are added before a sum is stored
ROWS_AT_A_TIME = (8, 4, 2)
WORD = 4  # bytes
PANEL_ROW_BYTES = 128  # of the elements in a row of a panel


def decoded(kernel: Kernel) -> str:
    """Schedule a product in blocks of columns: decode a few rows, then multiply them; see the module."""
    block, decoder, product = _match_decoded_product(kernel)
    sch, rows = kernel.sch, _decoded_rows(product)
    packable = _packable(kernel, decoder, rows)
    columns = _block_columns(kernel, product, packable)
    lanes = element_lanes(kernel, product)
    if product.extent(product.m) != 1:
        _pack_rows(kernel, block, product, rows, lanes)
    others = [b for b in kernel.blocks() if sch.get(b) not in (sch.get(block), sch.get(decoder))]
    parallel = is_worth_parallelizing(kernel, product.stage)
    loops = kernel.loops(block)
    column_block, vector, lane = sch.split(loops[product.n], [None, columns // lanes, lanes])
    (depth,) = (loops[p] for p in product.k)
    row_group, decoded_row = sch.split(depth, [None, rows])
    other_loops = [loops[p] for p in range(len(loops)) if p != product.n and p not in product.k]
    sch.reorder(column_block, row_group, vector, *other_loops, decoded_row, lane)
    _pack_encoded(kernel, decoder, packable, columns)
    sch.compute_at(decoder, vector)
    sch.set_scope(decoder, 0, "local")
    row, column = kernel.loops(decoder)[-2:]
    sch.unroll(row)
    sch.vectorize(column)
    sch.unroll(decoded_row)
    sch.vectorize(lane)
    if parallel:
        parallelize_outer(kernel, [column_block])
    sch.decompose_reduction(block, row_group)
    schedule_others(kernel, others, block)
    kernel.say(f"{rows} rows of {columns} columns decoded at a time, vectors of {lanes}")
    return f"`{product.stage.block.name}` multiplies by a matrix that is decoded on the fly"


def _pack_rows(kernel: Kernel, block: BlockRV, product: Contraction, rows: int, lanes: int) -> None:
    """Pack the left operand and the sums so that the elements that one vector of the matrix needs are contiguous."""
    sch, stage = kernel.sch, product.stage
    sch.cache_read(block, read_index(kernel, block, product.lhs.buffer), "global")
    if kernel.is_output(stage):
        sch.cache_write(block, 0, "global")
    current = match_contraction(kernel.stage(block))
    assert isinstance(current, Contraction)
    sums = current.stage.stores[0]
    sum_axes = tuple(current.stage.axis_place(i) for i in sums.indices)
    lhs = current.lhs
    for region, buffer, axes, axis, group_size in (
        (("read", read_index(kernel, block, lhs.buffer)), lhs.buffer, lhs.places, current.k[0], rows),
        (("write", 0), sums.buffer, sum_axes, current.n, lanes),
    ):
        index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
        grouped = index_vars[axes.index(axis)]
        other_vars = (v for v in index_vars if v is not grouped)
        sch.transform_layout(
            block,
            region,
            tir.IndexMap(index_vars, (c.floordiv(grouped, group_size), *other_vars, c.floormod(grouped, group_size))),
        )


def _packable(kernel: Kernel, decoder: BlockRV, rows: int) -> dict[tir.Buffer, bool]:
    """Return the constant matrices that the decoder reads along columns.

    True: bytes that hold several elements of a column, four neighbours of which shall be a word, whose elements are
    decoded together.
    """
    stage = kernel.stage(decoder)
    row, column = len(stage.loops) - 2, len(stage.loops) - 1
    packable = {}
    for access in stage.accesses:
        is_matrix = len(access.indices) == 2 and tir.const_int(stage.step(access, column)) == 1
        if access.stored or not is_matrix or not kernel.is_constant(access.buffer):
            continue
        depth = tir.const_int(access.buffer.shape[0])
        shares_bytes = access.buffer.dtype.bits == 8 and tir.const_int(stage.step(access, row)) is None
        packable[access.buffer] = shares_bytes and depth is not None and depth % WORD == 0 and rows >= 2 * WORD
    return packable


def _pack_encoded(kernel: Kernel, decoder: BlockRV, packable: dict[tir.Buffer, bool], columns: int) -> None:
    """Pack constants into panels of a block's columns, which are read from start to end."""
    sch = kernel.sch
    for buffer, in_words in packable.items():
        copy = sch.cache_read(decoder, read_index(kernel, decoder, buffer), "global")
        packed = kernel.stage(copy).block.writes[0].buffer
        i, j = index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(packed.shape))
        panel, place = c.floordiv(j, columns), c.floormod(j, columns)
        indices = (panel, c.floordiv(i, WORD), place, c.floormod(i, WORD)) if in_words else (panel, i, place)
        sch.transform_layout(decoder, ("read", read_index(kernel, decoder, packed)), tir.IndexMap(index_vars, indices))
        kernel.say(spatial_nest(kernel, copy))


def _match_decoded_product(kernel: Kernel) -> tuple[BlockRV, BlockRV, Contraction]:
    """Return the block of the only product, the block that decodes its right operand, and the contraction.

    Inline all other cheap stages.
    """
    reductions = [b for b in kernel.blocks() if kernel.stage(b).reduced]
    if len(reductions) != 1:
        not_applicable(f"{len(reductions)} reductions")
    (block,) = reductions
    product = match_contraction(kernel.stage(block))
    if isinstance(product, str):
        not_applicable(product)
    writers = [p for p in kernel.sch.get_producers(block) if _writes_operand(kernel, p, product)]
    if len(writers) != 1 or kernel.stage(writers[0]).reduced:
        not_applicable("the right operand is not computed in the kernel")
    (decoder,) = writers
    inline_all_but(kernel, decoder)
    stage, updated_product = kernel.stage(decoder), match_contraction(kernel.stage(block))
    if (
        isinstance(updated_product, str)
        or len(updated_product.k) != 1
        or updated_product.rhs.windows
        or updated_product.rhs.places != (updated_product.k[0], updated_product.n)
    ):
        not_applicable("the right operand is not a matrix whose columns are those of the result")
    last = len(stage.loops) - 1
    if any(step not in (0, 1) for step in stage.steps_by(last)):
        not_applicable("the decoded data are not contiguous along the results")
    return block, decoder, updated_product


def _writes_operand(kernel: Kernel, block: BlockRV, product: Contraction) -> bool:
    return any(store.buffer is product.rhs.buffer for store in kernel.stage(block).stores)


def _block_columns(kernel: Kernel, product: Contraction, packable: dict[tir.Buffer, bool]) -> int:
    """Choose the columns of a block: whole vectors whose decoded rows fill at most half of the L1 cache.

    Blocks are of equal size, and numerous enough to keep all cores busy. Rows of a panel of elements are short, so that
    the rows decoded at a time are one stretch of memory, which is fetched ahead.
    """
    size, lanes = product.extent(product.n), element_lanes(kernel, product)
    if size is None or size % lanes:
        not_applicable("the columns are not a whole number of vectors")
    vectors = size // lanes
    max_vectors = max(kernel.facts.l1_bytes // 2 // kernel.facts.vector_bytes // 2, 1)
    depth = product.extent(product.k[0])
    for buffer, in_words in packable.items():
        if not in_words and tir.const_int(buffer.shape[0]) == depth:
            max_vectors = min(max_vectors, max(PANEL_ROW_BYTES * 8 // buffer.dtype.bits // lanes, 1))
    widths = [n for n in range(1, min(vectors, max_vectors) + 1) if vectors % n == 0]
    cores = kernel.facts.cores
    balanced = [n for n in widths if (vectors // n) % cores == 0 or vectors // n >= PIECES_PER_CORE * cores]
    return max(balanced or widths) * lanes


def _decoded_rows(product: Contraction) -> int:
    depth = product.extent(product.k[0])
    rows = next((r for r in ROWS_AT_A_TIME if depth is not None and depth % r == 0), None)
    if rows is None:
        not_applicable("the depth is not a multiple of the rows decoded at a time")
    return rows
