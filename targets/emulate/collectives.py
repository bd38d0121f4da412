"""Collective calls of one or more warps, defined by loop code over their threads.

A kernel is split at these calls (`split`): every thread's arguments are put into arrays, and then the definition runs,
for each thread (`EXCHANGES`, which give every thread a value) or once for each group of threads (`GROUPS`). Calls that
only wait (`BARRIERS`) are a split and nothing else.

To add an intrinsic, add a function to one of the tables. It gets a `Gathered` and gives an expression, or statements;
the pointers that threads passed are `gathered.buffer(...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, DType
from mlcc.ir.tir import Expr, Stmt
from mlcc.targets.emulate.threads import WARP, Threads


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """A collective call with the arguments of all threads.

    `slots` hold an argument of every thread, by its thread's number; where an argument is the same for all it is
    None there and stands in `call.args`. `mask` says which threads take part (None: all); `result` is what a group
    writes the threads' results to.
    """

    call: tir.Call
    threads: Threads
    slots: tuple[tir.Buffer | None, ...]
    mask: tir.Buffer | None
    result: tir.Buffer | None = None
    told: Callable[[Expr], tuple[Expr, ...]] = lambda thread: ()  # additional arguments of a thread, for checks

    def arg(self, index: int, thread: Expr) -> Expr:
        """An argument as a thread passed it."""
        slot = self.slots[index]
        return self.call.args[index] if slot is None else c.load(slot, thread)

    def buffer(self, index: int, thread: Expr, dtype: DType, size: int) -> tuple[Stmt, tir.Buffer]:
        """Memory at the pointer that a thread passed, and the statement that has to come before its use."""
        memory = c.make_buffer(f"arg{index}", (size,), dtype, "local")
        return tir.DeclBuffer(memory, self.arg(index, thread)), memory

    def is_active(self, thread: Expr) -> Expr:
        """Return the condition that a thread exists and is active."""
        known = tir.const_int(self.threads.count)
        inside: Expr = c.const(True) if known is not None and known % WARP == 0 else c.less(thread, self.threads.count)
        return inside if self.mask is None else c.logical_and(inside, c.load(self.mask, thread))


Exchange = Callable[[Gathered], Expr]
Group = Callable[[Gathered, Expr], list[Stmt]]

# ---------------------------------------------------------------- shuffles


def _picked(g: Gathered, source: Expr, inside: Expr) -> Expr:
    """Return the value of thread `source` if it is `inside` and active, else the thread's own value."""
    own = g.arg(1, g.threads.number)
    allowed = c.logical_and(inside, g.is_active(source))
    return tir.Call(own.dtype, tir.Op("tir.if_then_else"), (allowed, g.arg(1, source), own))


def _place(g: Gathered) -> tuple[Expr, Expr, Expr]:
    """Return the thread's number, its lane within a segment of the warp, and the segment width."""
    width = c.cast(INT32, g.call.args[3])
    return g.threads.number, c.floormod(g.threads.lane, width), width


def _shuffle(g: Gathered) -> Expr:
    number, at, width = _place(g)
    wanted = c.cast(INT32, g.call.args[2])
    return _picked(g, c.add(c.sub(number, at), c.floormod(wanted, width)), c.const(True))


def _shuffle_up(g: Gathered) -> Expr:
    number, at, _ = _place(g)
    by = c.cast(INT32, g.call.args[2])
    return _picked(g, c.sub(number, by), c.greater_equal(at, by))


def _shuffle_down(g: Gathered) -> Expr:
    number, at, width = _place(g)
    by = c.cast(INT32, g.call.args[2])
    return _picked(g, c.add(number, by), c.less(c.add(at, by), width))


def _shuffle_xor(g: Gathered) -> Expr:
    """Lanes of later segments are out of range, those of earlier ones are not."""
    number, at, width = _place(g)
    lane = g.threads.lane
    by = c.cast(INT32, g.call.args[2])
    other = tir.Call(INT32, tir.Op("tir.bitwise_xor"), (lane, by))
    return _picked(g, c.add(c.sub(number, lane), other), c.less(other, c.add(c.sub(lane, at), width)))


def _active_mask(g: Gathered) -> Expr:
    """Return the mask of the active lanes of the warp."""
    first = c.sub(g.threads.number, g.threads.lane)
    dtype = DType.of("uint32")
    total: Expr = c.const(0, dtype)
    for lane in range(WARP):
        bit = tir.IntImm(dtype, 1 << lane)
        on = g.is_active(c.add(first, lane))
        total = c.add(total, tir.Call(dtype, tir.Op("tir.if_then_else"), (on, bit, c.const(0, dtype))))
    return total


EXCHANGES: dict[str, Exchange] = {
    "tir.tvm_warp_shuffle": _shuffle, "tir.tvm_warp_shuffle_up": _shuffle_up,
    "tir.tvm_warp_shuffle_down": _shuffle_down, "tir.tvm_warp_shuffle_xor": _shuffle_xor,
    "tir.tvm_warp_activemask": _active_mask,
}  # fmt: skip

# group size, and a function that emits the group's statements; its second argument is the group's first thread
GROUPS: dict[str, tuple[int, Group]] = {}

BARRIERS = frozenset({"tir.tvm_storage_sync"})


def name_of(node: object) -> str:
    """Return the name of the intrinsic that a node calls, or an empty text."""
    return node.op.name if isinstance(node, tir.Call) and isinstance(node.op, tir.Op) else ""


def is_collective(node: object) -> bool:
    """Return True if a node is a collective call."""
    name = name_of(node)
    return name in BARRIERS or name in EXCHANGES or name in GROUPS


__all__ = ["BARRIERS", "BOOL", "EXCHANGES", "GROUPS", "Exchange", "Gathered", "Group", "is_collective", "name_of"]
