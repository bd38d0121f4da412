"""Inlining of stages into those that read them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import uncast
from mlcc.passes.auto_schedule.kernel import AnyKernel
from mlcc.passes.auto_schedule.stage import CALL_OPERATIONS, Stage
from mlcc.passes.lowering.divisions import divisions
from mlcc.passes.schedule.handles import BlockRV


def inline_cheap(kernel: AnyKernel[Any]) -> int:
    """Inline every stage that is computed no more often for it, or so cheaply that this is less than a trip through
    memory; gives how many."""
    return kernel.begin("inline", lambda: _inline_cheap(kernel))


def inline_all_but(kernel: AnyKernel[Any], kept: BlockRV) -> int:
    """The same for every stage but one."""
    return _inline_cheap(kernel, kernel.sch.get(kept).name)


def _inline_cheap(kernel: AnyKernel[Any], kept: str = "") -> int:
    done = 0
    for block in kernel.blocks():
        if kept and kernel.sch.get(block).name == kept:
            continue
        if _pays(kernel, kernel.stage(block)) and try_inline(kernel, block):
            done += 1
    for block in kernel.blocks() if done else ():
        stage = kernel.stage(block)
        if stage.reduced and any(divisions(i) for region in stage.block.reads for i in (r.min for r in region.region)):
            kernel.sch.simplify_indices(block)  # reductions are told by their indices
    return done


def inline_reshapes(kernel: AnyKernel[Any]) -> None:
    """Inline stages that only reshape their operand."""
    if not any(_reshapes(stage) for stage in kernel.stages()):
        return
    done = False
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if not _reshapes(stage):
            continue
        if not kernel.is_output(stage):
            done = try_inline(kernel, block) or done
            continue
        with suppress(CompileError):
            kernel.sch.reverse_compute_inline(block)
            done = True
    for block in kernel.blocks() if done else ():
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
    """Inline a stage into its readers where that is possible."""
    try:
        kernel.sch.compute_inline(block)
    except CompileError:
        return False
    return True


def _pays(kernel: AnyKernel[Any], stage: Stage) -> bool:
    if kernel.is_output(stage) or stage.reduced or not stage.plain or len(stage.stores) != 1:
        return False
    readers = kernel.consumers(stage)
    now = {s.block: s for s in kernel.stages()}
    if not readers:
        return False
    cheap = stage.operations < CALL_OPERATIONS and not _guarded(stage)
    for block in readers:
        reader = now.get(block)
        if reader is None or not reader.plain:
            return False
        times = sum(a.buffer is stage.stores[0].buffer for a in reader.accesses)
        once = times == 1 and len(readers) == 1 and _as_often(stage, reader)
        if not once and not (cheap and not reader.reduced) and not _copies(stage) and not _widens(stage):
            return False
    return True


def _widens(stage: Stage) -> bool:
    """Return True if a stage only converts elements to a wider float type, in any order of axes."""
    store = stage.stores[0]
    loaded = uncast(store.value)
    if not isinstance(loaded, tir.BufferLoad) or loaded is store.value:
        return False
    narrower = loaded.dtype.bits < store.buffer.dtype.bits and store.buffer.dtype.is_float
    every = [*loaded.indices, *store.indices]
    return narrower and all(isinstance(i, tir.Var) for i in every) and set(loaded.indices) == set(store.indices)


def _copies(stage: Stage) -> bool:
    """Return True if a stage copies elements to the same indices, as a convolution's padding by zero does."""
    store = stage.stores[0]
    return isinstance(store.value, tir.BufferLoad) and store.value.indices == store.indices


def _as_often(one: Stage, other: Stage) -> bool:
    """Return True if `other` runs no more often than `one`, as far as is known."""
    if one.iterations is not None and other.iterations is not None:
        return other.iterations <= one.iterations
    return len(one.loops) == len(other.loops) or other.reads_once(one.stores[0].buffer)


def _guarded(stage: Stage) -> bool:
    """Return True if a stage has calls or selections, as padding does.

    They are cheap once, and in the way of vectors in an inner loop.
    """
    return any(isinstance(n, (tir.Call, tir.Select)) for n in walk(stage.block.body))
