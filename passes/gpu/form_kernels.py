"""Bring kernels into a canonical form: all thread axes around the kernel, and the code of one thread inside.

    for b in T.thread_binding(4, thread="blockIdx.x"):
        for k in range(8):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                S[t] = A[k, t]
            for t in T.thread_binding(32, thread="threadIdx.x"):
                B[b, k, t] = S[t] + S[t + 32]

becomes

    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in range(8):
                S[tx] = A[k, tx]
                if T.likely(tx < 32):
                    B[bx, k, tx] = S[tx] + S[tx + 32]

Outermost thread-bound loops, virtual threads' too, and launch scopes are kernels. A launch has as many threads of an
axis as the loop that takes most, and the others leave the rest out. What stands outside of the loops of an axis (code
of a block, beside its loops over threads) runs once in the text: of its stores to memory that threads share, the first
thread makes them, or all blocks, where all write the same.

Memory on the chip lives as long as the kernel: it is allocated in there. A buffer of no scope (`global`) that a kernel
allocates is a thread's own or, outside of loops over threads, the block's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, Diagnostic, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, called, effect_of
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.check_thread_private import check_thread_private
from mlcc.passes.gpu.device import BLOCK, GRID
from mlcc.passes.gpu.launch import Launch, scan_launch
from mlcc.passes.gpu.thread_axes import AXES, is_virtual, loop_label, thread_axis
from mlcc.passes.lowering.compact import OUTSIDE_THREADS
from mlcc.passes.lowering.folding import Folding
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.pipeline_parts import BULK_COPY
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def form_kernels(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (without blocks) with its kernels in this form. Raises CompileError."""
    return replace(func, body=_KernelFinder().body(func.body))


def with_scope(buffer: tir.Buffer, scope: str) -> tir.Buffer:
    """Return the buffer in memory of another scope, with its own data variable."""
    data = tir.Var(buffer.data.name, buffer.data.dtype, tir.PointerType(buffer.dtype.element, scope))
    return replace(buffer, data=data)


class _KernelFinder(TirMutator):
    """Find the kernels. Refuses accesses of device memory by the host itself."""

    def __init__(self) -> None:
        self._on_chip: dict[tir.Var, Stmt] = {}  # allocations, and views of them, that belong into a kernel
        self._kernel_of: dict[tir.Var, Stmt] = {}  # the kernel that has them
        self._first: dict[tir.Var, int | None] = {}  # loops around, at their first iteration

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        if node.buffer.scope == "global":
            return node
        self._on_chip[node.buffer.data] = node
        return []

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        if any(isinstance(n, tir.Var) and n in self._on_chip for n in walk(node.data)):
            self._on_chip[node.buffer.data] = node
            return []
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if thread_axis(node) or _is_virtual_nest(node):
            return [self._form_kernel(node)]
        self._first[node.var] = tir.const_int(node.min)
        loop = super().stmt_for(node)
        return replace(loop, kind=ForKind.SERIAL, thread=None) if isinstance(loop, tir.For) else loop

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        return [self._form_kernel(node)] if thread_axis(node) else super().stmt_attr(node)

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        text = f"`{node.buffer.name}` is written outside of thread-bound loops"
        raise CompileError(error("E0720", text, node.span, "the host cannot write to device memory"))

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        text = f"`{node.buffer.name}` is read outside of thread-bound loops"
        raise CompileError(error("E0720", text, node.span, "the host cannot read device memory"))

    def _form_kernel(self, node: Stmt) -> Stmt:
        used = {n.data if isinstance(n, tir.Buffer) else n for n in walk(node) if isinstance(n, (tir.Buffer, tir.Var))}
        allocations: list[Stmt] = []
        for data, stmt in self._on_chip.items():
            if data not in used:
                continue
            if data in self._kernel_of:
                raise CompileError(_used_by_two_kernels(stmt, self._kernel_of[data], node))
            self._kernel_of[data] = node
            if isinstance(stmt, tir.AllocBuffer) and isinstance(node, tir.For):  # launch scopes hold code of one thread
                stmt = replace(stmt, annotations=stmt.annotations.with_item(OUTSIDE_THREADS, 1))
            allocations.append(stmt)
        launch = scan_launch(node)
        check_thread_private(node, launch, self._first)
        body = (*allocations, *_ThreadCode(launch).body((node,)))
        for tag in reversed(AXES):
            if tag in launch.axes:
                axis, extent = launch.axes[tag], launch.extents[tag]
                zero = c.const(0, axis.dtype)
                bound = tir.For(axis, zero, c.cast(axis.dtype, extent), ForKind.THREAD_BINDING, body, tag)
                body = (replace(bound, span=node.span),)
        return body[0]


