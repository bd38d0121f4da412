"""Strips of the operands of a product, which all threads of a block fetch into shared memory, step by step.

From sm_80 on the strips of later steps are fetched while earlier steps are multiplied (a software pipeline of
asynchronous copies); each strip has as many versions as steps are in flight.
"""

from __future__ import annotations

from math import prod

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import used_vars
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.gpu.product_parts import cache_operand, loop_depth
from mlcc.passes.auto_schedule.gpu.simt_tiles import BANKS, PIECE, Tile
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.gpu.async_copy import SIZES
from mlcc.passes.lowering.pipeline_parts import ROLLED
from mlcc.passes.schedule.handles import BlockRV, LoopRV

VERSIONS = (4, 3, 2)  # versions of a strip, as memory permits; 4 has the cheapest remainder
NEIGHBOURS = 8  # elements transposed together: one memory request brings 8, which go to distinct banks


def cache_strip(kernel: GpuKernel, block: BlockRV, product: Contraction, operand: Operand) -> BlockRV:
    """Copy an operand into shared memory, so that the elements that a thread multiplies together are contiguous.

    Return the block that copies.
    """
    copy, buffer = cache_operand(kernel, block, operand, "shared")
    if product.contiguous_axis(operand) in product.k:
        kernel.sch.transform_layout(copy, ("write", 0), _depth_major(buffer, operand, product))
        kernel.sch.storage_align(copy, 0, -2, BANKS, PIECE)
    return copy


def _depth_major(buffer: tir.Buffer, operand: Operand, product: Contraction) -> tir.IndexMap:
    """Return the index map that moves reduction axes before the operand's free axis."""
    index_vars = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    own_axis = product.m if operand is product.lhs else product.n
    ranks = dict.fromkeys(product.k, 1) | {own_axis: 2}
    by_rank = sorted(zip(index_vars, operand.places, strict=True), key=lambda pair: ranks.get(pair[1], 0))
    return tir.IndexMap(index_vars, tuple(v for v, _ in by_rank))


def fetch(kernel: GpuKernel, copy: BlockRV, depth: LoopRV, tile: Tile) -> None:
    """Let all threads of a block fetch a strip together, in vectors where the operand is contiguous."""
    sch = kernel.sch
    sch.compute_at(copy, depth)
    first = loop_depth(kernel, copy, depth)
    stage = kernel.stage(copy)
    lanes = _lanes(kernel, stage, first, tile)
    strip_loops = kernel.loops(copy)[first:]
    if lanes == 1 and len(strip_loops) > 1 and _transposes(stage):
        group, member = sch.split(strip_loops[-1], [None, NEIGHBOURS])
        sch.reorder(group, *strip_loops[:-1], member)
        strip_loops = [group, *strip_loops[:-1], member]
    fused = sch.fuse(*strip_loops) if len(strip_loops) > 1 else strip_loops[0]
    turn, y, x, *vector = sch.split(fused, [None, tile.y, tile.x, *([lanes] if lanes > 1 else [])])
    sch.unroll(turn)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    for lane in vector:
        sch.vectorize(lane)


def _transposes(stage: Stage) -> bool:
    """Return True if the copy of a strip transposes it: contiguous loads, strided stores.

    Rows must be longer than NEIGHBOURS, and a multiple of it.
    """
    extent, last = stage.extents[-1], len(stage.loops) - 1
    if extent is None or extent == NEIGHBOURS or extent % NEIGHBOURS:
        return False
    return all((s == 1) != a.stored for s, a in zip(stage.steps_by(last), stage.accesses, strict=True))


def _lanes(kernel: GpuKernel, stage: Stage, outer_count: int, tile: Tile) -> int:
    """Return how many elements an access of a thread fetches: as many as are provably contiguous, at most its share.

    Asynchronous copies must be contiguous where they are stored, too.
    """
    extents, last = stage.extents[outer_count:], len(stage.loops) - 1
    steps = list(zip(stage.steps_by(last), stage.accesses, strict=True))
    relevant_strides = [s for s, a in steps if not a.stored or kernel.facts.has_cp_async]
    if None in extents or any(s != 1 for s in relevant_strides):
        return 1
    lanes = VECTOR_BYTES // stage.element_bytes
    rows = [tir.const_int(a.buffer.shape[-1]) for _, a in steps if not a.stored]
    total = prod(n for n in extents if n is not None)
    sizes = [extents[-1], total // tile.threads, *rows]
    while lanes > 1 and (any(n is None or n % lanes for n in sizes) or not _has_uniform_guard(stage, lanes)):
        lanes //= 2
    return max(lanes, 1)


def _has_uniform_guard(stage: Stage, lanes: int) -> bool:
    """Return True if the guard of a strip's copy is uniform over each group of `lanes` neighbours.

    The guard of padding is uniform if the extent before padding is a multiple of `lanes`.
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
    """Overlap the copies of later steps with the products of the current one, on devices with asynchronous copies.

    Return the number of versions of the strips.
    """
    sizes = [kernel.stage(copy).element_bytes for copy in copies]
    steps = tir.const_int(kernel.sch.get(depth).extent)
    if not kernel.facts.has_cp_async or min(sizes) not in SIZES or (steps is not None and steps < 2):
        return 1
    max_bytes = kernel.facts.shared_per_sm // 2
    candidates = (n for n in VERSIONS if tile.shared(n, max(sizes)) < min(max_bytes, kernel.facts.shared_per_block))
    max_versions = min(next(candidates, 1), steps or VERSIONS[0])
    versions = kernel.choose("stages", "pipeline stages in shared memory", [*range(max_versions, 0, -1)])
    if versions > 1:
        kernel.sch.annotate(depth, "software_pipeline_stage", [0, 0, versions - 1])
        kernel.sch.annotate(depth, "software_pipeline_order", [1, 2, 0])
        kernel.sch.annotate(depth, "software_pipeline_async_stages", [0])
        kernel.sch.annotate(depth, ROLLED, 1)  # do not duplicate the products
    return versions
