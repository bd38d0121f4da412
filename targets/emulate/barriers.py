"""Barriers in shared memory (`ptx_wait_barrier` and the like), with the semantics of the PTX ISA's mbarrier.

A barrier is its 64 bits in shared memory (`barriers.ll`). Arrivals and waits are places where threads meet: everything
before in the text has happened when a wait is looked at, so a phase that is not complete then never will be, unless by
threads in a branch that comes later. With checks that is reported, and what a wait orders is kept (`order.ll`).
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

# T.barrier(what, address, amount, thread): an operation of one thread; see the constants below
BARRIER = "emulate.barrier"
INIT, ARRIVE, LANDED, WAIT = range(4)  # amount: arrivals to count; bytes to expect; bytes that came; parity
_VOID = DType.of("void")
_WHAT = {"tir.ptx_arrive_barrier": ARRIVE, "tir.ptx_arrive_barrier_expect_tx": ARRIVE, "tir.ptx_wait_barrier": WAIT}
_ALL = ("tir.ptx_init_barrier_thread_count", "tir.ptx_cp_async_barrier", *_WHAT)


def barrier_of(call: tir.Call) -> Expr | None:
    """Return the address of the barrier that a call names."""
    if call.op == tir.Op(BARRIER):
        return call.args[1]
    return call.args[0] if name_of(call) in _ALL and call.args else None


def act(what: int, address: Expr, amount: Expr, thread: Expr, *more: Expr, span: object = None) -> Stmt:
    """Return the statement of one thread for an operation on a barrier."""
    args = (c.const(what), address, c.cast(INT64, amount), thread, *more)
    return tir.Evaluate(tir.Call(_VOID, tir.Op(BARRIER), args, span=span))  # type: ignore[arg-type]


def by_one_thread(node: tir.Call, thread: Expr) -> list[Stmt] | None:
    """Lower a call that one thread makes alone: initialisation, arrival of a finished copy. None for other calls."""
    match name_of(node):
        case "tir.ptx_init_barrier_thread_count":
            return [act(INIT, node.args[0], node.args[1], thread, span=node.span)]
        case "tir.ptx_cp_async_barrier":  # adds an arrival to the count, and makes it
            return [act(LANDED, node.args[0], c.const(0), thread, span=node.span)]
    return None


def _group(g: Gathered, thread: Expr) -> list[Stmt]:
    what = _WHAT[name_of(g.call)]
    amount = g.arg(1, thread) if len(g.slots) > 1 else c.const(0)
    if not amount.dtype.is_int:
        raise CompileError(error("E0749", f"`T.{name_of(g.call)[4:]}` takes an integer", g.call.span))
    return [act(what, g.arg(0, thread), amount, thread, *g.told(thread), span=g.call.span)]


GROUPS.update(dict.fromkeys(_WHAT, (1, _group)))


def emit(e: Emitter, node: tir.Call) -> Value:
    """Emit an operation on a barrier, without checks."""
    change(e, tir.const_int(node.args[0]) or 0, e.expr(node.args[1]), e.index(node.args[2]))
    return zero(node.dtype)


def change(e: Emitter, what: int, word: Value, amount: Value) -> Value:
    """Emit an operation on a barrier. Return `mlcc_barrier_change`'s value; for a wait, 1 if the phase is over."""
    e.ctx.module.helper("mlcc_barriers", functions("barriers.ll"))
    fn, nothing = e.fn, integer("i64", 0)
    if what == INIT:
        fn.call("void", "@mlcc_barrier_init", [word, amount])
        return integer("i32", 0)
    if what == WAIT:
        return fn.convert("zext", fn.call("i1", "@mlcc_barrier_ready", [word, amount]), "i32")
    if what == LANDED:
        return fn.call("i32", "@mlcc_barrier_change", [word, nothing, fn.binary("sub", nothing, amount)])
    return fn.call("i32", "@mlcc_barrier_change", [word, integer("i64", 1), amount])


@cache
def functions(name: str) -> str:
    """The functions of a file beside this one, as LLVM IR without comments."""
    from mlcc.targets.emulate import checks

    lines = (line.partition(";")[0].rstrip() for line in (files(__package__) / name).read_text().splitlines())
    values = {
        "attributes": "nounwind", "slow": "noinline nounwind", "cold": "noinline cold nounwind",
        **{word.lower(): str(getattr(checks, word)) for word in checks.WORDS},
    }  # fmt: skip
    return Template("\n".join(line for line in lines if line)).substitute(values)