def _is_virtual_nest(loop: tir.For) -> bool:
    """Return True if a loop over virtual threads encloses loops or scopes bound to real ones."""
    if loop.kind is not ForKind.THREAD_BINDING or not is_virtual(loop.thread or ""):
        return False
    return any(isinstance(n, (tir.For, tir.AttrStmt)) and thread_axis(n) for n in walk(loop))


def _used_by_two_kernels(stmt: Stmt, first: Stmt, second: Stmt) -> Diagnostic:
    buffer = stmt.buffer  # type: ignore[attr-defined]
    text = f"`{buffer.name}` of scope `{buffer.scope}` is used by two kernels"
    help = "on-chip memory lasts only as long as a kernel: use scope `global`, or one loop nest for both"
    places = (loop_label(first, "the first kernel"), loop_label(second, "the second kernel"))
    return error("E0723", text, stmt.span, related=places, help=help)


class _ThreadCode(Folding):
    """Build the code of one thread. `_open` are the axes whose loops or scopes enclose the current statement."""

    def __init__(self, launch: Launch) -> None:
        super().__init__({})
        self._launch = launch
        self._open: list[str] = []
        self._bulk = False  # inside a copy for the copy engine
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}

    # ------------------------------------------------------------ axes

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        axis = thread_axis(node)
        if axis is not None:
            return self._enter_axis(node, *axis, node.min)
        loop = super().stmt_for(node)
        if isinstance(loop, tir.For) and loop.kind is ForKind.PARALLEL:
            return replace(loop, kind=ForKind.SERIAL)
        return loop

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        axis = thread_axis(node)
        if axis is not None:
            return self._enter_axis(node, *axis, c.const(0, axis[1].dtype))
        if node.key == BULK_COPY:  # one thread asks for it anyway
            outer, self._bulk = self._bulk, True
            scope = super().stmt_attr(node)
            self._bulk = outer
            return scope
        return super().stmt_attr(node)

    def _enter_axis(
        self, node: tir.For | tir.AttrStmt, tag: str, var: tir.Var, extent: Expr, low: Expr
    ) -> list[Stmt]:  # fmt: skip
        axis = self._launch.axes[tag]
        at = c.cast(var.dtype, axis)
        self.values[var] = c.add(self.expr(low), at)
        self._open.append(tag)
        body = self.body(node.body)
        self._open.pop()
        if self._launch.whole(tag, extent):
            return list(body)
        inside = c.call(
            "bool", "likely", c.less(at, self.expr(extent))
        )  # marks a condition that passes added: see `insert_barriers`
        return [tir.IfThenElse(inside, body, span=node.span)]

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        result = super().expr_binary(node)
        if (
            result.span is None and node.span is not None and type(result) is type(node)
        ):  # reports of kernels name places
            return replace(result, span=node.span)
        return result

    # ------------------------------------------------------------ statements that one thread runs

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        store = super().stmt_store(node)
        assert isinstance(store, tir.BufferStore)
        return self._on_first_thread(store, store.buffer.scope, node.buffer)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        stmt = super().stmt_evaluate(node)
        if (
            isinstance(stmt, tir.Evaluate)
            and isinstance(stmt.value, tir.Call)
            and not _all_threads_may_call(stmt.value)
        ):
            return self._on_first_thread(stmt, "global", None)
        return stmt

    def _on_first_thread(self, stmt: Stmt, scope: str, buffer: tir.Buffer | None) -> Stmt:
        missing = [tag for tag in self._launch.axes if tag not in self._open]
        if not missing or scope == "local" or self._bulk:
            return stmt
        first: Expr = tir.TRUE
        for tag in missing:
            axis = self._launch.axes[tag]
            if tag in BLOCK or (scope == "global" and not self._every_block_stores(stmt, buffer)):
                first = c.logical_and(first, c.equal(axis, 0))
        return stmt if tir.const_int(first) == 1 else tir.IfThenElse(first, (stmt,), span=stmt.span)

    def _every_block_stores(self, stmt: Stmt, buffer: tir.Buffer | None) -> bool:
        """Return True if every block has to repeat a store because the kernel reads the buffer. Raises E0724."""
        if buffer is None or buffer.data not in self._launch.read:
            return False
        if buffer.data in self._launch.read_outside_axes:
            text = f"`{buffer.name}` is written outside of the loops bound to " + " and ".join(
                f"`{t}`" for t in self._launch.axes if t in GRID and t not in self._open
            )
            help = "thread blocks cannot synchronize: move the statement to a loop nest of its own before this one"
            raise CompileError(error("E0724", text, stmt.span, "all blocks read it", help=help))
        return True

    # ------------------------------------------------------------ memory

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def buffer_binder(self, node: tir.Buffer) -> tir.Buffer:
        buffer: tir.Buffer = replace(node, shape=self.exprs(node.shape), strides=self.exprs(node.strides))
        if node.elem_offset is not None:
            buffer = replace(buffer, elem_offset=self.expr(node.elem_offset))
        if node.data in self.values:
            buffer = replace(buffer, data=self.values[node.data])
        if buffer is not node:
            self._buffers[node] = buffer
        return buffer

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        if node.buffer.scope != "global":
            axes = GRID if node.buffer.scope.startswith("shared") else AXES
            if any(tag in axes and tag not in self._open for tag in self._launch.axes):
                node = replace(node, annotations=node.annotations.with_item(OUTSIDE_THREADS, 1))
            return super().stmt_alloc(node)
        missing = any(tag in BLOCK and tag not in self._open for tag in self._launch.axes)
        old = node.buffer
        moved = with_scope(old, "shared" if missing else "local")
        self.values[old.data] = moved.data
        return tir.AllocBuffer(self.buffer_binder(old), node.annotations, span=node.span)


