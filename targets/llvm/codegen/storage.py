"""Allocate a kernel's temporary buffers as planned (`mlcc.targets.plan.kernel_memory`): emit LLVM IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.targets.llvm.codegen.ir_text import NULL, Value, integer
from mlcc.targets.llvm.codegen.types import memory_type
from mlcc.targets.plan.kernel_memory import ALIGNMENT, KernelMemory, byte_size

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


class Memory(Protocol):
    """The interface that allocates the buffers of a function, and emits its exits."""

    def allocate(self, e: Emitter, buffer: tir.Buffer) -> Value:
        """Return a pointer to memory for the buffer."""

    def on_stack(self, buffer: tir.Buffer) -> bool:
        """Return True if the buffer is on the stack of the function that allocates it."""

    def is_fixed(self, buffer: tir.Buffer) -> bool:
        """Return True if the buffer is on the stack or in the workspace, not on the heap."""

    def leave(self, e: Emitter, code: Value) -> None:
        """Return a code from the function: 0, or an error code."""


class Storage(KernelMemory):
    """The memory plan of a function body, and the emission of its allocations."""

    def __init__(
        self, body: tuple[tir.Stmt, ...], known: set[tir.Var], stack_bytes: int, callee_bytes: int = 0
    ) -> None:
        super().__init__(body, known, stack_bytes, callee_bytes, promotes=True)
        self._slots: dict[tir.Var, Value] = {}
        self._status = NULL
        self._exit = ""

    def begin(self, e: Emitter) -> None:
        """Set up at the function's entry."""
        if self._heap:
            self._exit = e.fn.label("exit")
            self._status = e.fn.alloca("i32", hint="status")
            for data in self._heap:
                slot = self._slots[data] = e.fn.alloca("ptr", hint=data.name)
                e.fn.store(NULL, slot)
        if tir.const_int(self.workspace) != 0:
            e.callee_workspace = e.fn.gep("i8", e.workspace, integer("i64", self.callee_offset))

    def allocate(self, e: Emitter, buffer: tir.Buffer) -> Value:
        """Return a pointer to memory for the buffer."""
        fn, data = e.fn, buffer.data
        if data in self._fixed:
            offset = self._fixed[data]
            if offset is not None:
                return fn.gep("i8", e.workspace, integer("i64", offset))
            size = byte_size(buffer)
            assert isinstance(size, int)
            scalar = memory_type(buffer.dtype.element)
            count = size // buffer.dtype.bytes
            alignment = self.alignment if buffer.scope.startswith("shared") else ALIGNMENT
            return fn.alloca(f"[{max(count, 1)} x {scalar}]", 1, alignment, buffer.name)
        if data in self._symbolic:
            start = fn.binary("add", e.index(self._symbolic[data]), integer("i64", self._top))
            return fn.gep("i8", e.workspace, start)
        return self._from_heap(e, buffer)

    def _from_heap(self, e: Emitter, buffer: tir.Buffer) -> Value:
        """Allocate heap memory; free the block of an earlier loop iteration in the same slot first."""
        if e.ctx.options.freestanding:
            message = f"the temporary buffer `{buffer.name}` needs an allocator, and freestanding code has none"
            help = "allocate it with a bound: a constant, or an expression over the function's symbols and parameters"
            raise CompileError(error("E0712", message, buffer.span, "of a size known only where it is used", help=help))
        fn, slot = e.fn, self._slots[buffer.data]
        size = byte_size(buffer)
        assert not isinstance(size, int)
        byte_count, one = e.index(size), integer("i64", 1)
        byte_count = fn.select(fn.icmp("slt", byte_count, one), one, byte_count)
        module = e.ctx.module
        fn.call("void", module.declare("free", "void", ["ptr"]), [fn.load("ptr", slot)])
        pointer = fn.call("ptr", module.declare("malloc", "ptr", ["i64"]), [byte_count], "", "")
        fn.store(pointer, slot)
        code = e.ctx.error_code("MemoryError", f"out of memory for the temporary buffer {buffer.name}")
        e.fail_unless(fn.icmp("ne", pointer, NULL), code)
        return pointer

    def leave(self, e: Emitter, code: Value) -> None:
        """Return a code, through the common exit if there is heap memory to free."""
        if not self._heap:
            e.fn.ret(code)
            return
        e.fn.store(code, self._status)
        e.fn.br(self._exit)

    def finish(self, e: Emitter) -> None:
        """Emit the common exit, which frees heap memory."""
        if not self._heap:
            return
        fn = e.fn
        fn.start(self._exit)
        for slot in self._slots.values():
            fn.call("void", e.ctx.module.declare("free", "void", ["ptr"]), [fn.load("ptr", slot)])
        fn.ret(fn.load("i32", self._status))
