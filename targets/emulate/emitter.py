"""What a thread of a kernel does that code for a CPU has no intrinsic for, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mlcc.ir import tir
from mlcc.targets.llvm import calls, casts, memory
from mlcc.targets.llvm.emitter import Emitter
from mlcc.targets.llvm.ir_text import Value, integer
from mlcc.targets.llvm.refuse import unsupported
from mlcc.targets.llvm.types import is_small_float, memory_type, zero

Emit = Callable[[Any, tir.Call], Value]


def _atomic_add(e: Emitter, node: tir.Call) -> Value:
    """The value before; threads of other blocks may run at the same time."""
    place, value = node.args[0], node.args[1]
    dtype = value.dtype
    if dtype.lanes > 1 or is_small_float(dtype):
        raise unsupported(f"`T.atomic_add` of {dtype}", node.span)
    pointer = memory.address(e, place.buffer, place.indices[0]) if isinstance(place, tir.BufferLoad) else e.expr(place)
    op = "fadd" if dtype.is_float else "add"
    old = e.fn.op(memory_type(dtype), f"atomicrmw {op} ptr {pointer.ref}, {e.expr(value)} monotonic")
    return casts.from_memory(e, old, dtype)


def _cp_async(e: Emitter, node: tir.Call) -> Value:
    """(shared pointer, offset, global pointer, offset, bytes[, predicate]): the copy, done at once."""
    size = tir.const_int(node.args[4])
    if len(node.args) not in (5, 6) or size is None:
        raise unsupported("`T.ptx_cp_async` takes two pointers with offsets and a constant number of bytes", node.span)
    fn, element = e.fn, node.dtype.element
    scalar = "i8" if element.is_void else memory_type(element)
    to = fn.gep(scalar, e.expr(node.args[0]), e.index(node.args[1]))
    given = fn.gep(scalar, e.expr(node.args[2]), e.index(node.args[3]))
    done = ""
    if len(node.args) == 6:
        copy, zeros, done = fn.label("copy"), fn.label("zeros"), fn.label("end")
        fn.cond_br(e.expr(node.args[5]), copy, zeros)
        fn.start(zeros)
        fill = e.ctx.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        fn.call("void", fill, [to, integer("i8", 0), integer("i64", size), Value("i1", "false")])
        fn.br(done)
        fn.start(copy)
    move = e.ctx.module.declare("llvm.memmove.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    fn.call("void", move, [to, given, integer("i64", size), Value("i1", "false")])
    if done:
        fn.br(done)
        fn.start(done)
    return zero(node.dtype)


def _at_once(e: Emitter, node: tir.Call) -> Value:
    """What waits for something that has happened already."""
    return zero(node.dtype)


INTRINSICS: dict[str, Emit] = {
    "atomic_add": _atomic_add, "ptx_cp_async": _cp_async, "ptx_commit_group": _at_once, "ptx_wait_group": _at_once,
}  # fmt: skip


class ThreadEmitter(Emitter):
    """The emitter of the llvm target, with the intrinsics of a GPU's threads."""

    TARGET: ClassVar[str] = "emulated"
    CALLS: ClassVar[Mapping[str, Callable[[Any, tir.Call], Value]]] = {**calls.TABLE, **INTRINSICS}
