"""Make shared memory dynamic where it exceeds what a kernel may allocate statically, or has no constant size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.passes.gpu.device import is_kernel, launch_scopes, with_thread_code
from mlcc.passes.gpu.form_kernels import with_scope
from mlcc.passes.lowering.folding import Folding
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import KERNELS

MAX_STATIC_BYTES = 48 * 1024  # bytes, on all devices


def dynamic_shared(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return a kernel with its `shared` allocations in scope `shared.dyn` if they are too large together, or have no
    constant size.
    """
    _, body = launch_scopes(func)
    buffers = [n.buffer for s in body for n in find(s, tir.AllocBuffer)]
    sizes = [_bytes(b) for b in buffers if b.scope == "shared"]
    known = [s for s in sizes if s is not None]
    if len(known) == len(sizes) and sum(known) <= MAX_STATIC_BYTES:
        return func
    return with_thread_code(func, _DynamicMover().body(body))


def _bytes(buffer: tir.Buffer) -> int | None:
    dims = [tir.const_int(d) for d in buffer.shape]
    known = [d for d in dims if d is not None]
    return prod(known) * buffer.dtype.bytes * buffer.dtype.lanes if len(known) == len(dims) else None


class _DynamicMover(Folding):
    def __init__(self) -> None:
        super().__init__({})
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> tir.Stmt:
        if node.buffer.scope != "shared":
            return node
        moved = self._buffers[node.buffer] = with_scope(node.buffer, "shared.dyn")
        self.values[node.buffer.data] = moved.data
        return tir.AllocBuffer(moved, node.annotations, span=node.span)


@dataclass(frozen=True)
class PlanDynamicShared(LoweringStep):
    """Make shared memory dynamic if it exceeds 48 KiB or its size is known only at the launch.

    Before:  S = T.alloc_buffer_stmt((16384,), "float32", scope="shared")
    After:   S = T.alloc_buffer_stmt((16384,), "float32", scope="shared.dyn")
    """

    name: ClassVar[str] = "plan-dynamic-shared"
    takes: ClassVar[str] = KERNELS
    gives: ClassVar[str] = KERNELS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return dynamic_shared(func) if is_kernel(func) else func
