"""Lower copy intrinsics of a thread to loads and stores, which checks then see."""

from __future__ import annotations

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, Stmt

_ROW = 8  # elements of 16 bits in a row of a matrix


def asynchronous_copy(node: tir.Call) -> list[Stmt]:
    """ptx_cp_async(shared pointer, offset, global pointer, offset, bytes[, predicate]): done at once, zeros where the
    predicate is false."""
    size = tir.const_int(node.args[4]) if len(node.args) in (5, 6) else None
    dtype = node.dtype.element if node.dtype.element.bits >= 8 else DType.of("int8")
    if size is None or size % dtype.bytes:
        message = "`T.ptx_cp_async` takes two pointers with offsets and a constant number of bytes"
        raise CompileError(error("E0749", message, node.span))
    lanes = size // dtype.bytes
    to, given = (_view(name, node.args[at], dtype, lanes) for name, at in (("to", 0), ("given", 2)))
    value: Expr = c.load(given.buffer, _run(node.args[3], lanes))
    if len(node.args) == 6:
        zeros = c.cast(value.dtype, c.const(0, dtype))
        value = tir.Call(value.dtype, tir.Op("tir.if_then_else"), (node.args[5], value, zeros), span=node.span)
    store = c.store(to.buffer, value, _run(node.args[1], lanes))
    return [to, given, tir.BufferStore(store.buffer, store.value, store.indices, span=node.span)]


def matrix_rows(node: tir.Call, lane: Expr) -> list[Stmt]:
    """ptx_ldmatrix(transpose, count, type, pointer, offset, shared pointer, offset): a lane loads the row whose address
    it has, and then the lanes exchange what they have of rows."""
    if len(node.args) != 7 or tir.const_int(node.args[1]) not in (1, 2, 4):
        raise CompileError(error("E0749", "`T.ptx_ldmatrix` loads 1, 2 or 4 matrices", node.span))
    count = tir.const_int(node.args[1]) or 0
    word = DType.of("uint16")
    kind = tir.Call(node.dtype.element, tir.Op("tir.type_annotation"), ())
    pointer = c.call("handle", "tvm_access_ptr", kind, node.args[5], node.args[6], 0, 1)
    row, given = c.make_buffer("row", (_ROW,), word, "local"), _view("given", pointer, word, _ROW)
    run = _run(c.const(0), _ROW)
    load: Stmt = tir.BufferStore(
        row, tir.BufferLoad(word.with_lanes(_ROW), given.buffer, (run,), span=node.span), (run,)
    )
    if count < 4:
        load = tir.IfThenElse(c.less(lane, _ROW * count), (load,))
    args = (*node.args[:5], row.data, c.const(0))
    return [tir.AllocBuffer(row), given, load, tir.Evaluate(tir.Call(node.dtype, node.op, args, span=node.span))]


def _view(name: str, pointer: Expr, dtype: DType, lanes: int) -> tir.DeclBuffer:
    return tir.DeclBuffer(c.make_buffer(name, (lanes,), dtype, "local"), pointer)


def _run(start: Expr, lanes: int) -> Expr:
    if lanes == 1:
        return start
    return tir.Ramp(start.dtype.with_lanes(lanes), start, c.const(1, start.dtype), lanes)
