"""Collective calls (barriers, shuffles, matrix instructions), defined by loop code over the participating threads.

A kernel is split at these calls (`split`): every thread's arguments are stored in arrays, and then the definition runs
for each thread (`EXCHANGES`, which return a value per thread) or once per group of threads (`GROUPS`). `BARRIERS` only
split the kernel.

To add an intrinsic, add a function to one of the tables. It takes a `Gathered` and returns an expression or statements;
`gathered.buffer(...)` is the memory at a pointer argument.
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

    `slots` holds, for each argument, an array indexed by the thread's number, or None for a uniform argument, which is
    in `call.args`. `mask` is the array of active threads (None: all); a group stores the threads' results in `result`.
    """

    call: tir.Call
    threads: Threads
    slots: tuple[tir.Buffer | None, ...]
    mask: tir.Buffer | None
    result: tir.Buffer | None = None
    check_arguments: Callable[[Expr], tuple[Expr, ...]] = (
        lambda thread: ()
    )  # additional arguments of a thread, for checks

    def arg(self, index: int, thread: Expr) -> Expr:
        """Return an argument of a thread."""
        slot = self.slots[index]
        return self.call.args[index] if slot is None else c.load(slot, thread)

    def buffer(self, index: int, thread: Expr, dtype: DType, size: int) -> tuple[Stmt, tir.Buffer]:
        """Return the declaration of the memory at a thread's pointer argument, and its buffer."""
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


def _value_of_lane(g: Gathered, source: Expr, inside: Expr) -> Expr:
    """Return the value of thread `source` if it is `inside` and active, else the thread's own value."""
    default = g.arg(1, g.threads.number)
    available = c.logical_and(inside, g.is_active(source))
    return tir.Call(default.dtype, tir.Op("tir.if_then_else"), (available, g.arg(1, source), default))


def _segment(g: Gathered) -> tuple[Expr, Expr, Expr]:
    """Return the thread's number, its lane within a segment of the warp, and the segment width."""
    width = c.cast(INT32, g.call.args[3])
    return g.threads.number, c.floormod(g.threads.lane, width), width


def _shuffle(g: Gathered) -> Expr:
    number, lane, width = _segment(g)
    target_lane = c.cast(INT32, g.call.args[2])
    return _value_of_lane(g, c.add(c.sub(number, lane), c.floormod(target_lane, width)), c.const(True))


def _shuffle_up(g: Gathered) -> Expr:
    number, lane, _ = _segment(g)
    delta = c.cast(INT32, g.call.args[2])
    return _value_of_lane(g, c.sub(number, delta), c.greater_equal(lane, delta))


def _shuffle_down(g: Gathered) -> Expr:
    number, lane, width = _segment(g)
    delta = c.cast(INT32, g.call.args[2])
    return _value_of_lane(g, c.add(number, delta), c.less(c.add(lane, delta), width))


def _shuffle_xor(g: Gathered) -> Expr:
    """Lanes of later segments are out of range, those of earlier ones are not."""
    number, segment_lane, width = _segment(g)
    lane = g.threads.lane
    lane_mask = c.cast(INT32, g.call.args[2])
    target_lane = tir.Call(INT32, tir.Op("tir.bitwise_xor"), (lane, lane_mask))
    return _value_of_lane(
        g, c.add(c.sub(number, lane), target_lane), c.less(target_lane, c.add(c.sub(lane, segment_lane), width))
    )


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
