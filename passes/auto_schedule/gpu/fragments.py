"""Schedule of a matrix product by `mma.sync`: tiles of a block, of a warp, of an instruction.

Strips of both operands are staged in shared memory, and fragments of them in registers. Fragments of the accumulator
are stored from registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.gpu.product_parts import cache_operand, fuse_epilogue, loop_depth, pad_to_tiles
from mlcc.passes.auto_schedule.gpu.tensor_tiles import PAD, TileConfig
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

FRAGMENT_SIZE = 16  # rows and columns of an accumulator fragment
_BANK_BYTES = 128  # bytes in one row of all shared memory banks
# groups of rows and chunks of 16 bytes that neighbouring threads store to transpose
_GROUPS_TOGETHER, _CHUNKS_TOGETHER = 8, 4
# rows of tiles that blocks traverse together, to reuse the other operand in the L2 cache
_BLOCK_ROW_GROUPS = (8, 4, 2)


@dataclass(frozen=True)
class MmaKind:
    """The type names and the depth of a tensor core instruction, as its intrinsics are named."""

    operands: str
    sums: str
    depth: int

    @property
    def bytes(self) -> int:
        return FRAGMENT_SIZE * 2 // self.depth

    def depth_contiguous(self, along: bool) -> bool:
        """Return True if a strip in shared memory is contiguous along its depth.

        It is if the operand in global memory is (`along`), and always for bytes and words, since `ldmatrix` transposes
        elements of 16 bits only.
        """
        return along or self.bytes != 2

    def load(self, operand: str, depth_contiguous: bool) -> str:
        """Return the intrinsic that loads a fragment from a strip, contiguous along its depth or across it."""
        transposed = depth_contiguous == (operand == "b")
        return f"mma_ldmatrix_{self.operands}_{operand}{'_trans' if transposed else ''}_dyn"

    def multiply(self, depth_contiguous: Sequence[bool]) -> str:
        transposed = ("" if depth_contiguous[0] else "_trans_a") + ("_trans_b" if depth_contiguous[1] else "")
        return f"mma_{self.operands}{self.operands}{self.sums}{transposed}"

    @property
    def fill(self) -> str:
        return f"mma_fill_16x16_{self.sums}"


def schedule_mma(
    kernel: GpuKernel, block: BlockRV, product: Contraction, kind: MmaKind, choice: TileConfig, along: Sequence[bool]
) -> None:
    """Schedule a product with one axis each of rows, columns and depth, and any number of batch axes.

    `along` tells for each operand whether it is contiguous along its depth in global memory.
    """
    sch, tile = kernel.sch, choice.tile
    assert product.m is not None
    (k,) = product.k
    result = result_axes(product)
    pad_to_tiles(kernel, block, product, tile.rows, tile.columns, choice.depth)
    for reader in sch.get_consumers(block):  # before the product is tiled
        fuse_epilogue(kernel, reader)
    depth_contiguous = [kind.depth_contiguous(a) for a in along]
    strips = []
    dims = [
        (o.places.index(free_dim), o.places.index(k))
        for o, free_dim in ((product.lhs, product.m), (product.rhs, product.n))
    ]
    for operand, (free_dim, depth_dim), is_depth_contiguous in zip(
        (product.lhs, product.rhs), dims, depth_contiguous, strict=True
    ):
        strip, buffer = cache_operand(kernel, block, operand, "shared.dyn")
        last = (free_dim, depth_dim) if is_depth_contiguous else (depth_dim, free_dim)
        sch.transform_layout(strip, ("write", 0), move_dims_last(len(buffer.shape), last))
        strips.append(strip)
    nest = _tile_loops(kernel, block, product, kind, choice)
    threads = {"threadIdx.z": tile.y, "threadIdx.y": tile.x, "threadIdx.x": kernel.facts.warp}
    for strip, places, source, is_depth_contiguous in zip(strips, dims, along, depth_contiguous, strict=True):
        copy_to_shared(kernel, strip, nest.step, threads, places, source, is_depth_contiguous)
        size = kernel.stage(strip).block.writes[0].buffer.dtype.bytes
        sch.storage_align(strip, 0, -2, _BANK_BYTES // 2 // size, PAD // size)
    mma = nest.product
    loads = [
        sch.cache_read(mma, read_index(kernel, mma, kernel.stage(s).block.writes[0].buffer), "warp") for s in strips
    ]
    store = sch.cache_write(mma, 0, "warp")
    sums = kernel.stage(store).block.reads[0].buffer
    for load in loads:
        sch.compute_at(load, nest.deep)
    sch.reverse_compute_at(store, nest.warp, preserve_unit_loops=True)
    fuse_epilogue(kernel, store)
    shapes = [
        (FRAGMENT_SIZE, kind.depth) if a else (kind.depth, FRAGMENT_SIZE)
        for a in (depth_contiguous[0], depth_contiguous[1])
    ]
    tiles = [_split_into_fragments(kernel, load, shape) for load, shape in zip(loads, shapes, strict=True)]
    for load, operand, shape in zip(loads, (product.lhs, product.rhs), shapes, strict=True):
        rank = len(operand.places)
        sch.transform_layout(load, ("write", 0), _fragment_layout(rank, (rank - 2, rank - 1), shape))
    rows_columns = (result.index(product.m), result.index(product.n))
    sch.transform_layout(
        store,
        ("read", read_index(kernel, store, sums)),
        _fragment_layout(len(result), rows_columns, (FRAGMENT_SIZE, FRAGMENT_SIZE)),
    )
    start = sch.decompose_reduction(mma, nest.step)
    sch.tensorize(start, kind.fill)
    for side, rows, is_depth_contiguous in zip("ab", tiles, depth_contiguous, strict=True):
        sch.tensorize(rows, kind.load(side, is_depth_contiguous))
    sch.tensorize(mma, kind.multiply(depth_contiguous))
    pipeline(kernel, nest.step, choice.stages)
    for loop in nest.fragments:
        sch.unroll(loop)
    store_accumulators(kernel, store, nest.warp, rows_columns)


def result_axes(product: Contraction) -> list[int | None]:
    """Return the axis of each dimension of the buffer that a product stores."""
    stage = product.stage
    of_loop: dict[tir.Expr, int] = {loop.var: n for n, loop in enumerate(stage.loops)}
    return [of_loop.get(stage.axes[i]) if isinstance(i, tir.Var) else None for i in stage.stores[0].indices]


@dataclass(frozen=True)
class _Nest:
    """The block of one instruction, and the loops around it: over warps, over steps, and within a step."""

    product: BlockRV
    warp: LoopRV
    step: LoopRV
    deep: LoopRV
    fragments: tuple[LoopRV, ...]


def _tile_loops(kernel: GpuKernel, block: BlockRV, product: Contraction, kind: MmaKind, choice: TileConfig) -> _Nest:
    sch, tile, loops = kernel.sch, choice.tile, kernel.loops(block)
    assert product.m is not None
    (k,) = product.k
    far_m, warp_m, m, mm = sch.split(
        loops[product.m], [None, tile.y, tile.rows // tile.y // FRAGMENT_SIZE, FRAGMENT_SIZE]
    )
    far_n, warp_n, n, nn = sch.split(
        loops[product.n], [None, tile.x, tile.columns // tile.x // FRAGMENT_SIZE, FRAGMENT_SIZE]
    )
    step, deep, kk = sch.split(loops[k], [None, choice.depth // kind.depth, kind.depth])
    outer = [loops[p] for p in product.outer]
    sch.reorder(*outer, far_m, far_n, warp_m, warp_n, step, deep, m, n, mm, nn, kk)
    inner_block = sch.blockize(mm)
    bind_blocks(kernel, outer, far_m, far_n)
    sch.bind(warp_m, "threadIdx.z")
    sch.bind(warp_n, "threadIdx.y")
    return _Nest(inner_block, warp_n, step, deep, (deep, m, n))


def bind_blocks(kernel: GpuKernel, outer: list[LoopRV], far_m: LoopRV, far_n: LoopRV) -> None:
    """Fuse the loops over tiles into one over thread blocks.

    Loops of unknown extent go first, so that no index is divided by one; all of them but one stay separate.
    """
    sch = kernel.sch
    sizes = {id(loop): tir.const_int(sch.get(loop).extent) for loop in (*outer, far_m, far_n)}
    unknown = [loop for loop in (far_m, far_n, *outer) if sizes[id(loop)] is None]
    known = [loop for loop in (*outer, far_m, far_n) if sizes[id(loop)] is not None]
    if unknown:
        sch.reorder(*unknown[1:], unknown[0], *known)
        fused_loops = [unknown[0], *known]
    else:
        group = next((g for g in _BLOCK_ROW_GROUPS if sizes[id(far_m)] % g == 0), 1)  # type: ignore[operator]
        row_group, row_in_group = sch.split(far_m, [None, group])
        sch.reorder(row_group, far_n, row_in_group)
        fused_loops = [*outer, row_group, far_n, row_in_group]
    for loop, axis in zip(unknown[1:], ("blockIdx.y", "blockIdx.z"), strict=False):
        sch.bind(loop, axis)
    sch.bind(sch.fuse(*fused_loops) if len(fused_loops) > 1 else fused_loops[0], "blockIdx.x")


def pipeline(kernel: GpuKernel, step: LoopRV, stages: int) -> None:
    """Pipeline the loop over steps: asynchronous copies run ahead of the products."""
    if stages > 1:
        kernel.sch.annotate(step, "software_pipeline_stage", [0, 0, stages - 1])
        kernel.sch.annotate(step, "software_pipeline_order", [1, 2, 0])
        kernel.sch.annotate(step, "software_pipeline_async_stages", [0])


# ---------------------------------------------------------------- operands


def copy_to_shared(
    kernel: GpuKernel,
    strip: BlockRV,
    step: LoopRV,
    threads: Mapping[str, int],
    dims: tuple[int, int],
    source_depth_contiguous: bool,
    depth_contiguous: bool,
    gathers: bool = False,
) -> int:
    """Copy a strip by all threads of a block; return the elements that a thread stores at once.

    Neighbouring threads read contiguous elements of global memory. With `gathers`, a thread stores what is transposed
    as vectors, whose elements it loads one by one. `dims`: the dimension of the operand's free axis, and that of its
    depth.
    """
    sch = kernel.sch
    sch.compute_at(strip, step, preserve_unit_loops=True)
    strip_loops = kernel.loops(strip)[loop_depth(kernel, strip, step) :]
    own_loop, depth_loop = (strip_loops[d] for d in dims)
    others = [loop for n, loop in enumerate(strip_loops) if n not in dims]
    if depth_contiguous and not source_depth_contiguous and gathers:
        return _copy_transposed(kernel, strip, others, own_loop, depth_loop, threads)
    sch.reorder(*others, *((own_loop, depth_loop) if source_depth_contiguous else (depth_loop, own_loop)))
    lanes = _vector_lanes(kernel.stage(strip)) if source_depth_contiguous == depth_contiguous else 1
    fused = sch.fuse(*kernel.loops(strip)[-2:])
    _, *parts = sch.split(fused, [None, *threads.values(), *([lanes] if lanes > 1 else [])])
    for loop, axis in zip(parts, threads, strict=False):
        sch.bind(loop, axis)
    for lane in parts[len(threads) :]:
        sch.vectorize(lane)
    return lanes


def _copy_transposed(
    kernel: GpuKernel,
    strip: BlockRV,
    others: list[LoopRV],
    own_loop: LoopRV,
    depth_loop: LoopRV,
    threads: Mapping[str, int],
) -> int:
    """Copy a strip that is transposed on the way; return the elements that a thread stores at once.

    A thread turns a square in registers, which it loads and stores as vectors. Eight threads that store together have
    two groups of rows and four chunks of a row, which the swizzle of rows of 128 bytes spreads over all banks. Where
    rows are padded or may not be aligned, threads load single elements, those of neighbours being contiguous.
    """
    sch = kernel.sch
    stage = kernel.stage(strip)
    lanes = VECTOR_BYTES // stage.block.writes[0].buffer.dtype.bytes
    (store,) = stage.stores
    source = store.value.buffer if isinstance(store.value, tir.BufferLoad) else None
    if source is None or (tir.const_int(source.shape[-1]) or 1) % lanes:
        depth_loop, lane = sch.split(depth_loop, [None, lanes])
        sch.reorder(*others, depth_loop, own_loop, lane)
        inner, around = [lane], [depth_loop, own_loop]
    else:
        depth_loop, chunk, lane = sch.split(depth_loop, [None, _CHUNKS_TOGETHER, lanes])
        own_loop, group, row = sch.split(own_loop, [None, _GROUPS_TOGETHER, lanes])
        sch.reorder(*others, depth_loop, own_loop, group, chunk, row, lane)
        inner, around = [row, lane], [depth_loop, own_loop, group, chunk]
    _, *parts = sch.split(sch.fuse(*around), [None, *threads.values()])
    for loop, axis in zip(parts, threads, strict=True):
        sch.bind(loop, axis)
    if len(inner) > 1:
        square = sch.cache_read(strip, 0, "local")
        sch.compute_at(square, parts[-1])
        *rows, columns = kernel.loops(square)[loop_depth(kernel, square, parts[-1]) :]
        for loop in (*rows, inner[0]):
            sch.unroll(loop)
        sch.vectorize(columns)
    sch.vectorize(inner[-1])
    return lanes


def _vector_lanes(stage: Stage) -> int:
    """Return how many elements one access copies: as many as are contiguous and aligned."""
    last, extent = stage.loops[-1].var, stage.extents[-1]
    loads = [a for a in stage.accesses if not a.stored]
    if extent is None or len(loads) != 1:
        return 1
    lanes = VECTOR_BYTES // loads[0].buffer.dtype.bytes
    while lanes > 1 and (extent % lanes or not _is_aligned_vector(stage, loads[0], last, lanes)):
        lanes //= 2
    return max(lanes, 1)


def _is_aligned_vector(stage: Stage, load: Access, var: tir.Var, lanes: int) -> bool:
    """Return True if `lanes` iterations load contiguous elements, aligned to `lanes` in each row."""
    *before, row = load.buffer.shape
    analyzer = Analyzer()
    for loop in stage.loops[:-1]:
        analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
    chunk, lane = tir.Var("chunk", var.dtype), tir.Var("lane", var.dtype)
    analyzer.bind(chunk, tir.Range(c.const(0, var.dtype), c.floordiv(stage.loops[-1].extent, lanes)))
    analyzer.bind(lane, tir.Range(c.const(0, var.dtype), c.const(lanes, var.dtype)))
    at_chunk = {var: c.mul(chunk, lanes)}
    at_lane = {var: c.add(c.mul(chunk, lanes), lane)}
    *outer, last = ((substitute(i, at_chunk), substitute(i, at_lane)) for i in load.indices)
    return (
        analyzer.prove(c.equal(c.floormod(row, lanes), 0))
        and analyzer.prove(c.equal(c.floormod(last[0], lanes), 0))
        and analyzer.prove_equal(last[1], c.add(last[0], lane))
        and all(analyzer.prove_equal(a, b) for a, b in outer)
    )


def move_dims_last(rank: int, last: tuple[int, int]) -> tir.IndexMap:
    """Return the index map that moves two dimensions behind all others."""
    index_vars = tuple(tir.Var(f"i{n}", c.as_expr(0).dtype) for n in range(rank))
    return tir.IndexMap(
        index_vars, (*(v for n, v in enumerate(index_vars) if n not in last), *(index_vars[n] for n in last))
    )


# ---------------------------------------------------------------- fragments


def _split_into_fragments(kernel: GpuKernel, load: BlockRV, shape: tuple[int, int]) -> LoopRV:
    """Split the two innermost loops into fragments; return the loop over the rows of one."""
    sch = kernel.sch
    i, j = kernel.loops(load)[-2:]
    far_i, near_i = sch.split(i, [None, shape[0]])
    far_j, near_j = sch.split(j, [None, shape[1]])
    sch.reorder(far_i, far_j, near_i, near_j)
    sch.unroll(far_i)
    sch.unroll(far_j)
    return near_i


def _fragment_layout(rank: int, dims: tuple[int, int], shape: tuple[int, int]) -> tir.IndexMap:
    """Return the fragment layout: indices to (..., fragment row, fragment column, lane, register element).

    Source: PTX ISA, "Matrix Fragments for mma". `shape` is that of a fragment.
    """
    index_vars = tuple(tir.Var(f"i{n}", c.as_expr(0).dtype) for n in range(rank))
    before = [v for n, v in enumerate(index_vars) if n not in dims]
    i, j = (index_vars[n] for n in dims)
    rows, columns = shape
    if shape == (FRAGMENT_SIZE, FRAGMENT_SIZE):
        lane = c.add(c.mul(c.floormod(i, 8), 4), c.floordiv(c.floormod(j, 8), 2))
        number = (
            c.mul(c.floordiv(c.floormod(j, 16), 8), 4),
            c.mul(c.floordiv(c.floormod(i, 16), 8), 2),
            c.floormod(j, 2),
        )
    elif columns == 8:
        lane = c.add(c.mul(c.floormod(i, 8), 4), c.floormod(j, 4))
        number = (c.mul(c.floordiv(c.floormod(j, 8), 4), 2), c.floordiv(c.floormod(i, 16), 8), c.const(0, i.dtype))
    elif columns == 32:
        lane = c.add(c.mul(c.floormod(i, 8), 4), c.floordiv(c.floormod(j, 16), 4))
        number = (
            c.mul(c.floordiv(c.floormod(j, 32), 16), 8),
            c.mul(c.floordiv(c.floormod(i, 16), 8), 4),
            c.floormod(j, 4),
        )
    else:
        raise AssertionError(shape)
    register = c.add(c.add(number[0], number[1]), number[2])
    return tir.IndexMap(index_vars, (*before, c.floordiv(i, rows), c.floordiv(j, columns), lane, register))


# ---------------------------------------------------------------- results


def store_accumulators(
    kernel: GpuKernel, store: BlockRV, warp: LoopRV, dims: tuple[int, int], by_group: bool = False
) -> None:
    """Store each thread's accumulators from registers, after the epilogue.

    Two contiguous elements are stored at once if memory allows it; four threads store 8 columns. `dims` are the
    dimensions of rows and columns. The fragments of a warp are stacked along the rows; with `by_group`, each warp of a
    warpgroup has one.
    """
    sch = kernel.sch
    result_loops = kernel.loops(store)[loop_depth(kernel, store, warp) :]
    far_i, half_i, row = sch.split(result_loops[dims[0]], [None, 2, 8])
    far_j, half_j, pair, column = sch.split(result_loops[dims[1]], [None, 2, 4, 2])
    others = [loop for n, loop in enumerate(result_loops) if n not in dims]
    lanes = [far_i, row, pair] if by_group else [row, pair]
    unrolled = [*others, *([] if by_group else [far_i]), far_j, half_i, half_j]
    sch.reorder(*unrolled, *lanes, column)
    sch.bind(sch.fuse(*lanes), "threadIdx.x")
    for loop in unrolled:
        sch.unroll(loop)
    stage = kernel.stage(store)
    rows_even = all((tir.const_int(a.buffer.shape[-1]) or 1) % 2 == 0 for a in stage.accesses if a.buffer.shape)
    if rows_even and set(stage.steps_by(len(stage.loops) - 1)) <= {0, 1}:
        sch.vectorize(column)
    else:
        sch.unroll(column)
