"""Lower copy intrinsics of a thread to loads and stores, so that checks see their accesses."""

from __future__ import annotations

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, Stmt

_ROW_ELEMENTS = 8  # 16-bit elements in a row of a matrix


def asynchronous_copy(node: tir.Call) -> list[Stmt]:
    """Lower ptx_cp_async(shared pointer, offset, global pointer, offset, bytes[, predicate]).

    The copy completes immediately; it stores zeros if the predicate is false.
    """
    size = tir.const_int(node.args[4]) if len(node.args) in (5, 6) else None
    dtype = node.dtype.element if node.dtype.element.bits >= 8 else DType.of("int8")
    if size is None or size % dtype.bytes:
        message = "`T.ptx_cp_async` takes two pointers with offsets and a constant number of bytes"
        raise CompileError(error("E0749", message, node.span))
    lanes = size // dtype.bytes
    target, source = (_view(name, node.args[at], dtype, lanes) for name, at in (("to", 0), ("given", 2)))
    value: Expr = c.load(source.buffer, _contiguous(node.args[3], lanes))
    if len(node.args) == 6:
        zeros = c.cast(value.dtype, c.const(0, dtype))
        value = tir.Call(value.dtype, tir.Op("tir.if_then_else"), (node.args[5], value, zeros), span=node.span)
    store = c.store(target.buffer, value, _contiguous(node.args[1], lanes))
    return [target, source, tir.BufferStore(store.buffer, store.value, store.indices, span=node.span)]


def load_matrix_row(node: tir.Call, lane: Expr) -> list[Stmt]:
    """Lower ptx_ldmatrix(transpose, count, type, pointer, offset, shared pointer, offset).

    Each lane loads the row at its address into a buffer; the collective call then exchanges the elements.
    """
    if len(node.args) != 7 or tir.const_int(node.args[1]) not in (1, 2, 4):
        raise CompileError(error("E0749", "`T.ptx_ldmatrix` loads 1, 2 or 4 matrices", node.span))
    count = tir.const_int(node.args[1]) or 0
    word = DType.of("uint16")
    kind = tir.Call(node.dtype.element, tir.Op("tir.type_annotation"), ())
    pointer = c.call("handle", "tvm_access_ptr", kind, node.args[5], node.args[6], 0, 1)
    row, source = c.make_buffer("row", (_ROW_ELEMENTS,), word, "local"), _view("given", pointer, word, _ROW_ELEMENTS)
    elements = _contiguous(c.const(0), _ROW_ELEMENTS)
    load: Stmt = tir.BufferStore(
        row, tir.BufferLoad(word.with_lanes(_ROW_ELEMENTS), source.buffer, (elements,), span=node.span), (elements,)
    )
    if count < 4:
        load = tir.IfThenElse(c.less(lane, _ROW_ELEMENTS * count), (load,))
    args = (*node.args[:5], row.data, c.const(0))
    return [tir.AllocBuffer(row), source, load, tir.Evaluate(tir.Call(node.dtype, node.op, args, span=node.span))]


def _view(name: str, pointer: Expr, dtype: DType, lanes: int) -> tir.DeclBuffer:
    return tir.DeclBuffer(c.make_buffer(name, (lanes,), dtype, "local"), pointer)


def _contiguous(start: Expr, lanes: int) -> Expr:
    if lanes == 1:
        return start
    return tir.Ramp(start.dtype.with_lanes(lanes), start, c.const(1, start.dtype), lanes)
