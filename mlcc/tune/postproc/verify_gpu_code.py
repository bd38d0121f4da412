"""Reject kernels that a GPU cannot launch, before code generation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.postproc.thread_extents import HIGH, LOW, respects_thread_limits
from mlcc.tune.schedulable import functions_with_blocks, root_block
from mlcc.tune.schedule_rule.analysis import python_value

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_MAX_VECTOR_BYTES = 16
_MAX_VIRTUAL_THREADS = 15


class VerifyGPUCode(Postproc):
    """Lower the kernels, and reject those that exceed the target's limits or cannot be lowered. TVM: `VerifyGPUCode`.

    The limits bound the threads of a block, its shared memory, and the width of vectors.
    """

    def __init__(self) -> None:
        self._context: TuneContext | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if not context.facts.max_threads_per_block:
            raise ValueError(f"VerifyGPUCode is for targets with threads, not for `{context.target}`")
        self._context = context

    def may_pass(self, steps: Sequence[Instruction]) -> bool:
        return respects_thread_limits(steps, _MAX_VIRTUAL_THREADS)

    def apply(self, sch: Schedule) -> bool:
        if self._context is None:
            raise ValueError("VerifyGPUCode needs the target of a TuneContext")
        facts = self._context.facts
        if not all(_threads_fit(root_block(sch, name), facts.thread_warp_size) for name in functions_with_blocks(sch)):
            return False
        try:
            kernels = _kernels(sch.mod, self._context)
        except CompileError:
            return False
        return all(_fits(k, facts.max_threads_per_block, facts.max_shared_memory_per_block) for k in kernels)


def _kernels(module: IRModule, context: TuneContext) -> list[DeviceKernel]:
    """Lower a module for the target and return its kernels. Raises CompileError."""
    from mlcc.driver import build_pipeline, run_passes
    from mlcc.passes.gpu.device import is_kernel

    target = context.target
    assert target is not None
    passes = build_pipeline(module, target, 0, "")
    lowered = run_passes(module, passes, target=target, verify_each=False, builds=True)
    return [
        DeviceKernel.of(name, func)
        for name, func in lowered.functions.items()
        if isinstance(func, tir.PrimFunc) and is_kernel(func)
    ]


def _fits(kernel: DeviceKernel, max_threads: int, max_shared_bytes: int) -> bool:
    """Return True if a kernel's threads, shared memory and vectors are within the limits."""
    threads = [tir.const_int(n) for axis, n in kernel.extents.items() if axis.startswith("threadIdx")]
    if None in threads or math.prod(n or 0 for n in threads) > max_threads:
        return False
    shared = sum(_bytes(a.buffer) for a in find(kernel.body, tir.AllocBuffer) if a.buffer.scope.startswith("shared"))
    typed_nodes = (tir.BufferLoad, tir.Cast)
    widest = max((n.dtype.bytes for n in find(kernel.body, *typed_nodes)), default=0)
    return shared <= max_shared_bytes and widest <= _MAX_VECTOR_BYTES


def _bytes(buffer: tir.Buffer) -> int:
    """Return the size of a buffer in bytes; 0 if it is not constant."""
    sizes = [tir.const_int(n) for n in buffer.shape]
    return 0 if None in sizes else math.prod(n or 0 for n in sizes) * buffer.dtype.bytes


def _threads_fit(root: tir.Block, warp: int) -> bool:
    """Return True if thread extents respect the annotations of blocks, and no loop has too many virtual threads."""
    return _respects_annotations(root, {}, warp)


def _respects_annotations(node: tir.Stmt, threads: dict[str, int], warp: int) -> bool:
    match node:
        case tir.For(thread=axis) if axis is not None and axis.startswith("threadIdx"):
            extent = tir.const_int(node.extent)
            if extent is None:
                return False
            threads = {**threads, axis: extent}
        case tir.For(thread=axis) if axis is not None and axis.startswith("vthread"):
            if (tir.const_int(node.extent) or 0) > _MAX_VIRTUAL_THREADS:
                return False
        case tir.Block(annotations=annotations):
            if "warp_execution" in annotations:
                threads = {**threads, "threadIdx.x": warp}
            low, high = python_value(annotations.get(LOW)), python_value(annotations.get(HIGH))
            if isinstance(low, int) and isinstance(high, int) and not low <= math.prod(threads.values()) <= high:
                return False
    return all(_respects_annotations(inner, threads, warp) for inner in _child_statements(node))


def _child_statements(node: tir.Stmt) -> tuple[tir.Stmt, ...]:
    match node:
        case tir.BlockRealize(block=block):
            return (block,)
        case tir.IfThenElse(then_body=then, else_body=other):
            return (*then, *(other or ()))
        case tir.For(body=body) | tir.Block(body=body) | tir.While(body=body) | tir.AttrStmt(body=body):
            return body
    return ()
