"""Products of few rows with a matrix that is consecutive in depth: dot products, several at a time.

Each dot product is summed up in the lanes of a vector of its own, which are put together at the end. A tile of them
shares the loads of its rows and columns.
"""

from __future__ import annotations

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.groups import grouped_in_place
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import share_out, worth_threads
from mlcc.passes.auto_schedule.products import element_lanes, only_product, only_reader, schedule_others
from mlcc.passes.schedule.handles import BlockRV, LoopRV

STREAMS = 4  # rows of the matrix that go by at a time: more are not prefetched
JOINED = 4  # lanes that one step puts together at the end


def dots(kernel: Kernel) -> str:
    """The rule: tiles of dot products, see the module."""
    block, product = only_product(kernel)
    why = why_no_dots(kernel, product)
    if why is not None:
        not_this(why)
    lanes = element_lanes(kernel, product)
    size = 1
    depth = product.extent(product.k[-1])
    if depth is None or depth >= lanes * 4:
        product, size = grouped_in_place(kernel, block, product)
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    many = worth_threads(kernel, product.stage)
    rows, columns = _tile(kernel, product)
    by_groups = f", sums of {size} products at a time" if size > 1 else ""
    kernel.say(f"{rows} x {columns} dot products at a time, in vectors of {lanes}{by_groups}")
    epilogue = only_reader(kernel, block)
    partial = _in_lanes(kernel, block, product, lanes, size)
    outer = _tiles(kernel, block, product, rows, columns)
    if epilogue is not None:
        kernel.sch.reverse_compute_at(epilogue, outer[-1])
        kernel.sch.set_scope(block, 0, "local")
    for part in reversed(partial):
        kernel.sch.compute_at(part, outer[-1])
    sums = [(part, _vectors(kernel, part, len(outer), part is partial[0], size)) for part in partial]
    if many:
        share_out(kernel, outer)
    for part, first in sums:
        kernel.sch.decompose_reduction(part, first)
    schedule_others(kernel, others, epilogue or block)
    return f"`{product.stage.block.name}` is a few dot products of long rows"


def why_no_dots(kernel: Kernel, product: Contraction) -> str | None:
    """Return why a product is unfit for dot products along contiguous elements, or None if it is fit."""
    last = product.k[-1]
    depth = product.extent(last)
    lanes = element_lanes(kernel, product)
    if product.consecutive(product.rhs) not in product.k or product.consecutive(product.lhs) not in product.k:
        return "an operand is not consecutive in depth"
    if product.consecutive(product.rhs) != last or product.consecutive(product.lhs) != last:
        return "the operands are consecutive along different axes"
    if lanes < 2 or (depth is not None and depth < 2 * lanes):
        return "the sums are too short for vectors"
    return None


def _tile(kernel: Kernel, product: Contraction) -> tuple[int, int]:
    """Choose the rows and columns of a tile: divisors of the extents, with the fewest loads per product.

    The accumulators of a tile take at most half of the vector registers.
    """
    room = kernel.facts.vector_registers // 2
    candidates = [
        (rows, columns)
        for rows in _divisors(product.extent(product.m), room)
        for columns in _divisors(product.extent(product.n), STREAMS)
        if rows * columns <= room
    ]

    def shared(tile: tuple[int, int]) -> float:
        """Products for each load."""
        return tile[0] * tile[1] / (tile[0] + tile[1])

    left = sorted(candidates, key=lambda t: (shared(t), -t[0]), reverse=True)
    best: dict[int, float] = {}
    for tile in left:
        best.setdefault(tile[0], shared(left[0]) / shared(tile))
    rows = kernel.choose("rows", "rows whose dot products are computed at a time", best, "tile")
    left = [t for t in left if t[0] == rows]
    costs = {t[1]: shared(left[0]) / shared(t) for t in left}
    return rows, kernel.choose("columns", "columns of the same", costs, "tile")


def _divisors(size: int | None, most: int) -> list[int]:
    return [n for n in range(1, most + 1) if n == 1 or size and size % n == 0]


def _in_lanes(kernel: Kernel, block: BlockRV, product: Contraction, lanes: int, size: int) -> list[BlockRV]:
    """Split a reduction into partial sums in lanes, `size` neighbours each, and steps that combine lanes.

    `block` does the last step.
    """
    sch = kernel.sch
    axis = len(product.stage.stores[0].indices)
    loop = kernel.loops(block)[product.k[-1]]
    sch.pad_reduction(loop, lanes * size)
    partials: list[BlockRV] = []
    width = lanes
    while True:
        factors = [None, width] if partials or size == 1 else [None, width, size]
        lane = sch.split(loop, factors=factors)[1]
        partials.append(sch.rfactor(lane, axis))
        sch.set_scope(partials[-1], 0, "local")
        if width <= JOINED:
            return partials
        width //= JOINED
        loop = kernel.loops(block)[-1]


def _tiles(kernel: Kernel, block: BlockRV, product: Contraction, rows: int, columns: int) -> list[LoopRV]:
    """The loops over tiles, and inside them the dot products of one."""
    sch = kernel.sch
    loops = kernel.loops(block)
    spatial = dict(zip(product.stage.spatial, loops, strict=False))
    column, inner = sch.split(spatial[product.n], [None, columns])
    row, *own = sch.split(spatial[product.m], [None, rows]) if product.m is not None else (None,)
    outer = [*(spatial[p] for p in product.outer), column, *([row] if row is not None else [])]
    sch.reorder(*outer, *own, inner, loops[-1])
    for loop in (*own, inner, loops[-1]):
        sch.unroll(loop)
    return outer


def _vectors(kernel: Kernel, part: BlockRV, above: int, first: bool, size: int) -> LoopRV:
    """The loops of the sums in lanes (`first`; of `size` neighbours), or of a step that puts lanes together; gives the
    one over depth."""
    sch, stage = kernel.sch, kernel.stage(part)
    loops = kernel.loops(part)
    own = [n for n in range(above, len(loops)) if n in stage.spatial]
    depth = [loops[n] for n in stage.reduced]
    own.sort(key=lambda n: stage.step_of_store(n) == 1)  # the lanes, along which results lie side by side, inside
    members = depth[-1:] if first and size > 1 else []
    sch.reorder(*depth[: len(depth) - len(members)], *(loops[n] for n in own), *members)
    for loop in (*(loops[n] for n in own[:-1]), *members):
        sch.unroll(loop)
    sch.vectorize(loops[own[-1]])
    if not first:
        sch.unroll(depth[0])
    return depth[0]
