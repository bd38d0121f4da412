"""Shared parts of the GPU rules for matrix products: GEMM form, padding, producers and epilogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand, match_contraction
from mlcc.passes.auto_schedule.gpu.gemm_form import to_gemm
from mlcc.passes.auto_schedule.gpu.nests import thread_nest
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MIN_TILED_EXTENT = 16  # least rows and columns for tiles to pay


def has_several_axes(product: Contraction) -> bool:
    """Return True if an operand has several free axes, or the product several reduction axes."""
    return any(len(_free_axes(product, o)) > 1 for o in (product.lhs, product.rhs)) or len(product.k) > 1


def _free_axes(product: Contraction, operand: Operand) -> list[int]:
    """Return the axes that index only one operand, without those of extent 1."""
    other = product.rhs if operand is product.lhs else product.lhs
    return [p for p in product.stage.spatial if operand.has(p) and not other.has(p) and product.stage.extents[p] != 1]


def as_gemm(kernel: GpuKernel, block: BlockRV, product: Contraction) -> tuple[BlockRV, Contraction]:
    """Turn a contraction into a matrix product (`to_gemm`). Raise RuleNotApplicable where that is impossible."""
    to_gemm(kernel, block, product)
    gemm = match_contraction(kernel.stage(block))
    if isinstance(gemm, str):
        not_applicable(gemm)
    return block, gemm


def pad_to_tiles(kernel: GpuKernel, block: BlockRV, product: Contraction, rows: int, columns: int, depth: int) -> None:
    """Pad each axis to whole tiles, unless it is known to be a multiple of the tile."""
    pad_axes(kernel, block, product, {product.m: rows, product.n: columns, product.k[-1]: depth})


def pad_axes(kernel: GpuKernel, block: BlockRV, product: Contraction, steps: Mapping[int | None, int]) -> None:
    """Pad axes, given as positions of their loops, to multiples."""
    stage = product.stage
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    multiples = [steps.get(of_loop[stage.axes[a.var]], 1) for a in stage.block.iter_vars]  # type: ignore[index]
    extents = [stage.extents[of_loop[stage.axes[a.var]]] for a in stage.block.iter_vars]  # type: ignore[index]
    if any(w > 1 and (e is None or e % w) for e, w in zip(extents, multiples, strict=True)):
        kernel.sch.pad_einsum(block, multiples)


def cache_operand(kernel: GpuKernel, block: BlockRV, operand: Operand, scope: str) -> tuple[BlockRV, tir.Buffer]:
    """Copy an operand into a memory scope; return the copying block and the buffer that it copies.

    Earlier copies of it, padding included, are inlined.
    """
    reads = [r.buffer for r in kernel.stage(block).block.reads]
    names = (operand.buffer.name, f"{operand.buffer.name}_pad")
    buffer = next(b for b in reads if b is operand.buffer or b.name in names)
    copy = kernel.sch.cache_read(block, read_index(kernel, block, buffer), scope)
    inline_copies(kernel, copy)
    return copy, buffer


def inline_copies(kernel: GpuKernel, block: BlockRV) -> None:
    """Inline the copies that a block reads, padding included."""
    while True:
        before = [p for p in kernel.sch.get_producers(block) if _is_copy(kernel.stage(p))]
        if not any(try_inline(kernel, p) for p in before):
            return


def _is_copy(stage: Stage) -> bool:
    """Return True if a stage only copies elements, perhaps with zeros for padding."""
    if stage.reduced or not stage.plain or len(stage.stores) != 1:
        return False
    value = stage.stores[0].value
    if isinstance(value, tir.Call) and getattr(value.op, "name", "") == "tir.if_then_else":
        value = value.args[1]
    return isinstance(value, tir.BufferLoad)


def fuse_epilogue(kernel: GpuKernel, block: BlockRV) -> None:
    """Inline the elementwise consumers of a block into it, as its epilogue.

    Stop at an output, at several consumers, or where the step is refused.
    """
    while not kernel.is_output(kernel.stage(block)):
        readers = kernel.sch.get_consumers(block)
        if len(readers) != 1:
            return
        try:
            kernel.sch.reverse_compute_inline(readers[0])
        except CompileError:
            return


def loop_depth(kernel: GpuKernel, block: BlockRV, loop: LoopRV) -> int:
    """Return the number of loops around a block down to `loop`, inclusive."""
    wanted = kernel.sch.get(loop)
    return next(n + 1 for n, candidate in enumerate(kernel.stage(block).loops) if candidate is wanted)


def schedule_rest(kernel: GpuKernel, scheduled: Sequence[BlockRV]) -> None:
    """Bind the loops of all blocks except those in `done` to threads, block by block."""
    scheduled_blocks = {kernel.sch.get(b) for b in scheduled}
    for other in kernel.blocks():
        block = kernel.sch.get(other)
        if not any(block is b for b in scheduled_blocks) and not block.name.endswith("_init"):
            kernel.say(thread_nest(kernel, other))


def schedule_others(kernel: GpuKernel) -> None:
    """Bind the loops of the blocks that are not bound to threads yet, block by block."""
    for other in kernel.blocks():
        if not any(loop.thread for loop in kernel.stage(other).loops):
            kernel.say(thread_nest(kernel, other))