def _all_threads_may_call(call: tir.Call) -> bool:
    """Return True if all threads may make a call (it has no effect), or must (it is collective)."""
    return effect_of(call) <= Effect.READ or called(call).collective


def thread_nest(stmt: Stmt) -> tuple[Sequence[tir.For], Body] | None:
    """Return the bound loops around a kernel in this form, and its body; None for any other statement."""
    loops: list[tir.For] = []
    body: Body = (stmt,)
    while len(body) == 1 and isinstance(body[0], tir.For) and thread_axis(body[0]):
        loops.append(body[0])
        body = body[0].body
    return (loops, body) if loops else None


def map_kernels(func: tir.PrimFunc, change: Callable[[Sequence[tir.For], Body], Body]) -> tir.PrimFunc:
    """Apply `change` to the body of each kernel of `func` (flat loop code with formed kernels). It is also given the
    bound loops around the body.
    """
    return replace(func, body=_KernelMapper(change).body(func.body))


class _KernelMapper(TirMutator):
    def __init__(self, change: Callable[[Sequence[tir.For], Body], Body]) -> None:
        self._change = change

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        nest = thread_nest(node)
        if nest is None:
            return super().stmt_for(node)
        loops, body = nest
        code = self._change(loops, body)
        for loop in reversed(loops):
            code = (replace(loop, body=code),)
        return code[0]


@dataclass(frozen=True)
class FormKernels(LoweringStep):
    """Move all thread axes of a kernel around it; loops bound to fewer threads become conditions.

    Before:  for b in blockIdx.x: for k in range(8): for t in threadIdx.x: ...
    After:   for b in blockIdx.x: for t in threadIdx.x: for k in range(8): ...
    """

    name: ClassVar[str] = "form-kernels"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return form_kernels(func)
