"""Matrix products on tensor cores: a block of warps computes a tile, each warp a register tile of it.

Asynchronous copies bring strips of both operands to shared memory, some steps ahead of the products; from there warps
load them as fragments (`ldmatrix`) and multiply them (`mma.sync`). The accumulators are stored from registers, after an
elementwise epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod

from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.gpu.fragments import MmaKind, schedule_mma
from mlcc.passes.auto_schedule.gpu.product_parts import MIN_TILED_EXTENT, as_gemm, schedule_others
from mlcc.passes.auto_schedule.gpu.split_k import SplitProduct, add_parts, split_reduction, splittable_sizes
from mlcc.passes.auto_schedule.gpu.tensor_tiles import PARTS, GemmSizes, fitting_choices, product_seconds
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.schedule.handles import BlockRV

UNKNOWN_EXTENT = 4096  # the assumed extent of unknown sizes

# by the type of both operands and that of the sums
_KINDS: Mapping[tuple[str, str], MmaKind] = {
    ("float16", "float32"): MmaKind("f16", "f32", 16),
    ("float16", "float16"): MmaKind("f16", "f16", 16),
    ("bfloat16", "float32"): MmaKind("bf16", "f32", 16),
    ("int8", "int32"): MmaKind("i8", "i32", 32),
    ("float32", "float32"): MmaKind("tf32", "f32", 8),
}


def tensor_cores(kernel: GpuKernel) -> str:
    """Schedule a matrix product of 16-bit floats, bytes, or float32 as tf32 on tensor cores; see the module."""
    _check(kernel)
    block, product = only_product(kernel)
    name = product.stage.block.name
    _schedule(kernel, block, product)
    return f"`{name}` is a matrix product for tensor cores"


def tensor_conv(kernel: GpuKernel) -> str:
    """Schedule a convolution on tensor cores, as a product one operand of which is read at windows as it is fetched."""
    _check(kernel)
    block, product = only_product(kernel, windows=True)
    name = product.stage.block.name
    _schedule(kernel, block, product)
    return f"`{name}` is a convolution for tensor cores"


def _check(kernel: GpuKernel) -> None:
    if not kernel.facts.has_cp_async:
        not_applicable(f"{kernel.facts.arch.name} has no asynchronous copies, and other instruction shapes")


def _schedule(kernel: GpuKernel, block: BlockRV, product: Contraction) -> None:
    """Schedule a product, and all other blocks."""
    kind = _mma_kind(kernel, product)
    along = [product.contiguous_axis(operand) in product.k for operand in (product.lhs, product.rhs)]
    split = _split_reduction(kernel, block, product, kind)
    if split is not None:
        block, product = split.partial, split.product
    if None not in product.stage.extents or len(product.k) > 1 or product.lhs.windows or product.rhs.windows:
        block, product = as_gemm(kernel, block, product)
    else:
        product = with_inner_row_axis(product)
    if product.m is None or any(
        (product.extent(p) or MIN_TILED_EXTENT) < MIN_TILED_EXTENT for p in (product.m, product.n)
    ):
        not_applicable("too few rows or columns for tiles")
    m, n, k = (product.extent(p) or UNKNOWN_EXTENT for p in (product.m, product.n, *product.k))
    batches = prod(product.extent(p) or MIN_TILED_EXTENT for p in product.outer)
    sizes = GemmSizes(m, n, k, batches, kind.bytes)
    choices = fitting_choices(kernel.facts, sizes, kind.depth)
    if not choices:
        not_applicable("no tile fits")
    choice = choose_tile(kernel, choices, PARTS)
    stages = kernel.choose("stages", "pipeline stages in shared memory", [*range(choice.stages, 0, -1)])
    choice = replace(choice, stages=stages)
    kernel.say(str(choice))
    schedule_mma(kernel, block, product, kind, choice, along)
    if split is not None:
        add_parts(kernel, split.total)
    schedule_others(kernel)


def _split_reduction(kernel: GpuKernel, block: BlockRV, product: Contraction, kind: MmaKind) -> SplitProduct | None:
    """Split the reduction of a product if it may be and is expected to finish earlier."""
    known = splittable_sizes(product)
    if known is None:
        return None
    sizes = GemmSizes(*known, kind.bytes)
    return split_reduction(kernel, block, product, partial(product_seconds, kernel.facts, sizes, kind.depth))


def with_inner_row_axis(product: Contraction) -> Contraction:
    """Use the innermost of several row axes of unknown size as the row axis: outer ones are more often short."""
    unknown = [p for p in product.outer if product.lhs.has(p) and not product.rhs.has(p) and product.extent(p) is None]
    if product.extent(product.m) is not None or not unknown or product.m is None or max(unknown) < product.m:
        return product
    outer = tuple(product.m if p == max(unknown) else p for p in product.outer)
    return replace(product, m=max(unknown), outer=outer)


def _mma_kind(kernel: GpuKernel, product: Contraction) -> MmaKind:
    operands = {str(o.buffer.dtype) for o in (product.lhs, product.rhs)}
    kind = _KINDS.get((operands.pop(), str(product.stage.stores[0].buffer.dtype))) if len(operands) == 1 else None
    if kind is None:
        not_applicable("tensor cores have no product of these types")
    if kind.operands == "tf32" and not kernel.facts.tf32:
        not_applicable("the target option `tf32` would admit tensor cores, which round float32 to 10 bits of fraction")
    return kind
