"""Allocation of a kernel's buffers: registers or local memory of a thread, static or dynamic shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.passes.gpu.shared_layout import alignment_of, dynamic_layout
from mlcc.targets.cuda.context import DYNAMIC_SHARED, DeviceContext
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type
from mlcc.targets.plan.kernel_memory import byte_size

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

GLOBAL = "ptr addrspace(1)"
SHARED = "ptr addrspace(3)"
ALIGNMENT = 16
MAX_LOCAL_BYTES = 512 * 1024  # per thread, on every architecture


class DeviceStorage:
    """The allocator of a kernel's buffers. `static_shared` counts the bytes of static shared memory so far."""

    def __init__(self, ctx: DeviceContext, symbol: str, body: tuple[tir.Stmt, ...]) -> None:
        self._ctx = ctx
        self._symbol = symbol
        self._dynamic = dynamic_layout(body).offsets
        self._private: set[tir.Var] = set()
        self._local = 0
        self.static_shared = 0

    def allocate(self, e: Emitter, buffer: tir.Buffer) -> Value:
        if buffer.scope == "shared.dyn":
            definition = f"external addrspace(3) global [0 x i8], align {self._ctx.shared_alignment}"
            start = e.ctx.module.global_(DYNAMIC_SHARED, definition)
            return e.fn.gep("i8", Value(SHARED, start), e.index(self._dynamic[buffer.data]))
        size = byte_size(buffer)
        if not isinstance(size, int):
            message = f"`{buffer.name}` of scope `{buffer.scope}` needs a constant size"
            raise unsupported(message, buffer.span, help="only `shared.dyn` takes sizes that are known at launch")
        scalar = memory_type(buffer.dtype.element)
        type = f"[{max(size // buffer.dtype.bytes, 1)} x {scalar}]"
        if buffer.scope == "shared":
            return self._static(e, buffer, type, size)
        if buffer.scope != "local":
            raise unsupported(
                f"`{buffer.name}` of scope `{buffer.scope}` cannot be allocated inside a kernel", buffer.span
            )
        self._local += size
        if self._local > MAX_LOCAL_BYTES:
            message = f"the local buffers of a thread take {self._local} bytes"
            raise CompileError(error("E0732", message, buffer.span, f"at most {MAX_LOCAL_BYTES} fit"))
        self._private.add(buffer.data)
        return e.fn.alloca(type, 1, ALIGNMENT, buffer.name)

    def _static(self, e: Emitter, buffer: tir.Buffer, type: str, size: int) -> Value:
        alignment = alignment_of(buffer)
        self.static_shared = -(-self.static_shared // alignment) * alignment + size
        definition = f"internal addrspace(3) global {type} poison, align {alignment}"
        name = e.ctx.module.global_(self._ctx.symbol(f"{self._symbol}_{buffer.name}"), definition)
        return Value(SHARED, name)

    def on_stack(self, buffer: tir.Buffer) -> bool:
        return buffer.data in self._private

    def is_fixed(self, buffer: tir.Buffer) -> bool:
        return True

    def leave(self, e: Emitter, code: Value) -> None:
        """End the thread; nothing has to be freed."""
        e.fn.ret()
