"""Outline parallel loops into functions of a range of iterations, which the thread pool (`pool.ll`) runs.

`i32 @parallel.K(captured values..., workspace, begin, end)` is the loop. `i32 @parallel.K.piece(context, begin, end)`
runs a chunk of it: it loads the captured values from a struct on the caller's stack, and allocates memory for large
temporaries, so that concurrent chunks have their own. A chunk returns 0 or an error code; the code of the loop is that
of the first iteration that failed, as in a serial loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import Node, children
from mlcc.ir.visit import binders
from mlcc.passes.lowering import loop_time, parallel, work
from mlcc.targets.llvm.codegen import calls, execution_log
from mlcc.targets.llvm.codegen.context import LoggedEvent
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.codegen.pool import RUN_WORK, add_pool
from mlcc.targets.llvm.codegen.storage import Storage
from mlcc.targets.llvm.codegen.types import register_type
from mlcc.targets.plan.kernel_memory import ALIGNMENT

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

MIN_CHUNK_PICOSECONDS = 4_000_000  # minimum work of a chunk


def parallel_loop(e: Emitter, stmt: tir.For, trips: Value) -> None:
    """Emit a parallel loop of loop code; `trips` is its trip count, in the loop variable's type."""
    if e.ctx.options.freestanding:
        message = "a parallel loop needs threads, and freestanding code has none"
        help = "lower the module for the same target, which makes its loops serial"
        raise CompileError(error("E0712", message, stmt.span, help=help))
    fn = e.fn
    iterations = fn.convert("zext" if stmt.var.dtype.is_uint else "sext", trips, "i64")
    functions = _LoopFunctions(e, stmt)
    context, chunk_function = functions.emit()
    iteration_cost = work.iteration_picoseconds(stmt)
    min_chunk = _limit_to_cores(e, iterations, _min_chunk(e, iteration_cost))
    add_pool(e.ctx.module)
    known = tir.const_int(c.mul(c.cast(INT64, stmt.extent), iteration_cost))
    begun = execution_log.start(e.ctx, fn)
    event = LoggedEvent("loop", e.ctx.module.owner, span=stmt.span)
    if known is not None:
        arguments = [Value("ptr", chunk_function), context, iterations, min_chunk, _nanoseconds(e, stmt)]
        code = fn.call("i32", f"@{RUN_WORK}", arguments)
        execution_log.stop(e.ctx, fn, event, begun, iterations)
        e.fail_if_error(code)
        return
    is_worthwhile = fn.icmp(
        "sge", fn.binary("mul", iterations, e.index(iteration_cost)), integer("i64", parallel.LEAST_WORK)
    )
    parallel_block, serial, done = fn.label("parallel"), fn.label("serial"), fn.label("end")
    fn.cond_br(is_worthwhile, parallel_block, serial)
    fn.start(parallel_block)
    arguments = [Value("ptr", chunk_function), context, iterations, min_chunk, _nanoseconds(e, stmt)]
    parallel_code = fn.call("i32", f"@{RUN_WORK}", arguments)
    fn.br(done)
    fn.start(serial)
    serial_code = fn.call("i32", chunk_function, [context, integer("i64", 0), iterations])
    fn.br(done)
    fn.start(done)
    code = fn.phi("i32", [(parallel_code, parallel_block), (serial_code, serial)])
    execution_log.stop(e.ctx, fn, event, begun, iterations)
    e.fail_if_error(code)


def _nanoseconds(e: Emitter, stmt: tir.For) -> Value:
    """Return the estimated serial time of the loop in ns, by which the pool decides whether to wake threads."""
    picoseconds = loop_time.picoseconds(stmt)
    return e.fn.binary("sdiv", e.index(picoseconds), integer("i64", 1000))


