"""Emit statements: loops, branches, bindings, buffers, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.node import holds
from mlcc.ir.tir import ForKind
from mlcc.targets.llvm.codegen import masks, parallel
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import register_type

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def bind(e: Emitter, stmt: tir.Bind) -> None:
    e.bind(stmt.var, e.expr(stmt.value))


def evaluate(e: Emitter, stmt: tir.Evaluate) -> None:
    """Emit an expression for its side effects; nothing for a constant (`T.evaluate(0)`)."""
    if not isinstance(stmt.value, (tir.IntImm, tir.FloatImm, tir.StringImm, tir.Var)):
        e.expr(stmt.value)


def assertion(e: Emitter, stmt: tir.AssertStmt) -> None:
    known = tir.const_int(stmt.condition)
    if known:
        return
    code = e.ctx.error_code(stmt.kind, "".join(stmt.message))
    if known == 0:
        e.leave(integer("i32", code))
        return
    e.fail_unless(e.expr(stmt.condition), code)


def if_then_else(e: Emitter, stmt: tir.IfThenElse) -> None:
    fn = e.fn
    known = tir.const_int(stmt.condition)
    if known is not None:
        e.body(stmt.then_body if known else stmt.else_body or ())
        return
    if stmt.condition.dtype.lanes > 1:
        masks.branch(e, stmt)
        return
    then, done = fn.label("then"), fn.label("end")
    otherwise = fn.label("else") if stmt.else_body else done
    fn.cond_br(e.expr(stmt.condition), then, otherwise)
    fn.start(then)
    e.body(stmt.then_body)
    fn.br(done)
    if stmt.else_body:
        fn.start(otherwise)
        e.body(stmt.else_body)
    fn.start(done)


def while_loop(e: Emitter, stmt: tir.While) -> None:
    fn = e.fn
    head, body, done = fn.label("while"), fn.label("body"), fn.label("end")
    fn.start(head)
    fn.cond_br(e.expr(stmt.condition), body, done)
    fn.start(body)
    e.loops.append((head, done))
    e.body(stmt.body)
    e.loops.pop()
    fn.br(head)
    fn.start(done)


def for_loop(e: Emitter, stmt: tir.For) -> None:
    """Emit a serial or parallel loop. The counter of trips starts at 0, so that it cannot overflow."""
    fn = e.fn
    dtype = stmt.var.dtype
    if not dtype.is_int or dtype.lanes > 1:
        raise unsupported(f"a loop over {dtype} is not supported", stmt.span)
    type = register_type(dtype)
    trips = _trips(e, stmt)
    if stmt.kind is ForKind.PARALLEL:
        parallel.parallel_loop(e, stmt, trips)
        return
    start = e.expr(stmt.min)
    if trips == integer(type, 1) and not holds(stmt, tir.Break, tir.Continue):
        _bind_loop_var(e, stmt, integer(type, 0), start)
        e.body(stmt.body)
        return
    head, body, latch, done = fn.label("for"), fn.label("body"), fn.label("next"), fn.label("end")
    before = fn.block
    fn.br(head)
    fn.start(head)
    step_back = fn.label("k")
    count = fn.phi(type, [(integer(type, 0), before), (Value(type, f"%{step_back}"), latch)])
    fn.cond_br(fn.icmp("ult" if dtype.is_uint else "slt", count, trips), body, done)
    fn.start(body)
    begun = fn.begin_loop()
    _bind_loop_var(e, stmt, count, start)
    e.loops.append((latch, done))
    e.around.append(stmt)
    e.body(stmt.body)
    e.around.pop()
    e.loops.pop()
    fn.end_loop(begun)
    fn.start(latch)
    fn.line(f"%{step_back} = add {'nuw' if dtype.is_uint else 'nuw nsw'} {count}, 1")
    fn.br(head, loop=e.loop_hint(stmt))
    fn.start(done)


def _bind_loop_var(e: Emitter, stmt: tir.For, count: Value, start: Value) -> None:
    """Bind the loop variable to min + count * step, and its 64-bit form, which cannot wrap, for addresses."""
    fn, var = e.fn, stmt.var
    step = 1 if stmt.step is None else tir.const_int(stmt.step)
    if tir.const_int(stmt.min) == 0 and step == 1:
        e.bind(var, count)
        return
    value = count if step == 1 else fn.binary("mul", count, e.expr(stmt.step))  # type: ignore[arg-type]
    e.bind(var, fn.binary("add", start, value))
    if var.dtype.kind == "int" and var.dtype.bits == 32:
        wide = fn.convert("zext", count, "i64")
        if step != 1:
            wide = fn.binary("mul nsw", wide, e.index(stmt.step))  # type: ignore[arg-type]
        e.wide[var] = fn.binary("add nsw", e.index(stmt.min), wide)


def _trips(e: Emitter, stmt: tir.For) -> Value:
    """Return the trip count of a loop: the extent over the step, rounded up; 0 for a step of 0."""
    fn = e.fn
    extent = e.expr(stmt.extent)
    step = 1 if stmt.step is None else tir.const_int(stmt.step)
    if step == 1:
        return extent
    # in 64 bits and with the divisor guarded, so that nothing overflows or faults
    zero, one = integer("i64", 0), integer("i64", 1)
    wide, step_value = e.index(stmt.extent), e.index(stmt.step)  # type: ignore[arg-type]
    down = fn.icmp("slt", step_value, zero)
    wide = fn.select(down, fn.binary("sub", zero, wide), wide)
    step_value = fn.select(down, fn.binary("sub", zero, step_value), step_value)
    is_nonempty = fn.binary("and", fn.icmp("sgt", wide, zero), fn.icmp("ne", step_value, zero))
    divisor = fn.select(is_nonempty, step_value, one)
    trips = fn.binary("add", fn.binary("sdiv", fn.binary("sub", wide, one), divisor), one)
    return fn.convert("trunc", fn.select(is_nonempty, trips, zero), extent.type)


def jump(e: Emitter, stmt: tir.Break | tir.Continue) -> None:
    if not e.loops:
        raise unsupported("`break` or `continue` is outside a loop", stmt.span)
    latch, done = e.loops[-1]
    e.fn.br(latch if isinstance(stmt, tir.Continue) else done)


def attr(e: Emitter, stmt: tir.AttrStmt) -> None:
    """Emit the body of an attribute; all attributes with a meaning have been lowered before."""
    e.body(stmt.body)


def alloc_buffer(e: Emitter, stmt: tir.AllocBuffer) -> None:
    """Allocate a buffer as planned: on the stack, in the workspace, or on the heap."""
    e.bind(stmt.buffer.data, e.allocate(stmt.buffer))
    e.distinct.add(stmt.buffer.data)
    if e.storage is not None and e.storage.on_stack(stmt.buffer):
        e.private.add(stmt.buffer.data)


def decl_buffer(e: Emitter, stmt: tir.DeclBuffer) -> None:
    if stmt.data is not stmt.buffer.data:
        e.bind(stmt.buffer.data, e.expr(stmt.data))
