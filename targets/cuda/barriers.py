"""Barriers in shared memory (PTX ISA, "mbarrier") and their fences.

A call takes the address of a barrier. `ptx_wait_barrier` waits until the phase of a parity is complete (by default 0,
that of the first phase, as in TVM).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.intrinsics import name_of
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]
FIRST_ARCH = 90
ISA = (8, 0)
MAX_COUNT = (1 << 20) - 1  # of arrivals and of bytes of a phase


def run_asm(e: DeviceEmitter, text: str, *operands: Value) -> None:
    """Emit inline assembly with side effects on memory; `$0`, `$1`, ... are the operands."""
    letters = {"i32": "r", "i64": "l"}
    constraints = ",".join([*(letters[v.type] for v in operands), "~{memory}"])
    arguments = ", ".join(map(str, operands))
    e.fn.line(f'call void asm sideeffect "{text}", "{constraints}"({arguments}) convergent nounwind')


def shared_address(e: DeviceEmitter, pointer: Value, node: tir.Call) -> Value:
    """Convert a pointer to shared memory to the 32-bit address that instructions take."""
    if not pointer.type.endswith("addrspace(3)"):
        raise unsupported(f"`T.{name_of(node)}` takes memory of scope `shared`", node.span)
    return e.fn.convert("ptrtoint", pointer, "i32")


def require(e: DeviceEmitter, node: tir.Call) -> None:
    """Require the PTX ISA of these instructions. Raises CompileError for an architecture without them."""
    if e.arch.number < FIRST_ARCH:
        help = f"compile for sm_{FIRST_ARCH} or later, or avoid `mlcc.bulk_copy` and calls such as this"
        raise unsupported(
            f"barriers in memory and bulk copies are not supported on {e.arch.name}", node.span, help=help
        )
    e.needs_isa(ISA)


def int32(e: DeviceEmitter, node: tir.Expr) -> Value:
    value = e.expr(node)
    if value.type == "i32":
        return value
    if not node.dtype.is_int or node.dtype.lanes > 1:
        raise unsupported("expected an integer", node.span)
    wider = "zext" if node.dtype.is_uint or node.dtype.is_bool else "sext"
    return e.fn.convert("trunc" if node.dtype.bits > 32 else wider, value, "i32")


def _barrier(e: DeviceEmitter, node: tir.Call) -> Value:
    require(e, node)
    return shared_address(e, e.expr(node.args[0]), node)


def _init(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_init_barrier_thread_count(barrier, arrivals)."""
    known = tir.const_int(node.args[1])
    if known is not None and not 1 <= known <= MAX_COUNT:
        raise unsupported(f"a barrier cannot count {known} arrivals", node.span, help=f"it counts 1 to {MAX_COUNT}")
    run_asm(e, "mbarrier.init.shared::cta.b64 [$0], $1;", _barrier(e, node), int32(e, node.args[1]))
    return zero(node.dtype)


def _arrive(e: DeviceEmitter, node: tir.Call) -> Value:
    run_asm(e, "mbarrier.arrive.shared::cta.b64 _, [$0];", _barrier(e, node))
    return zero(node.dtype)


def _expect(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_arrive_barrier_expect_tx(barrier, bytes): arrive, and add bytes to those that the phase expects."""
    known = tir.const_int(node.args[1])
    if known is not None and not 0 <= known <= MAX_COUNT:
        help = f"a phase waits for {MAX_COUNT} bytes at most: use more barriers"
        raise unsupported(f"a barrier cannot expect {known} bytes", node.span, help=help)
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    run_asm(e, text, _barrier(e, node), int32(e, node.args[1]))
    return zero(node.dtype)


def _wait(e: DeviceEmitter, node: tir.Call) -> Value:
    parity = int32(e, node.args[1]) if len(node.args) > 1 else integer("i32", 0)
    text = (
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        "@done bra over; bra again; over: }"
    )
    run_asm(e, text, _barrier(e, node), parity)
    return zero(node.dtype)


def _copies_arrive(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_barrier(barrier): arrive when the thread's earlier `ptx_cp_async` have completed."""
    run_asm(e, "cp.async.mbarrier.arrive.shared::cta.b64 [$0];", _barrier(e, node))
    return zero(node.dtype)


def _instruction(text: str) -> Emit:
    def emit(e: DeviceEmitter, node: tir.Call) -> Value:
        require(e, node)
        run_asm(e, text)
        return zero(node.dtype)

    return emit


TABLE: dict[str, Emit] = {
    "ptx_init_barrier_thread_count": _init, "ptx_arrive_barrier": _arrive, "ptx_arrive_barrier_expect_tx": _expect,
    "ptx_wait_barrier": _wait, "ptx_cp_async_barrier": _copies_arrive,
    "ptx_fence_barrier_init": _instruction("fence.mbarrier_init.release.cluster;"),
    "ptx_fence_proxy_async": _instruction("fence.proxy.async.shared::cta;"),
}  # fmt: skip
