"""Strips of the operands of a product, which all threads of a block fetch into shared memory, depth by depth.

From sm_80 on they are fetched while products of earlier steps are under way (a software pipeline of asynchronous
copies); there are as many versions of each strip as steps are under way.
"""

from __future__ import annotations

from math import prod

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import used_vars
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.gpu.product_parts import fetched, loops_down_to
from mlcc.passes.auto_schedule.gpu.simt_tiles import BANKS, PIECE, Tile
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.gpu.async_copy import SIZES
from mlcc.passes.lowering.pipeline_parts import ROLLED
from mlcc.passes.schedule.handles import BlockRV, LoopRV

VERSIONS = (4, 3, 2)  # of a strip, as far as there is memory for them; remainders of 4 are the cheapest
NEIGHBOURS = 8  # elements that a strip is turned by: 8 of a row are what a request brings, and go to other banks


def strip(kernel: GpuKernel, block: BlockRV, product: Contraction, operand: Operand) -> BlockRV:
    """Copy an operand into shared memory, with the elements contiguous that a thread multiplies at a time.

    Return the block that copies.
    """
    copy, buffer = fetched(kernel, block, operand, "shared")
    if product.consecutive(operand) in product.k:
        kernel.sch.transform_layout(copy, ("write", 0), _depth_first(buffer, operand, product))
        kernel.sch.storage_align(copy, 0, -2, BANKS, PIECE)
    return copy


def _depth_first(buffer: tir.Buffer, operand: Operand, product: Contraction) -> tir.IndexMap:
    """The dimensions of an operand with those that are summed up over before its own."""
    given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    own = product.m if operand is product.lhs else product.n
    ranks = dict.fromkeys(product.k, 1) | {own: 2}
    by_rank = sorted(zip(given, operand.places, strict=True), key=lambda pair: ranks.get(pair[1], 0))
    return tir.IndexMap(given, tuple(v for v, _ in by_rank))


def fetch(kernel: GpuKernel, copy: BlockRV, depth: LoopRV, tile: Tile) -> None:
    """All threads of a block fetch a strip together, in vectors where that reads memory as it lies."""
    sch = kernel.sch
    sch.compute_at(copy, depth)
    first = loops_down_to(kernel, copy, depth)
    stage = kernel.stage(copy)
    lanes = _lanes(kernel, stage, first, tile)
    own = kernel.loops(copy)[first:]
    if lanes == 1 and len(own) > 1 and _is_turned(stage):
        far, near = sch.split(own[-1], [None, NEIGHBOURS])
        sch.reorder(far, *own[:-1], near)
        own = [far, *own[:-1], near]
    fused = sch.fuse(*own) if len(own) > 1 else own[0]
    turn, y, x, *vector = sch.split(fused, [None, tile.y, tile.x, *([lanes] if lanes > 1 else [])])
    sch.unroll(turn)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    for lane in vector:
        sch.vectorize(lane)


def _is_turned(stage: Stage) -> bool:
    """Return True if the copy of a strip transposes it: contiguous loads, strided stores.

    Rows must be longer than `NEIGHBOURS`, and a multiple of it.
    """
    extent, last = stage.extents[-1], len(stage.loops) - 1
    if extent is None or extent == NEIGHBOURS or extent % NEIGHBOURS:
        return False
    return all((s == 1) != a.stored for s, a in zip(stage.steps_by(last), stage.accesses, strict=True))


def _lanes(kernel: GpuKernel, stage: Stage, first: int, tile: Tile) -> int:
    """Return how many elements an access of a thread fetches: as many as are surely contiguous, and at most its share.

    Asynchronous copies must be contiguous where they are stored, too.
    """
    extents, last = stage.extents[first:], len(stage.loops) - 1
    steps = list(zip(stage.steps_by(last), stage.accesses, strict=True))
    looked_at = [s for s, a in steps if not a.stored or kernel.facts.has_cp_async]
    if None in extents or any(s != 1 for s in looked_at):
        return 1
    lanes = VECTOR_BYTES // stage.element_bytes
    rows = [tir.const_int(a.buffer.shape[-1]) for _, a in steps if not a.stored]
    total = prod(n for n in extents if n is not None)
    sizes = [extents[-1], total // tile.threads, *rows]
    while lanes > 1 and (any(n is None or n % lanes for n in sizes) or not _guarded_alike(stage, lanes)):
        lanes //= 2
    return max(lanes, 1)


def _guarded_alike(stage: Stage, lanes: int) -> bool:
    """Return True if the guard of a strip's copy is uniform over each group of `lanes` neighbours.

    The guard of padding is, if the extent before padding is a multiple of `lanes`.
    """
    value = stage.stores[0].value
    if isinstance(value, tir.BufferLoad):
        return True
    inner = {axis for axis, at in stage.axes.items() if stage.loops[-1].var in used_vars(at)}
    for node in walk(value):
        if isinstance(node, tir.CompareOp) and used_vars(node) & inner:
            limit = tir.const_int(node.rhs)
            if not (isinstance(node, tir.LT) and node.lhs in inner and limit is not None and limit % lanes == 0):
                return False
    return True


def pipeline(kernel: GpuKernel, depth: LoopRV, copies: list[BlockRV], tile: Tile) -> int:
    """Overlap the copies of later steps with the products of one, on devices with asynchronous copies.

    Return how many versions of the strips there are.
    """
    sizes = [kernel.stage(copy).element_bytes for copy in copies]
    steps = tir.const_int(kernel.sch.get(depth).extent)
    if not kernel.facts.has_cp_async or min(sizes) not in SIZES or (steps is not None and steps < 2):
        return 1
    room = kernel.facts.shared_per_sm // 2
    fitting = (n for n in VERSIONS if tile.shared(n, max(sizes)) < min(room, kernel.facts.shared_per_block))
    most = min(next(fitting, 1), steps or VERSIONS[0])
    versions = kernel.choose("stages", "steps whose operands are in shared memory at once", [*range(most, 0, -1)])
    if versions > 1:
        kernel.sch.annotate(depth, "software_pipeline_stage", [0, 0, versions - 1])
        kernel.sch.annotate(depth, "software_pipeline_order", [1, 2, 0])
        kernel.sch.annotate(depth, "software_pipeline_async_stages", [0])
        kernel.sch.annotate(depth, ROLLED, 1)  # the products once in the code
    return versions
