"""Barriers in shared memory (`ptx_wait_barrier` and the like), with the semantics of the PTX ISA's mbarrier.

A barrier is a 64-bit word in shared memory (`barriers.ll`). Arrivals and waits are collective calls: all earlier code
has run when a wait is executed, so a phase that is incomplete then can only be completed by threads in a later branch.
Checks report such a wait, and record the happens-before order that waits establish (`order.ll`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.tir import Expr, Stmt
from mlcc.targets.emulate.collectives import GROUPS, Gathered, name_of
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.types import zero

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

# T.barrier(operation, address, amount, thread): an operation of one thread, one of the constants below
BARRIER = "emulate.barrier"
INIT, ARRIVE, COMPLETE_TX, WAIT = range(4)  # amount: expected arrivals; expected bytes; arrived bytes; parity
_VOID = DType.of("void")
_OPERATIONS = {
    "tir.ptx_arrive_barrier": ARRIVE,
    "tir.ptx_arrive_barrier_expect_tx": ARRIVE,
    "tir.ptx_wait_barrier": WAIT,
}
_BARRIER_CALLS = ("tir.ptx_init_barrier_thread_count", "tir.ptx_cp_async_barrier", *_OPERATIONS)


def barrier_of(call: tir.Call) -> Expr | None:
    """Return the address of the barrier that a call operates on; None for other calls."""
    if call.op == tir.Op(BARRIER):
        return call.args[1]
    return call.args[0] if name_of(call) in _BARRIER_CALLS and call.args else None


def barrier_operation(
    operation: int, address: Expr, amount: Expr, thread: Expr, *check_arguments: Expr, span: object = None
) -> Stmt:
    """Return a statement for one thread's operation on a barrier."""
    args = (c.const(operation), address, c.cast(INT64, amount), thread, *check_arguments)
    return tir.Evaluate(tir.Call(_VOID, tir.Op(BARRIER), args, span=span))  # type: ignore[arg-type]


def single_thread_operation(node: tir.Call, thread: Expr) -> list[Stmt] | None:
    """Lower a call of a single thread: initialisation, arrival of a finished copy. None for other calls."""
    match name_of(node):
        case "tir.ptx_init_barrier_thread_count":
            return [barrier_operation(INIT, node.args[0], node.args[1], thread, span=node.span)]
        case "tir.ptx_cp_async_barrier":  # expects one more arrival, and arrives
            return [barrier_operation(COMPLETE_TX, node.args[0], c.const(0), thread, span=node.span)]
    return None


def _operation_of_thread(g: Gathered, thread: Expr) -> list[Stmt]:
    operation = _OPERATIONS[name_of(g.call)]
    amount = g.arg(1, thread) if len(g.slots) > 1 else c.const(0)
    if not amount.dtype.is_int:
        raise CompileError(error("E0749", f"`T.{name_of(g.call)[4:]}` takes an integer", g.call.span))
    return [
        barrier_operation(operation, g.arg(0, thread), amount, thread, *g.check_arguments(thread), span=g.call.span)
    ]


GROUPS.update(dict.fromkeys(_OPERATIONS, (1, _operation_of_thread)))


def emit(e: Emitter, node: tir.Call) -> Value:
    """Emit an operation on a barrier, without checks."""
    emit_operation(e, tir.const_int(node.args[0]) or 0, e.expr(node.args[1]), e.index(node.args[2]))
    return zero(node.dtype)


def emit_operation(e: Emitter, operation: int, word: Value, amount: Value) -> Value:
    """Emit an operation on a barrier; return the status of `mlcc_barrier_change`, for a wait 1 if the phase is over."""
    e.ctx.module.helper("mlcc_barriers", ir_functions("barriers.ll"))
    fn, zero64 = e.fn, integer("i64", 0)
    if operation == INIT:
        fn.call("void", "@mlcc_barrier_init", [word, amount])
        return integer("i32", 0)
    if operation == WAIT:
        return fn.convert("zext", fn.call("i1", "@mlcc_barrier_ready", [word, amount]), "i32")
    if operation == COMPLETE_TX:
        return fn.call("i32", "@mlcc_barrier_change", [word, zero64, fn.binary("sub", zero64, amount)])
    return fn.call("i32", "@mlcc_barrier_change", [word, integer("i64", 1), amount])


@cache
def ir_functions(name: str) -> str:
    """Return the LLVM IR of a file in this folder, without comments."""
    from mlcc.targets.emulate import checks

    lines = (line.partition(";")[0].rstrip() for line in (files(__package__) / name).read_text().splitlines())
    values = {
        "attributes": "nounwind", "slow": "noinline nounwind", "cold": "noinline cold nounwind",
        **{word.lower(): str(getattr(checks, word)) for word in (*checks.WORDS, *checks.FACTORS)},
    }  # fmt: skip
    return Template("\n".join(line for line in lines if line)).substitute(values)
