"""Allocate mbarriers: barriers in shared memory that count arrivals and bytes.

A program names them by number, as TVM does: `T.create_barriers(4)`, `T.ptx_wait_barrier(2, parity)`. They become
elements of an array in shared memory, of 64 bits each, and the calls take the address of one. A call may also name an
element of a uint64 buffer in shared memory itself: `T.ptx_arrive_barrier(T.address_of(bars[k]))`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.form_kernels import map_kernels
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

UINT64 = DType.of("uint64")


def allocate_barriers(func: tir.PrimFunc) -> tir.PrimFunc:
    """Allocate the numbered mbarriers of `func` (flat loop code with formed kernels). Raises CompileError E0776."""
    return map_kernels(func, _allocate)


def barrier_buffer(count: int) -> tir.Buffer:
    """Return a buffer for `count` barriers of a block."""
    return c.make_buffer("barriers", (count,), UINT64, "shared")


def barrier_address(buffer: tir.Buffer, number: Expr) -> Expr:
    """Return the address of a barrier, as calls take it."""
    return c.call("handle", "address_of", c.load(buffer, number))


def _allocate(loops: Sequence[tir.For], body: Body) -> Body:
    calls = [n for s in body for n in walk(s) if _is_call(n, "create_barriers")]
    count = 0
    for call in calls:
        size = tir.const_int(call.args[0])
        if size is None or size < 1:
            raise CompileError(error("E0776", "`T.create_barriers` takes a constant number", call.span))
        count = max(count, size)
    buffer = barrier_buffer(count) if count else None
    lowered = _BarrierAddresses(buffer).body(body)
    return lowered if buffer is None else (tir.AllocBuffer(buffer, span=calls[0].span), *lowered)


class _BarrierAddresses(TirMutator):
    """Replace the numbers of barriers by addresses."""

    def __init__(self, buffer: tir.Buffer | None) -> None:
        self._buffer = buffer

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        call = node.value
        if _is_call(call, "create_barriers"):
            return []
        if not isinstance(call, tir.Call) or not isinstance(call.op, tir.Op):
            return node
        name, at = name_of(call), called(call).barrier
        if at is None or at >= len(call.args) or call.args[at].dtype.is_handle:
            return node
        number = call.args[at]
        if self._buffer is None or not number.dtype.is_int:
            help = "create barriers by `T.create_barriers(count)`, or pass the address of an element of a uint64 buffer"
            raise CompileError(error("E0776", f"`T.{name}` names a barrier that does not exist", call.span, help=help))
        known, (count,) = tir.const_int(number), self._buffer.shape
        if known is not None and not 0 <= known < (tir.const_int(count) or 0):
            text = f"`T.{name}` names barrier {known} of {count}"
            raise CompileError(error("E0776", text, call.span, help="barriers count from 0"))
        args = (*call.args[:at], barrier_address(self._buffer, number), *call.args[at + 1 :])
        return tir.Evaluate(replace(call, args=args), span=node.span)


def _is_call(node: object, name: str) -> bool:
    return isinstance(node, tir.Call) and node.op == tir.Op(f"tir.{name}")


@dataclass(frozen=True)
class AllocateBarriers(LoweringStep):
    """Allocate mbarriers, which count arrivals and bytes, in shared memory.

    Before:  T.create_barriers(4); T.ptx_wait_barrier(2, parity)
    After:   bars = an array in shared memory; the calls take the address of bars[2]
    """

    name: ClassVar[str] = "allocate-barriers"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return allocate_barriers(func)
