"""Split-k: products with few tiles and a long reduction, parts of which are computed by different blocks.

The reduction axis is split, and its outer part becomes a batch axis of partial products (`rfactor`). A second kernel
adds up the partial results in a fixed order and applies the epilogue, so that results are reproducible, which they are
not with atomic additions.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.passes.auto_schedule.contraction import Contraction, match_contraction
from mlcc.passes.auto_schedule.gpu.nests import bind_to_grid
from mlcc.passes.auto_schedule.gpu.product_parts import as_gemm, fuse_epilogue, pad_axes
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.tuning_choices import nearest_first
from mlcc.passes.schedule.handles import BlockRV

MIN_DEPTH = 512  # least depth of a part: the partial results cost as much traffic as a few dozen steps
DEPTH_UNIT = 64  # depth that all tiles divide
MAX_PARTS = 64
SUMS = ("float32", "float64", "int32")  # types whose partial sums lose no more than a running sum does


@dataclass(frozen=True)
class SplitProduct:
    """A product whose reduction is split: the block of the partial products, their contraction, and the block that adds
    them up."""

    partial: BlockRV
    product: Contraction
    total: BlockRV


def most_parts(sm_count: int, tiles: int, depth: int | None) -> int:
    """Return how many parts a reduction of this depth may have; 1 unless `tiles` leave most multiprocessors idle."""
    return max(min(sm_count // max(tiles, 1), (depth or 0) // MIN_DEPTH, MAX_PARTS), 1)


def split_reduction(kernel: GpuKernel, block: BlockRV, product: Contraction, tiles: int) -> SplitProduct | None:
    """Split the reduction of a matrix product of `tiles` tiles into parts; return None if it should not be."""
    parts = _choose_parts(kernel, product, tiles)
    if parts < 2:
        return None
    sch = kernel.sch
    (axis,) = product.k
    if (product.depth or 0) % parts:
        pad_axes(kernel, block, product, {axis: parts * DEPTH_UNIT})
        for reader in sch.get_consumers(block):  # the copy without the padding
            fuse_epilogue(kernel, reader)
    part, _ = sch.split(kernel.loops(block)[axis], [parts, None])
    partial = sch.rfactor(part, 0)
    loops = kernel.loops(partial)
    sch.reorder(loops.pop(axis), *loops)
    kernel.say(f"the reduction in {parts} parts, added up by a second kernel")
    return SplitProduct(partial, _contraction(kernel, partial), block)


def split_to_gemm(kernel: GpuKernel, block: BlockRV, product: Contraction, tiles: int) -> SplitProduct | None:
    """Split the reduction as `split_reduction` does, and bring the partial products into GEMM form.

    Operands stay contiguous along the axis along which they are in memory.
    """
    along_depth = [product.contiguous_axis(operand) in product.k for operand in (product.lhs, product.rhs)]
    split = split_reduction(kernel, block, product, tiles)
    if split is None:
        return None
    partial, gemm = as_gemm(kernel, split.partial, split.product)
    for operand, is_along_depth in zip((gemm.lhs, gemm.rhs), along_depth, strict=True):
        if not is_along_depth:
            index = read_index(kernel, partial, operand.buffer)
            kernel.sch.transform_layout(partial, ("read", index), _swap_last_two(len(operand.buffer.shape)))
    return SplitProduct(partial, _contraction(kernel, partial), split.total)


def add_parts(kernel: GpuKernel, block: BlockRV) -> BlockRV:
    """Schedule the sum of partial products with its epilogue, a thread for each result; return the storing block."""
    sch = kernel.sch
    store = sch.cache_write(block, 0, "local")
    fuse_epilogue(kernel, store)
    stage = kernel.stage(store)
    bind_to_grid(kernel, kernel.loops(store), stage.times(range(len(stage.loops))))
    sch.compute_at(block, kernel.loops(store)[-1])
    return store


def _choose_parts(kernel: GpuKernel, product: Contraction, tiles: int) -> int:
    if len(product.k) != 1 or str(product.stage.stores[0].buffer.dtype) not in SUMS:
        return 1
    depth = product.depth or 0
    most = most_parts(kernel.facts.sm_count, tiles, depth)
    if most < 2:
        return 1
    even = [n for n in range(most, most // 2, -1) if depth % (n * DEPTH_UNIT) == 0]
    return kernel.choose("parts", "parts of the reduction", nearest_first(even[0] if even else most, {1, most, *even}))


def _contraction(kernel: GpuKernel, block: BlockRV) -> Contraction:
    matched = match_contraction(kernel.stage(block))
    if isinstance(matched, str):
        not_applicable(matched)
    return matched


def _swap_last_two(rank: int) -> tir.IndexMap:
    """Return the index map that transposes matrices."""
    dims = [tir.Var(f"i{n}", INT64) for n in range(rank)]
    return tir.IndexMap(tuple(dims), (*dims[:-2], dims[-1], dims[-2]))
