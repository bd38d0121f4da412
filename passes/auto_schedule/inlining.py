"""Inlining of stages into their readers."""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import Any

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import uncast
from mlcc.passes.auto_schedule.kernel import AnyKernel
from mlcc.passes.auto_schedule.stage import CALL_OPERATIONS, Stage
from mlcc.passes.lowering.divisions import count_divisions
from mlcc.passes.schedule.handles import BlockRV


def inline_cheap(kernel: AnyKernel[Any]) -> int:
    """Inline every stage whose recomputation costs less than a round trip through memory; return the count."""
    return kernel.memoized("inline", lambda: _inline_cheap(kernel))


def inline_all_but(kernel: AnyKernel[Any], excluded: BlockRV) -> int:
    """Inline every cheap stage except one; return the count."""
    return _inline_cheap(kernel, kernel.sch.get(excluded).name)


def _inline_cheap(kernel: AnyKernel[Any], excluded: str = "") -> int:
    inlined_count = 0
    blocks = kernel.blocks()
    while blocks:
        chain = list(takewhile(lambda b: not _is_named(kernel, b, excluded) and _is_link(kernel, b), blocks))
        if len(chain) > 1 and kernel.sch.inline_together(chain):
            inlined_count += len(chain)
            blocks = blocks[len(chain) :]
            continue
        for block in blocks[: max(len(chain), 1)]:
            if _is_named(kernel, block, excluded):
                continue
            if _is_worth_inlining(kernel, kernel.stage(block)) and try_inline(kernel, block):
                inlined_count += 1
        blocks = blocks[max(len(chain), 1) :]
    for block in kernel.blocks() if inlined_count else ():
        stage = kernel.stage(block)
        if stage.reduced and any(count_divisions(i) for region in stage.block.reads for i in _starts(region)):
            kernel.sch.simplify_indices(block)  # rules recognize reductions by their indices
    return inlined_count


def _is_named(kernel: AnyKernel[Any], block: BlockRV, name: str) -> bool:
    return bool(name) and kernel.sch.get(block).name == name


def _is_link(kernel: AnyKernel[Any], block: BlockRV) -> bool:
    """Return True if a stage is worth inlining whatever is inlined into it: one reader loads each element once."""
    stage = kernel.stage(block)
    readers = kernel.consumers(stage)
    if len(readers) != 1 or len(stage.stores) != 1 or stage.reduced or not stage.plain or kernel.is_output(stage):
        return False
    reader = kernel.stage_of(readers[0])
    if reader is None or reader.reduced or not reader.plain or len(reader.stores) != 1:
        return False
    times = sum(a.buffer is stage.stores[0].buffer for a in reader.accesses)
    known = stage.iterations is not None and stage.iterations == reader.iterations
    return times == 1 and (known or len(stage.loops) == len(reader.loops))


def simplify_divided_indices(kernel: AnyKernel[Any]) -> None:
    """Simplify quotients and remainders in indices, as of reshaped data, before loops are fused or split."""
    for block in kernel.blocks():
        if any(count_divisions(index) for access in kernel.stage(block).block.reads for index in _starts(access)):
            kernel.sch.simplify_indices(block)


def _starts(region: tir.BufferRegion) -> list[tir.Expr]:
    return [span.min for span in region.region]


def inline_reshapes(kernel: AnyKernel[Any]) -> None:
    """Inline stages that only reshape their operand."""
    if not any(_reshapes(stage) for stage in kernel.stages()):
        return
    inlined = False
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if not _reshapes(stage):
            continue
        if not kernel.is_output(stage):
            inlined = try_inline(kernel, block) or inlined
            continue
        with suppress(CompileError):
            kernel.sch.reverse_compute_inline(block)
            inlined = True
    for block in kernel.blocks() if inlined else ():
        kernel.sch.simplify_indices(block)


def _reshapes(stage: Stage) -> bool:
    """Return True if a stage copies elements to the same linear offset, as a reshape does."""
    if stage.reduced or not stage.plain or len(stage.stores) != 1:
        return False
    if not isinstance(stage.stores[0].value, tir.BufferLoad) or len(stage.accesses) != 2:
        return False
    return all(
        None not in (steps := stage.steps_by(n)) and steps[0] == steps[1]
        for n, extent in enumerate(stage.extents)
        if extent != 1
    )


def try_inline(kernel: AnyKernel[Any], block: BlockRV) -> bool:
    """Inline a stage into its readers; return False if a step is refused."""
    try:
        kernel.sch.compute_inline(block)
    except CompileError:
        return False
    return True


def _is_worth_inlining(kernel: AnyKernel[Any], stage: Stage) -> bool:
    if kernel.is_output(stage) or stage.reduced or not stage.plain or len(stage.stores) != 1:
        return False
    readers = kernel.consumers(stage)
    if not readers:
        return False
    cheap = stage.operations < CALL_OPERATIONS and not _has_calls_or_selects(stage)
    for block in readers:
        reader = kernel.stage_of(block)
        if reader is None or not reader.plain:
            return False
        times = sum(a.buffer is stage.stores[0].buffer for a in reader.accesses)
        moved = stage.only_moves_elements and reader.may_read_once(stage.stores[0].buffer)
        read_once = times == 1 and len(readers) == 1 and (moved or _runs_no_more_often(stage, reader))
        if not read_once and not (cheap and not reader.reduced) and not _copies(stage) and not _widens(stage):
            return False
    return True


def _widens(stage: Stage) -> bool:
    """Return True if a stage only converts elements to a wider float type, in any order of axes."""
    store = stage.stores[0]
    loaded = uncast(store.value)
    if not isinstance(loaded, tir.BufferLoad) or loaded is store.value:
        return False
    narrower = loaded.dtype.bits < store.buffer.dtype.bits and store.buffer.dtype.is_float
    indices = [*loaded.indices, *store.indices]
    return narrower and all(isinstance(i, tir.Var) for i in indices) and set(loaded.indices) == set(store.indices)


def _copies(stage: Stage) -> bool:
    """Return True if a stage copies elements to the same indices, as a convolution's padding by zero does."""
    store = stage.stores[0]
    return isinstance(store.value, tir.BufferLoad) and store.value.indices == store.indices


def _runs_no_more_often(producer: Stage, reader: Stage) -> bool:
    """Return True if `reader` provably runs no more often than `producer`."""
    if producer.iterations is not None and reader.iterations is not None:
        return reader.iterations <= producer.iterations
    return len(producer.loops) == len(reader.loops) or reader.reads_once(producer.stores[0].buffer)


def _has_calls_or_selects(stage: Stage) -> bool:
    """Return True if a stage has calls or selections, as padding does.

    They are cheap once, but prevent vectorization in an inner loop.
    """
    return any(isinstance(n, (tir.Call, tir.Select)) for n in walk(stage.block.body))
