"""Split-k: products whose tiles do not fill all multiprocessors, parts of whose reduction different blocks compute.

The reduction axis is split, and its outer part becomes a batch axis of partial products (`rfactor`). A second kernel
adds up the partial results in a fixed order and applies the epilogue, so that results are reproducible, which they are
not with atomic additions.

The number of parts is that with the least expected time: more blocks fill the last wave better, but partial results
are written and read once more, and a second kernel is launched. Dealing out the iterations of all tiles evenly
(stream-k, Osama et al., 2023) would gain little beyond this (docs/gpu-speed.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.machine.gpu_rates import LAUNCH_SECONDS, GpuRates
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.contraction import Contraction, match_contraction
from mlcc.passes.auto_schedule.gpu.nests import bind_to_grid
from mlcc.passes.auto_schedule.gpu.product_parts import MIN_TILED_EXTENT, as_gemm, fuse_epilogue, pad_axes
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.schedule.handles import BlockRV

MIN_DEPTH = 128  # least depth of a part
DEPTH_UNIT = 64  # depth that all tiles divide
MAX_PARTS = 64
_OPTIONS = 6  # numbers of parts that are offered
_LEAST_GAIN = 1.1  # of the expected time: less may be an error of the model
_NEAR = 1.05  # expected times as good as the least

ProductTime = Callable[[int, int], float]  # seconds of a product of a depth, done a number of times
SUMS = ("float32", "float64", "int32")  # types whose partial sums lose no more than a running sum does


@dataclass(frozen=True)
class SplitProduct:
    """A product whose reduction is split: the block of the partial products, their contraction, and the block that adds
    them up."""

    partial: BlockRV
    product: Contraction
    total: BlockRV


def rate_parts(
    facts: GpuFacts, results: int, depth: int, batches: int, element: int, time: ProductTime
) -> list[tuple[float, int]]:
    """Return the expected seconds of a product of `results` sums in all, of `element` bytes, and the numbers of parts
    of its reduction, best first. One part is the first if others gain little."""
    bandwidth = GpuRates.of(facts).bytes_per_second
    rated = [(time(depth, batches), 1)]
    for parts in range(2, min(MAX_PARTS, depth // MIN_DEPTH) + 1):
        padded = -(-depth // (parts * DEPTH_UNIT)) * DEPTH_UNIT
        additions = LAUNCH_SECONDS + (2 * parts + 1) * results * element / bandwidth
        rated.append((time(padded, batches * parts) + additions, parts))
    least = min(rated)[0]
    near = [one for one in rated if one[0] <= _NEAR * least]  # the fewest parts of these take the least memory
    first = rated[0] if least * _LEAST_GAIN > rated[0][0] else min(near, key=lambda one: one[1])
    return [first, *sorted(one for one in rated if one is not first)]


def split_reduction(kernel: GpuKernel, block: BlockRV, product: Contraction, time: ProductTime) -> SplitProduct | None:
    """Split the reduction of a matrix product into parts; return None if it may not or should not be.

    `time` is the expected time of its best tiles.
    """
    parts = _choose_parts(kernel, product, time)
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


def split_to_gemm(kernel: GpuKernel, block: BlockRV, product: Contraction, time: ProductTime) -> SplitProduct | None:
    """Split the reduction as `split_reduction` does, and bring the partial products into GEMM form.

    Operands stay contiguous along the axis along which they are in memory.
    """
    along_depth = [product.contiguous_axis(operand) in product.k for operand in (product.lhs, product.rhs)]
    split = split_reduction(kernel, block, product, time)
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


def splittable_sizes(product: Contraction) -> tuple[int, int, int, int] | None:
    """Return the rows, columns, depth and batches of a product whose reduction may be split; None if it may not.

    All sizes must be known, rows and columns enough for tiles, and operands matrices. There must be one reduction axis,
    and partial sums of a type that loses nothing.
    """
    m, n, k, batches = (product.extent(product.m), product.extent(product.n), product.depth, product.times)
    if m is None or n is None or k is None or batches is None or min(m, n) < MIN_TILED_EXTENT:
        return None
    if len(product.k) != 1 or product.lhs.windows or product.rhs.windows:
        return None
    return (m, n, k, batches) if str(product.stage.stores[0].buffer.dtype) in SUMS else None


def _choose_parts(kernel: GpuKernel, product: Contraction, time: ProductTime) -> int:
    sizes = splittable_sizes(product)
    if sizes is None:
        return 1
    m, n, depth, batches = sizes
    element = product.stage.stores[0].buffer.dtype.bytes
    rated = rate_parts(kernel.facts, m * n * batches, depth, batches, element, time)
    offered = rated[:_OPTIONS] + [one for one in rated[_OPTIONS:] if one[1] == 1]
    if offered[0][1] == 1:
        offered = offered[:1]  # so that kernels which gain nothing have no choice to search
    return kernel.choose("parts", "parts of the reduction", {parts: seconds for seconds, parts in offered})


def _contraction(kernel: GpuKernel, block: BlockRV) -> Contraction:
    matched = match_contraction(kernel.stage(block))
    if isinstance(matched, str):
        not_applicable(matched)
    return matched


def _swap_last_two(rank: int) -> tir.IndexMap:
    """Return the index map that transposes matrices."""
    dims = [tir.Var(f"i{n}", INT64) for n in range(rank)]
    return tir.IndexMap(tuple(dims), (*dims[:-2], dims[-1], dims[-2]))
