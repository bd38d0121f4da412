"""Emit a kernel as a CPU function that runs a whole grid: `emit_kernel`.

    i32 @NAME(ptr report, i64 grid x, y, z, i64 blocks, i32 block x, y, z, i64 dynamic shared bytes, params...)

Blocks run in parallel on the thread pool, the threads of a block one after the other in each region (`split`). Checked
kernels run as many blocks as `blocks` says, those that the report lists, one after the other. The
result is 0, or an error code of the module's context. Shared memory is not cleared at the start of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.checked_index import INDEX_ERROR, checked_index
from mlcc.ir.dtypes import INT32, INT64
from mlcc.ir.node import Attrs, replace
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.gpu.wgmma_layout import products
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.recursion import deep_recursion
from mlcc.targets.emulate import tensor_cores  # noqa: F401, registers the matrix instructions of warps
from mlcc.targets.emulate.barriers import single_thread_operation
from mlcc.targets.emulate.bulk import bulk_copy
from mlcc.targets.emulate.checked import CheckedEmitter
from mlcc.targets.emulate.checks import BLOCK_NUMBER, UNROLLED, Checks
from mlcc.targets.emulate.collectives import name_of
from mlcc.targets.emulate.copies import asynchronous_copy, load_matrix_row
from mlcc.targets.emulate.emitter import NOTED_INDEX, ThreadEmitter
from mlcc.targets.emulate.happens_before import CheckedSplitter
from mlcc.targets.emulate.hoist import hoist_collectives
from mlcc.targets.emulate.scalar_expansion import expand_scalars
from mlcc.targets.emulate.split import Region, Splitter
from mlcc.targets.emulate.threads import Body, Threads
from mlcc.targets.emulate.wgmma import Accumulators
from mlcc.targets.llvm.codegen import casts
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.ir_text import NULL, Value, integer
from mlcc.targets.llvm.codegen.storage import Storage
from mlcc.targets.llvm.codegen.types import memory_type


def emit_kernel(kernel: DeviceKernel, ctx: ModuleContext, checking: bool = False, trace: bool = False) -> Checks:
    """Emit the function of a kernel into the module. Raises CompileError.

    `checking`: blocks run one after the other, and faults are reported in terms of the returned `Checks`.
    `trace`: accesses are recorded as well.
    """
    with deep_recursion():
        threads = Threads.of(kernel)
        checks = Checks(kernel, threads, trace)
        grid = tuple(tir.Var(f"grid_{axis}", INT64) for axis in "xyz")
        body = hoist_collectives(_LowerIntrinsics(kernel, threads, checking).kernel())
        if checking:
            checks.find_roots(body)
        blocks = tir.Var("blocks", INT64)
        code = _grid_loop(
            grid, blocks, threads, checks, _block_body(threads, body, checks if checking else None), checking
        )
        params = (checks.report, *grid, blocks, *threads.block, tir.Var("dynamic_shared", INT64), *kernel.params)
        _emit(kernel, ctx, params, code, checks if checking else None)
        return checks


def _block_body(threads: Threads, body: Body, checks: Checks | None) -> Body:
    """Return the code of a block: allocations, initialisation, and the regions as loops over its threads."""
    splitter = Splitter(threads) if checks is None else CheckedSplitter(threads, checks)
    split = splitter.kernel(body)

    def around(region: Region, inner: Body) -> Stmt:
        if region.mask is not None:
            inner = (tir.IfThenElse(c.load(region.mask, threads.number), inner),)
        return threads.each((*splitter.region_prologue(), *inner))

    expanded = expand_scalars(splitter, split, around)
    return (*(tir.AllocBuffer(b) for b in (*splitter.shared, *splitter.arrays)), *splitter.block_prologue(), *expanded)


def _grid_loop(
    grid: Sequence[tir.Var], blocks: tir.Var, threads: Threads, checks: Checks, body: Body, checking: bool
) -> Body:
    x, y, _ = grid
    block = checks.block
    coordinates = (c.floormod(block, x), c.floormod(c.floordiv(block, x), y), c.floordiv(block, c.mul(x, y)))
    binds = [
        tir.Bind(axis, c.cast(axis.dtype, coordinate))
        for axis, coordinate in zip(threads.block_axes, coordinates, strict=True)
        if axis is not None
    ]
    if not checking:
        return (tir.For(block, c.const(0, INT64), blocks, ForKind.PARALLEL, (*binds, *body)),)
    place = tir.Var("place", INT64)
    number = tir.Bind(block, tir.Call(INT64, tir.Op(BLOCK_NUMBER), (place,)))
    return (tir.For(place, c.const(0, INT64), blocks, ForKind.SERIAL, (number, *binds, *body)),)


def _emit(
    kernel: DeviceKernel, ctx: ModuleContext, params: tuple[tir.Var, ...], body: Body, checks: Checks | None
) -> None:
    types = [("ptr" if p.dtype.is_handle else memory_type(p.dtype), p.name) for p in params]
    known = {p for p in params if p.dtype.is_int}
    storage = Storage(body, known, ctx.options.stack_bytes)
    fn = ctx.module.function("i32", f"grid.{kernel.name}", [*types, ("ptr", "workspace")], attrs=ctx.function_attrs)
    e = ThreadEmitter(fn, ctx, storage) if checks is None else CheckedEmitter(fn, ctx, storage, checks)
    _bind(e, params, fn.params)
    e.workspace = fn.params[-1]
    noalias = bool(kernel.attrs.get("tir.noalias"))
    for var, buffer in zip(kernel.params, kernel.buffers, strict=True):
        if noalias and var.dtype.is_handle:
            e.distinct.add(var)
        if buffer is not None and buffer.data is not var:
            e.bind(buffer.data, e.values[var])
    storage.begin(e)
    e.body(body)
    e.finish()
    storage.finish(e)
    _emit_entry(kernel, ctx, params, types, storage)


def _emit_entry(
    kernel: DeviceKernel,
    ctx: ModuleContext,
    params: tuple[tir.Var, ...],
    types: list[tuple[str, str]],
    storage: Storage,
) -> None:
    """Emit the function that a launch calls, which allocates the workspace."""
    fn = ctx.module.function("i32", kernel.name, types, linkage="", attrs=ctx.function_attrs)
    e = ThreadEmitter(fn, ctx)
    _bind(e, params, fn.params)
    memory = NULL
    if tir.const_int(storage.workspace) != 0:
        allocate = ctx.module.declare("aligned_alloc", "ptr", ["i64", "i64"])
        size = e.index(c.maximum(storage.workspace, storage.alignment))
        memory = fn.call("ptr", allocate, [integer("i64", storage.alignment), size])
        failed, go_on = fn.label("failed"), fn.label("ok")
        fn.cond_br(fn.icmp("eq", memory, NULL), failed, go_on)
        fn.start(failed)
        fn.ret(integer("i32", ctx.error_code("MemoryError", "no memory to emulate a kernel")))
        fn.start(go_on)
    code = fn.call("i32", f"@grid.{kernel.name}", [*fn.params, memory])
    fn.call("void", ctx.module.declare("free", "void", ["ptr"]), [memory])
    fn.ret(code)


def _bind(e: ThreadEmitter, params: Sequence[tir.Var], values: Sequence[Value]) -> None:
    for var, value in zip(params, values, strict=False):
        e.bind(var, casts.from_memory(e, value, var.dtype))


class _LowerIntrinsics(TirMutator):
    """Lower what CPUs lack: loops become serial, copies loads and stores, and a failed assertion stores its number."""

    def __init__(self, kernel: DeviceKernel, threads: Threads, checking: bool) -> None:
        self._kernel = kernel
        self._threads = threads
        self._maps = kernel.maps
        self._accumulators = Accumulators(products(kernel.body), threads.number, checking)
        self._numbers = {key: number for number, key in enumerate(kernel.asserts, 1)}
        error = kernel.params[-1] if kernel.asserts else None
        self._error = None if error is None else c.make_buffer("error", (1,), INT32, data=error)

    def kernel(self) -> Body:
        """Return the lowered code of the kernel."""
        body = self.body(self._kernel.body)
        if not self._accumulators:
            return body
        groups = self._accumulators.groups
        return (tir.AllocBuffer(groups), c.store(groups, c.const(0, INT32), 0), *body)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        return self._accumulators.allocate(node) if self._accumulators else node

    def expr_call(self, node: tir.Call) -> tir.Expr:
        check = checked_index(node)
        if check is None or self._error is None:
            return super().expr_call(node)
        args = (self.expr(check.index), self.expr(check.extent), c.const(check.from_end))
        number = c.const(self._numbers[INDEX_ERROR, check.message], INT32)
        return tir.Call(node.dtype, tir.Op(f"tir.{NOTED_INDEX}"), (*args, number, self._error.data), span=node.span)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = super().stmt_for(node)
        if not isinstance(loop, tir.For):
            return loop
        annotations = Attrs({UNROLLED: True}) if loop.kind is ForKind.UNROLLED else loop.annotations
        return replace(loop, kind=ForKind.SERIAL, annotations=annotations)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        if name_of(node.value) == "tir.ptx_cp_async" and isinstance(node.value, tir.Call):
            return asynchronous_copy(node.value)
        if name_of(node.value) == "tir.ptx_ldmatrix" and isinstance(node.value, tir.Call):
            return load_matrix_row(node.value, self._threads.lane)
        match node.value:
            case tir.Call(op=tir.Op("tir.ptx_wgmma_ss" | "tir.ptx_wgmma_rs")) as call:
                return self._accumulators.product(call)
            case tir.Call(op=tir.Op("tir.ptx_wgmma_fence")):
                return self._accumulators.fence()
            case tir.Call(op=tir.Op("tir.ptx_wgmma_commit_group")):
                return self._accumulators.commit()
            case tir.Call(op=tir.Op("tir.ptx_wgmma_wait_group"), args=(count,)):
                return self._accumulators.wait(count)
        lowered = (
            single_thread_operation(node.value, self._threads.number) if isinstance(node.value, tir.Call) else None
        )
        if lowered is None and isinstance(node.value, tir.Call):
            lowered = bulk_copy(node.value, self._maps, self._threads.number)
        return node if lowered is None else lowered

    def body(self, statements: Body) -> Body:
        outer_count = len(self._accumulators.in_scope)
        lowered = self._skip_after_assertions(statements)
        del self._accumulators.in_scope[outer_count:]
        return lowered

    def _skip_after_assertions(self, statements: Body) -> Body:
        """Lower statements; those after an assertion are skipped if it fails."""
        for at, stmt in enumerate(statements):
            if isinstance(stmt, tir.AssertStmt):
                head = super().body(statements[:at])
                rest = self._skip_after_assertions(statements[at + 1 :])
                return (*head, self._guard_by_assertion(stmt, rest))
        return super().body(statements)

    def _guard_by_assertion(self, stmt: tir.AssertStmt, rest: Body) -> Stmt:
        number = self._numbers.get((stmt.kind, "".join(stmt.message)))
        failed: Body = ()
        if number is not None and self._error is not None:
            failed = (c.store(self._error, c.const(number, INT32), 0),)
        return tir.IfThenElse(stmt.condition, rest, failed or None, span=stmt.span)
