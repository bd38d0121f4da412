"""Shared parts of the CPU rules for products: matching, epilogues, tiles, and the kernel's other blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.arith.structural_keys import same_expr
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, match_contraction
from mlcc.passes.auto_schedule.inlining import inline_cheap, try_inline
from mlcc.passes.auto_schedule.kernel import AnyKernel, Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import reduce_nest, spatial_nest, vectorizable_loop
from mlcc.passes.auto_schedule.tiles import Tile
from mlcc.passes.schedule.handles import BlockRV


def only_product(kernel: AnyKernel[Any], windows: bool = False) -> tuple[BlockRV, Contraction]:
    """Match the only contraction of a kernel, after inlining cheap stages; return its block and the contraction.

    Raise RuleNotApplicable for a kernel that has none or several, if one operand is read at windows, or if neither is
    and `windows` are wanted.
    """
    products = []
    reason = "it has no reduction"
    if not any(stage.reduced for stage in kernel.stages()):
        not_applicable(reason)
    inline_cheap(kernel)
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if stage.reduced:
            matched = match_contraction(stage)
            if isinstance(matched, str):
                reason = matched
            else:
                products.append((block, matched))
    if len(products) != 1:
        not_applicable(f"{len(products)} products" if products else reason)
    ((block, product),) = products
    if (bool(product.lhs.windows) != bool(product.rhs.windows)) != windows:
        not_applicable("no operand is read at windows" if windows else "an operand is read at windows")
    return block, product


def elementwise_consumer(kernel: AnyKernel[Any], block: BlockRV) -> BlockRV | None:
    """Return the only block that reads a block's result, if it reads it element by element; else None."""
    readers = kernel.sch.get_consumers(block)
    stage = kernel.stage(block)
    if len(readers) != 1 or kernel.is_output(stage):
        return None
    reader = kernel.stage(readers[0])
    buffer = stage.block.writes[0].buffer
    loads = [a for a in reader.accesses if a.buffer is buffer and not a.stored]
    same_indices = all(
        len(x.indices) == len(loads[0].indices) and all(map(same_expr, x.indices, loads[0].indices)) for x in loads
    )
    by_axes = bool(loads) and same_indices and all(isinstance(i, tir.Var) for i in loads[0].indices)
    if reader.reduced or not reader.plain or not by_axes or len(set(loads[0].indices)) != len(reader.loops):
        return None
    return readers[0]


def element_lanes(kernel: Kernel, product: Contraction) -> int:
    """Return the vector lanes of the widest type involved."""
    buffers = (product.lhs.buffer, product.rhs.buffer, product.stage.stores[0].buffer)
    return kernel.facts.lanes(max(b.dtype.bits for b in buffers) // 8)


def shared_columns(kernel: Kernel, product: Contraction, rows: int | None) -> int:
    """Return the columns of the panels that all versions of a kernel share; 0 if each version has its own.

    Only weights with known values become constants, one copy of which serves all versions.
    """
    if not kernel.is_constant(product.rhs.buffer):
        return 0
    buffers = (product.lhs.buffer, product.rhs.buffer, product.stage.stores[0].buffer)
    return kernel.facts.panel_columns(max(b.dtype.bits for b in buffers) // 8, rows)


def schedule_others(kernel: Kernel, blocks: Sequence[BlockRV], epilogue: BlockRV) -> None:
    """Schedule the stages apart from the product and its epilogue, each by itself."""
    for block in blocks:
        if kernel.exists(block) and kernel.sch.get(block) is not kernel.sch.get(epilogue):
            kernel.say((reduce_nest if kernel.stage(block).reduced else spatial_nest)(kernel, block))


def accumulate_locally(
    kernel: Kernel, block: BlockRV, product: Contraction, columns: int, rows: int = 1,
    depth: Mapping[int, int] | None = None,
) -> BlockRV:  # fmt: skip
    """Pad a product to multiples of `columns`, `rows` and `depth` (by reduction axis), and accumulate in local memory.

    Return the block that stores the result.
    """
    sch, stage = kernel.sch, product.stage
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    multiples: dict[int | None, int] = {product.m: rows, product.n: columns}
    multiples.update((depth or {}).items())
    sch.pad_einsum(block, [multiples.get(of_loop[stage.axes[a.var]], 1) for a in stage.block.iter_vars])  # type: ignore[index]
    storing_block = elementwise_consumer(kernel, block)
    # the copy from padded memory
    if storing_block is not None and kernel.stage(storing_block).block.name.endswith("_pad"):
        next_reader = elementwise_consumer(kernel, storing_block)
        if next_reader is not None and try_inline(kernel, storing_block):
            storing_block = next_reader
    if storing_block is None:
        return sch.cache_write(block, 0, "local")
    sch.set_scope(block, 0, "local")
    return storing_block


def padding_copy(kernel: AnyKernel[Any], block: BlockRV, buffer: tir.Buffer) -> BlockRV | None:
    """Return the block that copies an operand into padded memory, or None."""
    for producer in kernel.sch.get_producers(block):
        writer = kernel.sch.get(producer)
        if writer.name == f"{buffer.name}_pad" and writer.reads[0].buffer is buffer:
            return producer
    return None


def read_index(kernel: AnyKernel[Any], block: BlockRV, buffer: tir.Buffer) -> int:
    """Return the position of a buffer among those that a block reads."""
    return [r.buffer for r in kernel.stage(block).block.reads].index(buffer)


def schedule_tile_stores(kernel: Kernel, epilogue: BlockRV, outer_count: int, tile: Tile) -> None:
    """Schedule the loops that store a tile: vectorize along the contiguous axis, unroll the rest."""
    sch = kernel.sch
    stage, loops = kernel.stage(epilogue), kernel.loops(epilogue)
    tile_loops = list(range(outer_count, len(loops)))
    vector = vectorizable_loop(stage, tile_loops)
    for position in tile_loops:
        if position != vector:
            sch.unroll(loops[position])
    if vector is None:
        return
    if vector != tile_loops[-1]:
        sch.reorder(*(loops[p] for p in tile_loops if p != vector), loops[vector])
    first, last = sch.split(loops[vector], [None, tile.lanes])
    sch.unroll(first)
    sch.vectorize(last)
