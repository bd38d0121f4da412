"""Products of matrices by warpgroups (`wgmma`, sm_90a): four warps multiply together what lies in shared memory.

The copy engine brings tiles of both operands, some steps ahead of the products, each in the layout that it has in
global memory; what tiles have beyond an operand are zeros. Operands that are no boxes of a tensor are copied by all
threads, 16 bytes at a time. Sums stay in registers, and are stored from there with what
follows element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu import tensor_tiles
from mlcc.passes.auto_schedule.gpu.fragments import (
    fetch,
    pipeline,
    result_places,
    store_sums,
    to_blocks,
    two_last,
)
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.gpu.product_parts import (
    absorb_readers,
    as_gemm,
    fetched,
    has_several_axes,
    pad_to_tiles,
    schedule_others,
)
from mlcc.passes.auto_schedule.gpu.tensor_cores import UNKNOWN, by_inner_rows
from mlcc.passes.auto_schedule.gpu.tensor_tiles import Sizes
from mlcc.passes.auto_schedule.gpu.warpgroup_tiles import DEPTH, GROUP, PARTS, ROWS, GroupChoice, fitting_choices
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import number_of, only_product
from mlcc.passes.auto_schedule.tile_choice import choose_tile
from mlcc.passes.gpu.wgmma_layout import Wgmma
from mlcc.passes.lowering.pipeline_parts import BULK
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.runtime.launch.tensor_map import MOST_DIMS

_KINDS: Mapping[str, str] = {"float16": "f16", "bfloat16": "bf16"}
_ALONG = 16  # products of one instruction
_BYTES = 2  # of an element
_PIECE = 64  # elements of a row of 128 bytes


def warpgroups(kernel: GpuKernel) -> str:
    """The rule for products of matrices, as the module says."""
    return f"`{_taken(kernel, windows=False)}` is a product of matrices for warpgroups"


def warpgroup_conv(kernel: GpuKernel) -> str:
    """The rule for convolutions: products of matrices, one of which is read at windows as it is fetched."""
    return f"`{_taken(kernel, windows=True)}` is a convolution for warpgroups"


def _taken(kernel: GpuKernel, windows: bool) -> str:
    """Schedule the only product, and whatever else there is; gives the name of its block."""
    if not kernel.facts.has_wgmma:
        not_this(f"{kernel.facts.arch.name} has no products of warpgroups")
    block, product = only_product(kernel, windows)
    product = by_inner_rows(product)
    name = product.stage.block.name
    kind = _kind(product)
    operands = (product.lhs, product.rhs)
    deep = [product.consecutive(operand) in product.k for operand in operands]
    why = next(filter(None, (_no_box(kernel, product, operand) for operand in operands)), None)
    if why is None and (product.extent(product.m) or ROWS) < ROWS and has_several_axes(product):
        why = f"`{product.lhs.buffer.name}` has rows of several axes"
    if why is not None:
        if None in product.stage.extents:
            not_this(why)
        block, product = as_gemm(kernel, block, product)
        kernel.say(f"threads copy: {why}")
    choice = _choice(kernel, product)
    kernel.say(str(choice))
    _scheduled(kernel, block, product, kind, deep, choice, why is None)
    schedule_others(kernel)
    return name


def _kind(product: Contraction) -> str:
    """Return the name of the operands' type in intrinsics.

    Leave products to the next rule unless both operands are float16 or bfloat16 and sums are float32.
    """
    operands = {str(o.buffer.dtype) for o in (product.lhs, product.rhs)}
    kind = _KINDS.get(operands.pop()) if len(operands) == 1 else None
    if kind is None or str(product.stage.stores[0].buffer.dtype) != "float32":
        not_this("warpgroups multiply float16 or bfloat16, and sum up in float32")
    return kind


def _no_box(kernel: GpuKernel, product: Contraction, operand: Operand) -> str | None:
    """Return why the copy engine cannot fetch an operand, or None if it can.

    It fetches boxes of a tensor that the caller gave, whose rows begin at multiples of 16 bytes.
    """
    own, buffer = product.m if operand is product.lhs else product.n, operand.buffer
    if product.m is None or len(product.k) != 1 or operand.windows or operand.places[-1] not in (own, *product.k):
        return f"`{buffer.name}` has rows of its own axis or of the products' nowhere"
    given = any(b is buffer for b in kernel.func.buffers)
    written = any(w.buffer is buffer for stage in kernel.stages() for w in stage.block.writes)
    if not given or written or len(buffer.shape) > MOST_DIMS:
        return f"`{buffer.name}` is nothing that the copy engine reads"
    row = tir.const_int(buffer.shape[-1])
    begins = 0 if buffer.elem_offset is None else tir.const_int(buffer.elem_offset)
    if row is None or row * buffer.dtype.bytes % VECTOR_BYTES or buffer.strides or begins != 0:
        return f"rows of `{buffer.name}` may begin anywhere"
    return None


def _choice(kernel: GpuKernel, product: Contraction) -> GroupChoice:
    """Choose a tile. Raise NotThis if the smaller tiles of single warps are estimated to be faster."""
    if any((product.extent(p) or ROWS) < ROWS for p in (product.m, product.n)):
        not_this("too few rows or columns for a warpgroup")
    m, n, k = (product.extent(p) or UNKNOWN for p in (product.m, product.n, *product.k))
    sizes = Sizes(m, n, k, prod(product.extent(p) or 1 for p in product.outer), 2)
    choices = fitting_choices(kernel.facts, sizes)
    if not choices:
        not_this("no tile fits")
    choice = choices[0][1]
    # rows of several axes are one for warps
    rows = prod(product.extent(p) or 1 for p in product.outer if product.lhs.has(p) and not product.rhs.has(p))
    joined = Sizes(m * rows, n, k, sizes.batches // rows, 2)
    other = tensor_tiles.choose(kernel.facts, joined, _ALONG)
    if other is not None and tensor_tiles.clocks(kernel.facts, joined, other) < choice.clocks:
        kernel.rather_not(f"warps by themselves are done before: {other}")
    choice = choose_tile(kernel, choices, PARTS)
    stages = kernel.choose("stages", "steps that are in shared memory at once", [*range(choice.stages, 0, -1)])
    return replace(choice, stages=stages)


def _scheduled(
    kernel: GpuKernel, block: BlockRV, product: Contraction, kind: str, deep: list[bool], choice: GroupChoice,
    bulk: bool,
) -> None:  # fmt: skip
    """`deep`: which operands lie along what is summed up. `bulk`: the copy engine brings them."""
    sch, tile = kernel.sch, choice.tile
    assert product.m is not None
    result = result_places(product)
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, DEPTH)
    for reader in sch.get_consumers(block):  # while all of it is still whole
        absorb_readers(kernel, reader)
    strips = [
        _strip(kernel, block, product, operand, size, kept)
        for operand, size, kept in zip((product.lhs, product.rhs), (tile.rows, tile.columns), deep, strict=True)
    ]
    mma, group, step, inner = _nest(kernel, block, product, choice)
    for strip, operand, own, kept in zip(strips, (product.lhs, product.rhs), (product.m, product.n), deep, strict=True):
        if bulk:
            sch.compute_at(strip, step, preserve_unit_loops=True)
            sch.annotate(strip, BULK, True)
        else:
            dims = operand.places.index(own), operand.places.index(product.k[0])
            threads = {"threadIdx.y": tile.groups, "threadIdx.x": GROUP}
            if fetch(kernel, strip, step, threads, dims, kept, kept) * _BYTES < VECTOR_BYTES:
                not_this(f"an operand is not copied by {VECTOR_BYTES} bytes at a time")
        sch.annotate(strip, "permuted_layout", _PIECE * _BYTES)
    store = sch.cache_write(mma, 0, "warpgroup")
    sums = kernel.stage(store).block.reads[0].buffer
    sch.reverse_compute_at(store, group, preserve_unit_loops=True)
    absorb_readers(kernel, store)
    rows_columns = (result.index(product.m), result.index(product.n))
    place = _place(len(result), rows_columns, Wgmma(tile.columns, _ALONG, kind, kind, "f32"))
    sch.transform_layout(store, ("read", number_of(kernel, store, sums)), place)
    start = sch.decompose_reduction(mma, step)
    sch.tensorize(start, f"wgmma_fill_64x{tile.columns}_f32")
    turned = ("" if deep[0] else "_trans_a") + ("_trans_b" if deep[1] else "")
    sch.tensorize(mma, f"wgmma_sync_64x{tile.columns}x{_ALONG}_{kind}{kind}f32{turned}_dyn")
    pipeline(kernel, step, choice.stages)
    sch.unroll(inner)
    store_sums(kernel, store, group, rows_columns, by_group=True)


def _strip(kernel: GpuKernel, block: BlockRV, product: Contraction, operand: Operand, size: int, deep: bool) -> BlockRV:
    """Copy `size` elements of an operand's own axis at a time to rows of 128 bytes; return the block that copies."""
    copy, buffer = fetched(kernel, block, operand, "shared.dyn")
    own = operand.places.index(product.m if operand is product.lhs else product.n)
    down = operand.places.index(product.k[0])
    index_map = two_last(len(buffer.shape), (own, down) if deep else (down, own))
    if not deep and size > _PIECE:
        *before, row, column = index_map.result
        far, near = c.floordiv(column, _PIECE), c.floormod(column, _PIECE)
        index_map = tir.IndexMap(index_map.indices, (*before, far, row, near))
    kernel.sch.transform_layout(copy, ("write", 0), index_map)
    return copy


