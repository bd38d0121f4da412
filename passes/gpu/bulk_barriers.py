"""Lower bulk copies (`bulk_tiles`) to instructions of the copy engine (TMA) and mbarriers.

This happens after thread barriers are placed. Each bulk copy has one mbarrier in shared memory for each slot that a
pipeline gave it. The first thread of the block announces the number of bytes and issues the copy; all threads wait at
the mbarrier before they use the tile. The phases of an mbarrier alternate: a register holds one bit per slot, the phase
that the thread waits for next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import find, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.bulk_tiles import AXIS, BOX_STRIDE, BOXES, CORNER, KEY, SLOT, SLOTS, TILE, WAIT, is_call
from mlcc.passes.gpu.device import BLOCK, block_barrier
from mlcc.passes.gpu.form_kernels import map_kernels
from mlcc.passes.gpu.mbarriers import barrier_address, barrier_buffer
from mlcc.passes.gpu.tensor_map import TensorMap
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_VOID = DType.of("void")
_WORD = DType.of("uint32")


def lower_bulk_tiles(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code with formed kernels) with its bulk copies lowered to instructions."""
    if not any(is_call(n, TILE) for s in func.body for n in walk(s)):
        return func
    return map_kernels(func, _lower_kernel)


def _lower_kernel(loops: Sequence[tir.For], body: Body) -> Body:
    slots: dict[int, int] = {}
    span = None
    for call in (n for s in body for n in find(s, tir.Call) if n.op == tir.Op(TILE)):
        span = span or call.span
        key, count = _const_value(call.args[KEY]), _const_value(call.args[SLOTS])
        slots[key] = max(count, slots.get(key, 1))
    if not slots:
        return body
    first: Expr = tir.TRUE
    for loop in loops:
        if loop.thread in BLOCK and tir.const_int(loop.extent) != 1:
            first = c.logical_and(first, c.equal(loop.var, 0))
    lower = _BulkCopyLowering(slots, first, span)
    return (*lower.prologue(), *lower.body(body))


def _const_value(node: Expr) -> int:
    known = tir.const_int(node)
    assert known is not None
    return known


@dataclass
class _BulkCopyLowering(TirMutator):
    """Lower the bulk copies of one kernel. `slots` has the number of slots by key of the copy, `first` is true in the
    first thread of the block, and `span` is the source location of one copy.
    """

    slots: dict[int, int]
    first: Expr
    span: object
    _first_barrier: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = 0
        for key, count in self.slots.items():
            self._first_barrier[key] = total
            total += count
        self._barriers = barrier_buffer(total)
        self._phases = {key: c.make_buffer("phases", (1,), _WORD, "local") for key in self.slots}

    def expr(self, node: Expr) -> Expr:
        return node

    def prologue(self) -> list[Stmt]:
        """Return the head of a kernel: one thread initializes and fences the mbarriers, then the block synchronizes."""
        head: list[Stmt] = [tir.AllocBuffer(self._barriers)]
        for buffer in self._phases.values():
            head += [tir.AllocBuffer(buffer), c.store(buffer, c.const(0, _WORD), 0)]
        (count,) = self._barriers.shape
        init, span = "ptx_init_barrier_thread_count", self.span
        inits = [_call(init, self._barrier_address(n), c.const(1), span=span) for n in range(_const_value(count))]
        fences = [_call(name, span=span) for name in ("ptx_fence_barrier_init", "ptx_fence_proxy_async")]
        return [*head, self._on_first_thread([*inits, *fences]), block_barrier()]

    def _on_first_thread(self, body: list[Stmt]) -> Stmt:
        return tir.IfThenElse(self.first, tuple(body)) if tir.const_int(self.first) != 1 else _group(body)

    def _barrier_address(self, number: Expr | int) -> Expr:
        return barrier_address(self._barriers, c.as_expr(number))

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        if is_call(node, TILE):
            assert isinstance(node.value, tir.Call)
            return self._issue_copy(node.value)
        if is_call(node, WAIT):
            assert isinstance(node.value, tir.Call)
            return self._wait_for_copy(node.value)
        return node

    def _issue_copy(self, call: tir.Call) -> list[Stmt]:
        data, offset, stated, *_ = call.args
        assert isinstance(stated, tir.Call)
        box = TensorMap.of(stated).form
        parts, axis, apart = (_const_value(call.args[at]) for at in (BOXES, AXIS, BOX_STRIDE))
        barrier = self._barrier_address(c.add(self._first_barrier[_const_value(call.args[KEY])], call.args[SLOT]))
        stmts = [_call("ptx_arrive_barrier_expect_tx", barrier, c.const(parts * box.box_bytes), span=call.span)]
        for part in range(parts):
            corner = list(call.args[CORNER:])
            corner[axis] = c.add(corner[axis], part * box.box[axis])
            args = (data, c.add(offset, part * apart), stated, barrier, *corner)
            op = tir.Op("tir.ptx_cp_async_bulk_tensor")
            stmts.append(tir.Evaluate(tir.Call(call.dtype, op, args, span=call.span), span=call.span))
        return [self._on_first_thread(stmts)]

    def _wait_for_copy(self, call: tir.Call) -> list[Stmt]:
        key, slot = _const_value(call.args[0]), call.args[1]
        phases, count = self._phases[key], self.slots[key]
        at = c.cast(_WORD, slot)
        bit: Expr = c.const(1, _WORD)
        word: Expr = c.load(phases, 0)
        if count > 1:
            bit, word = _op("shift_left", bit, at), _op("shift_right", word, at)
        parity = c.cast(INT32, _op("bitwise_and", word, c.const(1, _WORD)))
        barrier = self._barrier_address(c.add(self._first_barrier[key], slot))
        wait = _call("ptx_wait_barrier", barrier, parity, span=call.span)
        return [wait, c.store(phases, _op("bitwise_xor", c.load(phases, 0), bit), 0)]


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(a.dtype, tir.Op(f"tir.{name}"), (a, b))


def _call(name: str, *args: Expr, span: object = None) -> Stmt:
    return tir.Evaluate(tir.Call(_VOID, tir.Op(f"tir.{name}"), args, span=span), span=span)  # type: ignore[arg-type]


def _group(body: list[Stmt]) -> Stmt:
    return tir.AttrStmt(tir.StringImm("bulk"), "bulk_copy", 1, tuple(body))


@dataclass(frozen=True)
class LowerBulkCopies(LoweringStep):
    """Lower bulk copies to instructions of the copy engine and to mbarriers that the threads wait at.

    Before:  a tile, and the wait for it
    After:   the first thread: T.ptx_cp_async_bulk_tensor(...); all: T.ptx_wait_barrier(...)
    """

    name: ClassVar[str] = "lower-bulk-copies"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return lower_bulk_tiles(func)
