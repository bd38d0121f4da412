"""Shared memory beyond what a kernel may have at a fixed place becomes dynamic, of which there is more."""

from __future__ import annotations

from dataclasses import replace as changed
from math import prod

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.gpu.form_kernels import with_scope
from mlcc.passes.gpu.shared_layout import dynamic_layout
from mlcc.passes.lowering.folding import Folding

MOST_STATIC = 48 * 1024  # bytes, on all devices


def dynamic_shared(kernel: DeviceKernel) -> DeviceKernel:
    """The kernel, its `shared` allocations `shared.dyn` where together they are too large, or of no known size."""
    found = [n.buffer for s in kernel.body for n in walk(s) if isinstance(n, tir.AllocBuffer)]
    sizes = [_bytes(b) for b in found if b.scope == "shared"]
    known = [s for s in sizes if s is not None]
    if len(known) == len(sizes) and sum(known) <= MOST_STATIC:
        return kernel
    body = _Moved().body(kernel.body)
    return changed(kernel, body=body, dynamic_shared=dynamic_layout(body).size)


def _bytes(buffer: tir.Buffer) -> int | None:
    dims = [tir.const_int(d) for d in buffer.shape]
    known = [d for d in dims if d is not None]
    return prod(known) * buffer.dtype.bytes * buffer.dtype.lanes if len(known) == len(dims) else None


class _Moved(Folding):
    def __init__(self) -> None:
        super().__init__({})
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> tir.Stmt:
        if node.buffer.scope != "shared":
            return node
        made = self._buffers[node.buffer] = with_scope(node.buffer, "shared.dyn")
        self.values[node.buffer.data] = made.data
        return tir.AllocBuffer(made, node.annotations, span=node.span)
