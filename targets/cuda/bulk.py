"""Bulk copies: one thread has the copy engine move many bytes (PTX ISA, "cp.async.bulk").

Loads from global to shared memory complete bytes at a barrier; stores to global memory are committed in groups that the
thread waits for. Tensor copies take a tensor map, which is a kernel parameter, and the coordinates of a box, innermost
dimension first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.intrinsics import name_of
from mlcc.passes.gpu.tensor_map import MAX_DIMS
from mlcc.targets.cuda.barriers import int32, require, run_asm, shared_address
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]
COPIES = ("tir.ptx_cp_async_bulk", "tir.ptx_cp_async_bulk_tensor", "tir.ptx_cp_async_bulk_tensor_store")


def _element_address(e: DeviceEmitter, node: tir.Call, at: int) -> Value:
    """Return the address of the element at a pointer argument and the offset after it."""
    return e.fn.gep(memory_type(node.dtype.element), e.expr(node.args[at]), e.index(node.args[at + 1]))


def _bulk(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk(shared pointer, offset, global pointer, offset, bytes, barrier)."""
    require(e, node)
    if len(node.args) != 6:
        raise unsupported("`T.ptx_cp_async_bulk` takes 6 arguments", node.span)
    size = tir.const_int(node.args[4])
    if size is not None and (size % 16 or size < 16):
        raise unsupported(f"a bulk copy cannot have {size} bytes", node.span, help="sizes are multiples of 16")
    target = shared_address(e, _element_address(e, node, 0), node)
    source = _element_address(e, node, 2)
    if not source.type.endswith("addrspace(1)"):
        raise unsupported("`T.ptx_cp_async_bulk` copies from global to shared memory", node.span)
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    barrier = shared_address(e, e.expr(node.args[5]), node)
    run_asm(e, text, target, e.fn.convert("ptrtoint", source, "i64"), int32(e, node.args[4]), barrier)
    return zero(node.dtype)


def _map_address(e: DeviceEmitter, node: tir.Expr, call: tir.Call) -> Value:
    if not isinstance(node, tir.Var):
        raise unsupported(f"`T.{name_of(call)}` takes a tensor map", call.span)
    return e.fn.convert("ptrtoint", e.expr(node), "i64")


def _coordinates(e: DeviceEmitter, node: tir.Call, first: int) -> tuple[list[Value], str]:
    """Return the coordinates, and their operand list (`{$2, $3, ...}`)."""
    coordinates = [int32(e, a) for a in node.args[first:]]
    if not 1 <= len(coordinates) <= MAX_DIMS:
        raise unsupported(
            f"a copy of a tensor of {len(coordinates)} dimensions", node.span, help=f"use 1 to {MAX_DIMS} dimensions"
        )
    return coordinates, "{" + ", ".join(f"${n}" for n in range(2, 2 + len(coordinates))) + "}"


def _load(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_tensor(shared pointer, offset, map, barrier, pointer of the tensor, coordinates...)."""
    require(e, node)
    target, source = shared_address(e, _element_address(e, node, 0), node), _map_address(e, node.args[2], node)
    barrier = shared_address(e, e.expr(node.args[3]), node)
    coordinates, listed = _coordinates(e, node, 5)
    text = (
        f"cp.async.bulk.tensor.{len(coordinates)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {listed}], [${2 + len(coordinates)}];"
    )
    run_asm(e, text, target, source, *coordinates, barrier)
    return zero(node.dtype)


def _store(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_tensor_store(shared pointer, offset, map, pointer of the tensor, coordinates...)."""
    require(e, node)
    source, map_address = shared_address(e, _element_address(e, node, 0), node), _map_address(e, node.args[2], node)
    coordinates, listed = _coordinates(e, node, 4)
    text = f"cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.tile.bulk_group [$1, {listed}], [$0];"
    run_asm(e, text, source, map_address, *coordinates)
    return zero(node.dtype)


def _commit(e: DeviceEmitter, node: tir.Call) -> Value:
    require(e, node)
    run_asm(e, "cp.async.bulk.commit_group;")
    return zero(node.dtype)


def _wait(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async_bulk_wait_group(n[, read]): wait until at most n of the thread's groups are in flight.

    With `read`, only wait until their shared memory may be overwritten.
    """
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
