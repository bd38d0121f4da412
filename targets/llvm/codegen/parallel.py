"""Parallel loops: their body as a function of a range of iterations, which the pool (`pool.ll`) runs.

`i32 @parallel.K(captured values..., workspace, begin, end)` is the loop; `i32 @parallel.K.piece(context, begin, end)`
takes the values from a struct that the caller fills on its stack, and gets memory for large temporaries, so that pieces
that run at the same time have their own. Each piece gives 0 or an error code, and the loop's is that of the first
iteration that failed, as in a serial loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import Node, children
from mlcc.ir.visit import binders
from mlcc.passes.lowering import loop_time, parallel, work
from mlcc.targets.llvm.codegen import calls
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.codegen.pool import RUN_WORK, add_pool
from mlcc.targets.llvm.codegen.storage import ALIGNMENT, Storage
from mlcc.targets.llvm.codegen.types import register_type

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

LEAST_PIECE = 4_000_000  # picoseconds of the operations that a thread takes at a time


def parallel_loop(e: Emitter, stmt: tir.For, trips: Value) -> None:
    """Run a loop that `settle_parallel` left; `trips` is how often its body runs, in the loop variable's type."""
    fn = e.fn
    size = fn.convert("zext" if stmt.var.dtype.is_uint else "sext", trips, "i64")
    part = _Part(e, stmt)
    context, piece = part.emit()
    once = work.of_iteration(stmt)
    grain = _at_most(e, size, _grain(e, once))
    add_pool(e.ctx.module)
    known = tir.const_int(c.mul(c.cast(INT64, stmt.extent), once))
    if known is not None:
        given = [Value("ptr", piece), context, size, grain, _nanoseconds(e, stmt)]
        e.fail_if_error(fn.call("i32", f"@{RUN_WORK}", given))
        return
    enough = fn.icmp("sge", fn.binary("mul", size, e.index(once)), integer("i64", parallel.LEAST_WORK))
    shared, alone, done = fn.label("parallel"), fn.label("serial"), fn.label("end")
    fn.cond_br(enough, shared, alone)
    fn.start(shared)
    given = [Value("ptr", piece), context, size, grain, _nanoseconds(e, stmt)]
    by_pool = fn.call("i32", f"@{RUN_WORK}", given)
    fn.br(done)
    fn.start(alone)
    by_self = fn.call("i32", piece, [context, integer("i64", 0), size])
    fn.br(done)
    fn.start(done)
    e.fail_if_error(fn.phi("i32", [(by_pool, shared), (by_self, alone)]))


def _nanoseconds(e: Emitter, stmt: tir.For) -> Value:
    """Return the estimated time of the loop on one thread in ns, by which the pool decides whether to wake threads."""
    whole = loop_time.picoseconds(stmt)
    return e.fn.binary("sdiv", e.index(whole), integer("i64", 1000))


