"""Bulk copies: the copy engine moves many bytes at the request of one thread (PTX ISA, "cp.async.bulk").

Loads from global to shared memory complete bytes at a barrier; stores to global memory are closed into groups that the
thread waits for. Copies of tensors name a tensor map, a parameter of the kernel, and where a box of it begins: the
coordinate of the innermost dimension first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.intrinsics import name_of
from mlcc.passes.gpu.tensor_map import MOST_DIMS
from mlcc.targets.cuda.barriers import int32, require, run_asm, shared_address
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]
COPIES = ("tir.ptx_cp_async_bulk", "tir.ptx_cp_async_bulk_tensor", "tir.ptx_cp_async_bulk_tensor_store")


def _place(e: DeviceEmitter, node: tir.Call, at: int) -> Value:
    """An element at a pointer and the offset beside it."""
    return e.fn.gep(memory_type(node.dtype.element), e.expr(node.args[at]), e.index(node.args[at + 1]))


def _bulk(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk(shared pointer, offset, global pointer, offset, bytes, barrier)."""
    require(e, node)
    if len(node.args) != 6:
        raise unsupported("`T.ptx_cp_async_bulk` takes 6 arguments", node.span)
    size = tir.const_int(node.args[4])
    if size is not None and (size % 16 or size < 16):
        raise unsupported(f"a bulk copy of {size} bytes", node.span, help="sizes are multiples of 16")
    to = shared_address(e, _place(e, node, 0), node)
    source = _place(e, node, 2)
    if not source.type.endswith("addrspace(1)"):
        raise unsupported("`T.ptx_cp_async_bulk` copies from global to shared memory", node.span)
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    barrier = shared_address(e, e.expr(node.args[5]), node)
    run_asm(e, text, to, e.fn.convert("ptrtoint", source, "i64"), int32(e, node.args[4]), barrier)
    return zero(node.dtype)


def _map(e: DeviceEmitter, node: tir.Expr, call: tir.Call) -> Value:
    if not isinstance(node, tir.Var):
        raise unsupported(f"`T.{name_of(call)}` takes a tensor map", call.span)
    return e.fn.convert("ptrtoint", e.expr(node), "i64")


def _coordinates(e: DeviceEmitter, node: tir.Call, first: int) -> tuple[list[Value], str]:
    """The coordinates, and how an instruction lists them: operands from the third on."""
    given = [int32(e, a) for a in node.args[first:]]
    if not 1 <= len(given) <= MOST_DIMS:
        raise unsupported(f"a copy of a tensor of {len(given)} dimensions", node.span, help=f"1 to {MOST_DIMS} are")
    return given, "{" + ", ".join(f"${n}" for n in range(2, 2 + len(given))) + "}"


def _load(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_tensor(shared pointer, offset, map, barrier, pointer of the tensor, coordinates...)."""
    require(e, node)
    to, source = shared_address(e, _place(e, node, 0), node), _map(e, node.args[2], node)
    barrier = shared_address(e, e.expr(node.args[3]), node)
    given, listed = _coordinates(e, node, 5)
    text = (
        f"cp.async.bulk.tensor.{len(given)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {listed}], [${2 + len(given)}];"
    )
    run_asm(e, text, to, source, *given, barrier)
    return zero(node.dtype)


def _store(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_tensor_store(shared pointer, offset, map, pointer of the tensor, coordinates...)."""
    require(e, node)
    source, to = shared_address(e, _place(e, node, 0), node), _map(e, node.args[2], node)
    given, listed = _coordinates(e, node, 4)
    text = f"cp.async.bulk.tensor.{len(given)}d.global.shared::cta.tile.bulk_group [$1, {listed}], [$0];"
    run_asm(e, text, source, to, *given)
    return zero(node.dtype)


def _commit(e: DeviceEmitter, node: tir.Call) -> Value:
    require(e, node)
    run_asm(e, "cp.async.bulk.commit_group;")
    return zero(node.dtype)


def _wait(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_wait_group(n[, read]): until no more than n of the thread's groups are on their way; with
    `read` until their shared memory may be written again."""
    require(e, node)
    count = tir.const_int(node.args[0])
    if count is None or count < 0:
        raise unsupported("`T.ptx_cp_async_bulk_wait_group` takes a constant", node.span)
    read = ".read" if len(node.args) > 1 and tir.const_int(node.args[1]) else ""
    run_asm(e, f"cp.async.bulk.wait_group{read} {count};")
    return zero(node.dtype)


TABLE: dict[str, Emit] = {
    "ptx_cp_async_bulk": _bulk, "ptx_cp_async_bulk_tensor": _load, "ptx_cp_async_bulk_tensor_store": _store,
    "ptx_cp_async_bulk_commit_group": _commit, "ptx_cp_async_bulk_wait_group": _wait,
}  # fmt: skip
