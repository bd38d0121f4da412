"""LLVM IR for intrinsics of GPU threads that CPUs lack: atomics, shared addresses, barriers in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mlcc.ir import tir
from mlcc.targets.emulate import barriers
from mlcc.targets.llvm.codegen import calls, casts, index_checks, memory
from mlcc.targets.llvm.codegen import gpu_index_checks as noting
from mlcc.targets.llvm.codegen.device_externs import extern
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import is_small_float, memory_type, zero

Emit = Callable[[Any, tir.Call], Value]


def _atomic_add(e: Emitter, node: tir.Call) -> Value:
    """Emit an atomic addition; return the old value. Threads of other blocks may run at the same time."""
    target, value = node.args[0], node.args[1]
    dtype = value.dtype
    if dtype.lanes > 1 or is_small_float(dtype):
        raise unsupported(f"`T.atomic_add` of {dtype} is not supported", node.span)
    pointer = (
        memory.address(e, target.buffer, target.indices[0]) if isinstance(target, tir.BufferLoad) else e.expr(target)
    )
    op = "fadd" if dtype.is_float else "add"
    old = e.fn.op(memory_type(dtype), f"atomicrmw {op} ptr {pointer.ref}, {e.expr(value)} monotonic")
    return casts.from_memory(e, old, dtype)


def _no_wait(e: Emitter, node: tir.Call) -> Value:
    """Emit nothing for a wait: emulated copies complete immediately."""
    return zero(node.dtype)


NOTED_INDEX = "mlcc_noted_index"  # (index, extent, negative counts from the end, number of the check, error record)


def _noted_index(e: Emitter, node: tir.Call) -> Value:
    """Emit a checked index whose failure is noted in the kernel's error record, as on a GPU."""
    index, extent, from_end, number, record = node.args

    def check(index: Value, place: Value, inside: Value, extent: Value) -> Value:
        return noting.check_index(e, e.expr(record), index, place, inside, extent, tir.const_int(number) or 0)

    return index_checks.resolve_index(e, index, extent, bool(tir.const_int(from_end)), node.dtype.lanes, check)


def _shared_address(e: Emitter, node: tir.Call) -> Value:
    """Emit the low bits of an address, which has the same alignment as on a GPU."""
    return e.fn.convert("ptrtoint", e.expr(node.args[0]), "i32")


def _extern(e: Emitter, node: tir.Call) -> Value:
    """Emit `__expf` as exp, `__exp2f` as exp2, and other functions as for a device."""
    match node.args:
        case (tir.StringImm(value="__expf" | "__exp2f" as name), x):
            same = name.strip("_").removesuffix("f")
            return e.CALLS[same](e, tir.Call(node.dtype, tir.Op(f"tir.{same}"), (x,), span=node.span))
    return extern(e, node)


INTRINSICS: dict[str, Emit] = {
    "atomic_add": _atomic_add, NOTED_INDEX: _noted_index, barriers.BARRIER: barriers.emit,
    "ptx_shared_address": _shared_address,
    **dict.fromkeys(("call_extern", "call_pure_extern"), _extern),
    **dict.fromkeys(
        (
            "ptx_commit_group", "ptx_wait_group", "ptx_fence_barrier_init", "ptx_fence_proxy_async",
            "ptx_cp_async_bulk_commit_group", "ptx_cp_async_bulk_wait_group",
        ),
        _no_wait,
    ),
}  # fmt: skip


class ThreadEmitter(Emitter):
    """The emitter of the llvm target, extended by intrinsics of GPU threads."""

    TARGET: ClassVar[str] = "emulated"
    CALLS: ClassVar[Mapping[str, Callable[[Any, tir.Call], Value]]] = {**calls.TABLE, **INTRINSICS}