def _min_chunk(e: Emitter, iteration_cost: tir.Expr) -> Value:
    """Return the minimum iterations of a chunk, for iterations of `iteration_cost` picoseconds."""
    known = tir.const_int(iteration_cost)
    if known is not None:
        return integer("i64", -(-MIN_CHUNK_PICOSECONDS // max(known, 1)))
    fn, one = e.fn, integer("i64", 1)
    value = e.index(iteration_cost)
    value = fn.select(fn.icmp("slt", value, one), one, value)
    rounded = fn.binary("add", value, integer("i64", MIN_CHUNK_PICOSECONDS - 1))
    return fn.binary("udiv", rounded, value)


def _limit_to_cores(e: Emitter, iterations: Value, min_chunk: Value) -> Value:
    """If the target has a number of cores, enlarge chunks so that there are no more of them than cores."""
    cores = e.ctx.options.num_cores
    if not cores:
        return min_chunk
    fn = e.fn
    share = fn.binary("sdiv", fn.binary("add", iterations, integer("i64", cores - 1)), integer("i64", cores))
    return fn.select(fn.icmp("sgt", share, min_chunk), share, min_chunk)


class _LoopFunctions:
    """The functions of one parallel loop, and the values that they capture."""

    def __init__(self, e: Emitter, stmt: tir.For) -> None:
        self.e = e
        self.stmt = stmt
        self.symbol = f"parallel.{e.fn.symbol}.{e.parts}"
        e.parts += 1
        bound_inside = binders(stmt)  # variables bound inside may still have values from other code
        used = [v for v in _variables(stmt) if v in e.values and v not in bound_inside]
        self.constant = [v for v in used if not _is_local(e.values[v])]
        self.captured = [v for v in used if _is_local(e.values[v])]
        self.wide = [v for v in self.captured if v in e.wide]
        integers = {v for v in used if v.dtype.is_int and v.dtype.lanes == 1}
        callee_bytes = calls.callee_workspace(stmt, e.ctx)
        self.start = e.index(stmt.min)
        self.step = integer("i64", 1) if stmt.step is None else e.index(stmt.step)
        self.storage = Storage(stmt.body, integers, e.ctx.options.stack_bytes, callee_bytes)

    def emit(self) -> tuple[Value, str]:
        """Emit the functions, and code that fills the context; return the context and the chunk function."""
        e, fn = self.e, self.e.fn
        values = [*(e.values[v] for v in self.captured), *(e.wide[v] for v in self.wide)]
        values += [v for v in (self.start, self.step) if _is_local(v)]
        needs_memory = tir.const_int(self.storage.workspace) != 0
        size = e.index(c.maximum(self.storage.workspace, self.storage.alignment))
        fields = [*values, size] if needs_memory else values
        struct = f"{{ {', '.join(v.type for v in fields)} }}"
        context = fn.alloca(struct, hint="context")
        for index, value in enumerate(fields):
            fn.store(value, fn.gep(struct, context, integer("i64", 0), integer("i32", index)))
        self._emit_loop_function(values)
        self._emit_chunk_function(struct, [v.type for v in values], needs_memory)
        return context, f"@{self.symbol}.piece"

    def _emit_loop_function(self, values: list[Value]) -> None:
        e, stmt, dtype = self.e, self.stmt, self.stmt.var.dtype
        handles = [v for v in self.captured if e.values[v].type == "ptr"]
        pointer_attrs = "noalias noundef" if all(v in e.distinct for v in handles) else "noundef"
        names = [v.name for v in (*self.captured, *self.wide)] + ["start", "step"]
        params = [(value.type, name) for value, name in zip(values, names, strict=False)]
        attrs = [pointer_attrs if value.type == "ptr" else "" for value in values]
        fn = e.ctx.module.function(
            "i32", self.symbol, [*params, ("ptr", "workspace"), ("i64", "begin"), ("i64", "end")],
            param_attrs=[*attrs, f"noalias align {ALIGNMENT}", "noundef", "noundef"], attrs=e.ctx.function_attrs,
        )  # fmt: skip
        inner = type(e)(fn, e.ctx, self.storage)
        for var in self.constant:
            inner.bind(var, e.values[var])
        arguments = iter(fn.params)
        for var in self.captured:
            inner.bind(var, next(arguments))
            if var in e.distinct:
                inner.distinct.add(var)
        for var in self.wide:
            inner.wide[var] = next(arguments)
        start, step = (next(arguments) if _is_local(v) else v for v in (self.start, self.step))
        inner.workspace, begin, end = fn.params[-3:]
        self.storage.begin(inner)
        head, body, latch, done = (fn.label(name) for name in ("for", "body", "next", "end"))
        before = fn.block
        fn.br(head)
        fn.start(head)
        step_back = fn.label("k")
        count = fn.phi("i64", [(begin, before), (Value("i64", f"%{step_back}"), latch)])
        fn.cond_br(fn.icmp("slt", count, end), body, done)
        fn.start(body)
        scaled = count if step == integer("i64", 1) else fn.binary("mul", count, step)
        wide = scaled if start == integer("i64", 0) else fn.binary("add", start, scaled)
        inner.bind(stmt.var, fn.convert("trunc", wide, register_type(dtype)))
        if dtype.kind == "int" and dtype.bits == 32:
            inner.wide[stmt.var] = wide
        begun = fn.begin_loop()
        inner.loops.append((latch, done))
        inner.body(stmt.body)
        inner.loops.pop()
        fn.end_loop(begun)
        fn.start(latch)
        fn.line(f"%{step_back} = add nuw nsw {count}, 1")
        fn.br(head)
        fn.start(done)
        inner.finish()
        self.storage.finish(inner)

    def _emit_chunk_function(self, struct: str, types: list[str], needs_memory: bool) -> None:
        module = self.e.ctx.module
        fn = module.function(
            "i32", f"{self.symbol}.piece", [("ptr", "context"), ("i64", "begin"), ("i64", "end")],
            attrs=self.e.ctx.function_attrs,
        )  # fmt: skip
        context, begin, end = fn.params

        def field(index: int, type: str) -> Value:
            return fn.load(type, fn.gep(struct, context, integer("i64", 0), integer("i32", index)))

        begun = execution_log.start(self.e.ctx, fn)
        values = [field(index, type) for index, type in enumerate(types)]
        memory = self._allocate_workspace(fn, field(len(types), "i64")) if needs_memory else NULL
        code = fn.call("i32", f"@{self.symbol}", [*values, memory, begin, end])
        if needs_memory:
            fn.call("void", module.declare("free", "void", ["ptr"]), [memory])
        event = LoggedEvent("part", module.owner, span=self.stmt.span)
        execution_log.stop(self.e.ctx, fn, event, begun, fn.binary("sub", end, begin))
        fn.ret(code)

    def _allocate_workspace(self, fn: FunctionText, size: Value) -> Value:
        """Allocate memory for the temporaries of a chunk."""
        allocate = fn.module.declare("aligned_alloc", "ptr", ["i64", "i64"])
        memory = fn.call("ptr", allocate, [integer("i64", self.storage.alignment), size])
        failed, passed = fn.label("failed"), fn.label("ok")
        fn.cond_br(fn.icmp("eq", memory, NULL), failed, passed)
        fn.start(failed)
        code = self.e.ctx.error_code("MemoryError", "out of memory for the temporary buffers of a parallel loop")
        fn.ret(integer("i32", code))
        fn.start(passed)
        return memory


def _is_local(value: Value) -> bool:
    """Return True if a value is local to its function: the result of an instruction, or a parameter."""
    return value.ref.startswith("%")


def _variables(stmt: tir.For) -> dict[tir.Var, None]:
    """Return the variables that a loop uses in order, including those in shapes of its allocations."""
    variables: dict[tir.Var, None] = {}
    seen: set[int] = set()  # expressions shared by unrolled iterations
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Var):
            variables.setdefault(node)
        elif isinstance(node, tir.Buffer):
            variables.setdefault(node.data)
        elif id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, tir.AllocBuffer):
                stack.extend(node.buffer.shape)
            stack.extend(reversed(children(node)))
    return variables