def _nest(
    kernel: GpuKernel, block: BlockRV, product: Contraction, choice: GroupChoice
) -> tuple[BlockRV, LoopRV, LoopRV, LoopRV]:
    """The product of one instruction; the loops over warpgroups, over steps, and within one."""
    sch, tile, loops = kernel.sch, choice.tile, kernel.loops(block)
    assert product.m is not None
    (k,) = product.k
    far_m, group, mm = sch.split(loops[product.m], [None, tile.groups, ROWS])
    far_n, nn = sch.split(loops[product.n], [None, tile.columns])
    step, inner, kk = sch.split(loops[k], [None, DEPTH // _ALONG, _ALONG])
    outer = [loops[p] for p in product.outer]
    sch.reorder(*outer, far_m, far_n, group, step, inner, mm, nn, kk)
    inner_block = sch.blockize(mm)
    to_blocks(kernel, outer, far_m, far_n)
    sch.bind(group, "threadIdx.y")
    return inner_block, group, step, inner


def _place(rank: int, dims: tuple[int, int], kind: Wgmma) -> tir.IndexMap:
    """Return the accumulator layout: indices to (..., tile row, tile column, thread, accumulator number)."""
    given = tuple(tir.Var(f"i{n}", c.as_expr(0).dtype) for n in range(rank))
    before = [v for n, v in enumerate(given) if n not in dims]
    i, j = (given[n] for n in dims)
    thread, number = kind.place_c(c.floormod(i, ROWS), c.floormod(j, kind.n))
    return tir.IndexMap(given, (*before, c.floordiv(i, ROWS), c.floordiv(j, kind.n), thread, number))
