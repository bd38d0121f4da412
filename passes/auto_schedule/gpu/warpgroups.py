"""Matrix products by warpgroups (`wgmma`, sm_90a): four warps multiply operands in shared memory.

The copy engine brings tiles of both operands, some steps ahead of the products, each in its layout in global memory;
elements past the end are zeros. Operands that are not boxes of a tensor are copied by all threads, 16 bytes at a time;
so is float32, which they round to tf32, and transpose where it is not contiguous along the reduction.
The accumulators stay in registers, and are stored after an elementwise epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.machine.gpu_rates import GpuRates
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu import tensor_tiles
from mlcc.passes.auto_schedule.gpu.fragments import (
    bind_blocks,
    copy_to_shared,
    move_dims_last,
    pipeline,
    result_axes,
    store_accumulators,
)
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.gpu.product_parts import (
    as_gemm,
    cache_operand,
    fuse_epilogue,
    has_several_axes,
    pad_to_tiles,
    schedule_others,
)
from mlcc.passes.auto_schedule.gpu.split_k import rate_parts
from mlcc.passes.auto_schedule.gpu.tensor_cores import UNKNOWN_EXTENT, with_inner_row_axis
from mlcc.passes.auto_schedule.gpu.tensor_tiles import GemmSizes
from mlcc.passes.auto_schedule.gpu.warpgroup_tiles import GROUP, PARTS, ROWS, WarpgroupConfig, fitting_choices
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import only_product, read_index
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.gpu.wgmma_layout import Wgmma
from mlcc.passes.lowering.pipeline_parts import BULK_COPY, ROUND_TF32
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.runtime.launch.tensor_map import MAX_DIMS

_ROW_BYTES = 128  # bytes of a row in shared memory
_SUM_BYTES = 4  # bytes per sum


@dataclass(frozen=True)
class _Kind:
    """The name of the operands' type in intrinsics, bytes of an element, and the depth of one instruction."""

    name: str
    bytes: int
    depth: int

    @property
    def row(self) -> int:
        """Elements of a row, which are the depth of a step."""
        return _ROW_BYTES // self.bytes

    @property
    def transposes(self) -> bool:
        """True if instructions read operands along either axis, else only those contiguous along the reduction."""
        return self.bytes == 2


_KINDS: Mapping[str, _Kind] = {
    "float16": _Kind("f16", 2, 16), "bfloat16": _Kind("bf16", 2, 16), "float32": _Kind("tf32", 4, 8),
}  # fmt: skip


def warpgroups(kernel: GpuKernel) -> str:
    """Schedule a matrix product by warpgroups; see the module."""
    return f"`{_schedule_product(kernel, windows=False)}` is a matrix product for warpgroups"


def warpgroup_conv(kernel: GpuKernel) -> str:
    """Schedule a convolution by warpgroups, as a product one operand of which is read at windows as it is fetched."""
    return f"`{_schedule_product(kernel, windows=True)}` is a convolution for warpgroups"


def _schedule_product(kernel: GpuKernel, windows: bool) -> str:
    """Schedule the only product, and all other blocks; return the name of the product's block."""
    if not kernel.facts.has_wgmma:
        not_applicable(f"{kernel.facts.arch.name} has no warpgroup instructions")
    block, product = only_product(kernel, windows)
    product = with_inner_row_axis(product)
    name = product.stage.block.name
    kind = _operand_kind(kernel, product)
    operands = (product.lhs, product.rhs)
    depth_contiguous = [product.contiguous_axis(operand) in product.k for operand in operands]
    why = next(filter(None, (_why_no_bulk_copy(kernel, product, operand) for operand in operands)), None)
    if kind.name == "tf32":
        why = "factors are rounded as they are copied"
    if why is None and (product.extent(product.m) or ROWS) < ROWS and has_several_axes(product):
        why = f"`{product.lhs.buffer.name}` has rows of several axes"
    if why is not None:
        if None in product.stage.extents:
            not_applicable(why)
        block, product = as_gemm(kernel, block, product)
        kernel.say(f"threads copy: {why}")
    choice = _choose_tile(kernel, product, kind)
    kernel.say(str(choice))
    _schedule_tiles(kernel, block, product, kind, depth_contiguous, choice, why is None)
    schedule_others(kernel)
    return name


def _operand_kind(kernel: GpuKernel, product: Contraction) -> _Kind:
    """Return the kind of the operands.

    Raise RuleNotApplicable unless both operands are of one of these kinds and sums are float32.
    """
    operands = {str(o.buffer.dtype) for o in (product.lhs, product.rhs)}
    kind = _KINDS.get(operands.pop()) if len(operands) == 1 else None
    if kind is None or str(product.stage.stores[0].buffer.dtype) != "float32":
        not_applicable("warpgroups multiply float16, bfloat16 or tf32, and accumulate in float32")
    if kind.name == "tf32" and not kernel.facts.tf32:
        not_applicable("the target option `tf32` would admit tensor cores, which round float32 to 10 bits of fraction")
    return kind