def _grain(e: Emitter, once: tir.Expr) -> Value:
    """The least iterations of a piece, for `once` picoseconds of operations in one."""
    known = tir.const_int(once)
    if known is not None:
        return integer("i64", -(-LEAST_PIECE // max(known, 1)))
    fn, one = e.fn, integer("i64", 1)
    value = e.index(once)
    value = fn.select(fn.icmp("slt", value, one), one, value)
    room = fn.binary("add", value, integer("i64", LEAST_PIECE - 1))
    return fn.binary("udiv", room, value)


def _at_most(e: Emitter, size: Value, grain: Value) -> Value:
    """With a number of cores in the target: so many iterations in a piece that there are no more pieces than cores."""
    cores = e.ctx.options.num_cores
    if not cores:
        return grain
    fn = e.fn
    share = fn.binary("sdiv", fn.binary("add", size, integer("i64", cores - 1)), integer("i64", cores))
    return fn.select(fn.icmp("sgt", share, grain), share, grain)


class _Part:
    """The functions of one loop, and the values that they need from around it."""

    def __init__(self, e: Emitter, stmt: tir.For) -> None:
        self.e = e
        self.stmt = stmt
        self.symbol = f"parallel.{e.fn.symbol}.{e.parts}"
        e.parts += 1
        inside = binders(stmt)  # which may have values here, left from other code that bound them
        used = [v for v in _variables(stmt) if v in e.values and v not in inside]
        self.constant = [v for v in used if not _is_computed(e.values[v])]
        self.captured = [v for v in used if _is_computed(e.values[v])]
        self.wide = [v for v in self.captured if v in e.wide]
        known = {v for v in used if v.dtype.is_int and v.dtype.lanes == 1}
        callees = calls.callee_workspace(stmt, e.ctx)
        self.start = e.index(stmt.min)
        self.step = integer("i64", 1) if stmt.step is None else e.index(stmt.step)
        self.storage = Storage(stmt.body, known, e.ctx.options.stack_bytes, callees)

    def emit(self) -> tuple[Value, str]:
        """Add the functions; fills the context, and gives it and the function that takes it."""
        e, fn = self.e, self.e.fn
        values = [*(e.values[v] for v in self.captured), *(e.wide[v] for v in self.wide)]
        values += [v for v in (self.start, self.step) if _is_computed(v)]
        needs_memory = tir.const_int(self.storage.workspace) != 0
        size = e.index(c.maximum(self.storage.workspace, self.storage.alignment))
        fields = [*values, size] if needs_memory else values
        struct = f"{{ {', '.join(v.type for v in fields)} }}"
        context = fn.alloca(struct, hint="context")
        for index, value in enumerate(fields):
            fn.store(value, fn.gep(struct, context, integer("i64", 0), integer("i32", index)))
        self._loop(values)
        self._piece(struct, [v.type for v in values], needs_memory)
        return context, f"@{self.symbol}.piece"

    def _loop(self, values: list[Value]) -> None:
        e, stmt, dtype = self.e, self.stmt, self.stmt.var.dtype
        handles = [v for v in self.captured if e.values[v].type == "ptr"]
        apart = "noalias noundef" if all(v in e.distinct for v in handles) else "noundef"
        names = [v.name for v in (*self.captured, *self.wide)] + ["start", "step"]  # for people: they are numbered
        params = [(value.type, name) for value, name in zip(values, names, strict=False)]
        attrs = [apart if value.type == "ptr" else "" for value in values]
        fn = e.ctx.module.function(
            "i32", self.symbol, [*params, ("ptr", "workspace"), ("i64", "begin"), ("i64", "end")],
            param_attrs=[*attrs, f"noalias align {ALIGNMENT}", "noundef", "noundef"], attrs=e.ctx.function_attrs,
        )  # fmt: skip
        part = type(e)(fn, e.ctx, self.storage)
        for var in self.constant:
            part.bind(var, e.values[var])
        given = iter(fn.params)
        for var in self.captured:
            part.bind(var, next(given))
            if var in e.distinct:
                part.distinct.add(var)
        for var in self.wide:
            part.wide[var] = next(given)
        start, step = (next(given) if _is_computed(v) else v for v in (self.start, self.step))
        part.workspace, begin, end = fn.params[-3:]
        self.storage.begin(part)
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
        part.bind(stmt.var, fn.convert("trunc", wide, register_type(dtype)))
        if dtype.kind == "int" and dtype.bits == 32:
            part.wide[stmt.var] = wide
        begun = fn.begin_loop()
        part.loops.append((latch, done))
        part.body(stmt.body)
        part.loops.pop()
        fn.end_loop(begun)
        fn.start(latch)
        fn.line(f"%{step_back} = add nuw nsw {count}, 1")
        fn.br(head)
        fn.start(done)
        part.finish()
        self.storage.finish(part)

    def _piece(self, struct: str, types: list[str], needs_memory: bool) -> None:
        module = self.e.ctx.module
        fn = module.function(
            "i32", f"{self.symbol}.piece", [("ptr", "context"), ("i64", "begin"), ("i64", "end")],
            attrs=self.e.ctx.function_attrs,
        )  # fmt: skip
        context, begin, end = fn.params

        def field(index: int, type: str) -> Value:
            return fn.load(type, fn.gep(struct, context, integer("i64", 0), integer("i32", index)))

        values = [field(index, type) for index, type in enumerate(types)]
        memory = self._memory(fn, field(len(types), "i64")) if needs_memory else NULL
        code = fn.call("i32", f"@{self.symbol}", [*values, memory, begin, end])
        if needs_memory:
            fn.call("void", module.declare("free", "void", ["ptr"]), [memory])
        fn.ret(code)

    def _memory(self, fn: FunctionText, size: Value) -> Value:
        """Memory for the temporaries of a piece."""
        allocate = fn.module.declare("aligned_alloc", "ptr", ["i64", "i64"])
        memory = fn.call("ptr", allocate, [integer("i64", self.storage.alignment), size])
        failed, go_on = fn.label("failed"), fn.label("ok")
        fn.cond_br(fn.icmp("eq", memory, NULL), failed, go_on)
        fn.start(failed)
        code = self.e.ctx.error_code("MemoryError", "no memory for the temporary buffers of a parallel loop")
        fn.ret(integer("i32", code))
        fn.start(go_on)
        return memory


def _is_computed(value: Value) -> bool:
    """Made by an instruction or passed to the function, so that another function does not know it."""
    return value.ref.startswith("%")


def _variables(stmt: tir.For) -> dict[tir.Var, None]:
    """The variables that a loop mentions, in order; with those in the shapes of what it allocates."""
    variables: dict[tir.Var, None] = {}
    seen: set[int] = set()  # expressions that iterations written out share
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