def _why_no_bulk_copy(kernel: GpuKernel, product: Contraction, operand: Operand) -> str | None:
    """Return why the copy engine cannot fetch an operand, or None if it can.

    It fetches boxes of a tensor that is a parameter, with rows that begin at multiples of 16 bytes.
    """
    own_axis, buffer = product.m if operand is product.lhs else product.n, operand.buffer
    if product.m is None or len(product.k) != 1 or operand.windows or operand.places[-1] not in (own_axis, *product.k):
        return f"`{buffer.name}` is not a matrix with contiguous rows along its own axis or the reduction"
    is_parameter = any(b is buffer for b in kernel.func.buffers)
    written = any(w.buffer is buffer for stage in kernel.stages() for w in stage.block.writes)
    if not is_parameter or written or len(buffer.shape) > MAX_DIMS:
        return f"`{buffer.name}` is not a parameter that the copy engine can read"
    row = tir.const_int(buffer.shape[-1])
    begins = 0 if buffer.elem_offset is None else tir.const_int(buffer.elem_offset)
    if row is None or row * buffer.dtype.bytes % VECTOR_BYTES or buffer.strides or begins != 0:
        return f"rows of `{buffer.name}` may be unaligned"
    return None


def _choose_tile(kernel: GpuKernel, product: Contraction, kind: _Kind) -> WarpgroupConfig:
    """Choose a tile. Raise RuleNotApplicable if the smaller tiles of single warps are estimated to be faster."""
    if any((product.extent(p) or ROWS) < ROWS for p in (product.m, product.n)):
        not_applicable("too few rows or columns for a warpgroup")
    m, n, k = (product.extent(p) or UNKNOWN_EXTENT for p in (product.m, product.n, *product.k))
    # tiles are rated by elements of 16 bits: one of 32 takes the bytes and the time of two
    sizes = GemmSizes(m, n, k * kind.bytes // 2, prod(product.extent(p) or 1 for p in product.outer), 2)
    choices = fitting_choices(kernel.facts, sizes)
    if not choices:
        not_applicable("no tile fits")
    choice = choices[0][1]
    # warps fuse several row axes into one
    rows = prod(product.extent(p) or 1 for p in product.outer if product.lhs.has(p) and not product.rhs.has(p))
    joined = GemmSizes(m * rows, n, k, sizes.batches // rows, kind.bytes)
    other = tensor_tiles.choose(kernel.facts, joined, kind.depth)
    seconds = choice.clocks / GpuRates.of(kernel.facts).hertz
    if other is not None and _seconds_of_warps(kernel, product, joined, kind) < seconds:
        kernel.prefer_next_rule(f"single warps are estimated to be faster: {other}")
    choice = choose_tile(kernel, choices, PARTS)
    stages = kernel.choose("stages", "pipeline stages in shared memory", [*range(choice.stages, 0, -1)])
    return replace(choice, stages=stages)


def _seconds_of_warps(kernel: GpuKernel, product: Contraction, sizes: GemmSizes, kind: _Kind) -> float:
    """Return the expected seconds of a product by single warps, with its reduction in parts where that is faster."""
    time = partial(tensor_tiles.product_seconds, kernel.facts, sizes, kind.depth)
    if None in product.stage.extents or product.lhs.windows or product.rhs.windows:
        return time(sizes.k, sizes.batches)
    results = sizes.m * sizes.n * sizes.batches
    return rate_parts(kernel.facts, results, sizes.k, sizes.batches, _SUM_BYTES, time)[0][0]


def _schedule_tiles(
    kernel: GpuKernel,
    block: BlockRV,
    product: Contraction,
    kind: _Kind,
    source_contiguous: list[bool],
    choice: WarpgroupConfig,
    bulk: bool,
) -> None:
    """Schedule the tiles of a product; with `bulk` the copy engine fetches the operands.

    `source_contiguous` tells for each operand whether it is contiguous along the reduction in global memory.
    """
    sch, tile = kernel.sch, choice.tile
    depth_contiguous = [along or not kind.transposes for along in source_contiguous]
    assert product.m is not None
    result = result_axes(product)
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, kind.row)
    for reader in sch.get_consumers(block):  # before the product is tiled
        fuse_epilogue(kernel, reader)
    strips = [
        _cache_strip(kernel, block, product, operand, size, is_depth_contiguous)
        for operand, size, is_depth_contiguous in zip(
            (product.lhs, product.rhs), (tile.rows, tile.columns), depth_contiguous, strict=True
        )
    ]
    mma, group, step, inner = _tile_loops(kernel, block, product, choice, kind)
    for strip, operand, free_axis, along, is_depth_contiguous in zip(
        strips, (product.lhs, product.rhs), (product.m, product.n), source_contiguous, depth_contiguous, strict=True
    ):
        if bulk:
            sch.compute_at(strip, step, preserve_unit_loops=True)
            sch.annotate(strip, BULK_COPY, True)
        else:
            dims = operand.places.index(free_axis), operand.places.index(product.k[0])
            threads = {"threadIdx.y": tile.groups, "threadIdx.x": GROUP}
            lanes = copy_to_shared(kernel, strip, step, threads, dims, along, is_depth_contiguous, gathers=True)
            if lanes * kind.bytes < VECTOR_BYTES:
                not_applicable(f"an operand cannot be copied {VECTOR_BYTES} bytes at a time")
        if kind.name == "tf32":
            sch.annotate(strip, ROUND_TF32, True)
        sch.annotate(strip, "permuted_layout", _ROW_BYTES)
    store = sch.cache_write(mma, 0, "warpgroup")
    sums = kernel.stage(store).block.reads[0].buffer
    sch.reverse_compute_at(store, group, preserve_unit_loops=True)
    fuse_epilogue(kernel, store)
    rows_columns = (result.index(product.m), result.index(product.n))
    accumulator_map = _accumulator_layout(
        len(result), rows_columns, Wgmma(tile.columns, kind.depth, kind.name, kind.name, "f32")
    )
    sch.transform_layout(store, ("read", read_index(kernel, store, sums)), accumulator_map)
    start = sch.decompose_reduction(mma, step)
    sch.tensorize(start, f"wgmma_fill_64x{tile.columns}_f32")
    transposes = ("" if depth_contiguous[0] else "_trans_a") + ("_trans_b" if depth_contiguous[1] else "")
    sch.tensorize(mma, f"wgmma_sync_64x{tile.columns}x{kind.depth}_{kind.name}{kind.name}f32{transposes}_dyn")
    pipeline(kernel, step, choice.stages)
    sch.unroll(inner)
    store_accumulators(kernel, store, group, rows_columns, by_group=True)


def _cache_strip(
    kernel: GpuKernel, block: BlockRV, product: Contraction, operand: Operand, size: int, depth_contiguous: bool
) -> BlockRV:
    """Copy `size` elements of an operand's free axis at a time into rows of 128 bytes; return the block that copies."""
    copy, buffer = cache_operand(kernel, block, operand, "shared.dyn")
    free_dim = operand.places.index(product.m if operand is product.lhs else product.n)
    depth_dim = operand.places.index(product.k[0])
    index_map = move_dims_last(len(buffer.shape), (free_dim, depth_dim) if depth_contiguous else (depth_dim, free_dim))
    elements = _ROW_BYTES // buffer.dtype.bytes
    if not depth_contiguous and size > elements:
        *before, row, column = index_map.result
        column_block, column_in_block = c.floordiv(column, elements), c.floormod(column, elements)
        index_map = tir.IndexMap(index_map.indices, (*before, column_block, row, column_in_block))
    kernel.sch.transform_layout(copy, ("write", 0), index_map)
    return copy


def _tile_loops(
    kernel: GpuKernel, block: BlockRV, product: Contraction, choice: WarpgroupConfig, kind: _Kind
) -> tuple[BlockRV, LoopRV, LoopRV, LoopRV]:
    """Tile and bind the loops; return one instruction's block, and the loops over warpgroups, steps and depth."""
    sch, tile, loops = kernel.sch, choice.tile, kernel.loops(block)
    assert product.m is not None
    (k,) = product.k
    far_m, group, mm = sch.split(loops[product.m], [None, tile.groups, ROWS])
    far_n, nn = sch.split(loops[product.n], [None, tile.columns])
    step, inner, kk = sch.split(loops[k], [None, kind.row // kind.depth, kind.depth])
    outer = [loops[p] for p in product.outer]
    sch.reorder(*outer, far_m, far_n, group, step, inner, mm, nn, kk)
    inner_block = sch.blockize(mm)
    bind_blocks(kernel, outer, far_m, far_n)
    sch.bind(group, "threadIdx.y")
    return inner_block, group, step, inner


def _accumulator_layout(rank: int, dims: tuple[int, int], kind: Wgmma) -> tir.IndexMap:
    """Return the accumulator layout: indices to (..., tile row, tile column, thread, accumulator number)."""
    index_vars = tuple(tir.Var(f"i{n}", c.as_expr(0).dtype) for n in range(rank))
    before = [v for n, v in enumerate(index_vars) if n not in dims]
    i, j = (index_vars[n] for n in dims)
    thread, number = kind.place_c(c.floormod(i, ROWS), c.floormod(j, kind.n))
    return tir.IndexMap(index_vars, (*before, c.floordiv(i, ROWS), c.floordiv(j, kind.n), thread, number))
