"""Calls of packed functions: DLTensors on the stack, and a slot that is bound when the artifact is used.

Every argument is a DLTensor: a buffer as it is, a scalar as a tensor without dimensions of its dtype, a string as a
uint8 tensor of its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.dtypes import UINT8, DType
from mlcc.targets.llvm.codegen import casts, execution_log
from mlcc.targets.llvm.codegen.context import PACKED_CALL, LoggedEvent
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, zero
from mlcc.targets.plan.kernel_calls import array_layout, is_array

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

# data, device type, device id, ndim, dtype (code, bits, lanes), shape, strides, byte offset
DLTENSOR = "{ ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }"
_CPU = 1
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}


def fill_tensor(
    fn: FunctionText, place: Value, data: Value, dtype: DType, ndim: int, shape: Value, strides: Value = NULL
) -> None:
    """Write a DLTensor on the CPU at `place`; `shape` and `strides` point to int64s."""
    fields = (
        data, integer("i32", _CPU), integer("i32", 0), integer("i32", ndim), integer("i8", _CODES[dtype.kind]),
        integer("i8", dtype.bits), integer("i16", dtype.lanes), shape, strides, integer("i64", 0),
    )  # fmt: skip
    for number, value in enumerate(fields):
        fn.store(value, fn.gep(DLTENSOR, place, integer("i64", 0), integer("i32", number)))


def int64s(fn: FunctionText, values: Sequence[Value]) -> Value:
    """An array of i64 on the stack; null for none."""
    if not values:
        return NULL
    place = fn.alloca("i64", len(values), 8, "dims")
    for number, value in enumerate(values):
        fn.store(value, fn.gep("i64", place, integer("i64", number)))
    return place


def call(e: Emitter, node: tir.Call) -> Value:
    """call_packed(name, args...). It gives no value besides success."""
    if not node.args or not isinstance(node.args[0], tir.StringImm):
        raise unsupported("`T.call_packed` needs a name as its first argument", node.span)
    fn, args = e.fn, node.args[1:]
    slot = e.ctx.packed_slot(node.args[0].value)
    pointers = fn.alloca("ptr", len(args), 8, "args") if args else NULL
    for number, arg in enumerate(args):
        fn.store(_tensor(e, arg), fn.gep("ptr", pointers, integer("i64", number)))
    callee = e.ctx.module.declare(PACKED_CALL, "i32", ["i32", "ptr", "i32"])
    begun = execution_log.start(e.ctx, fn)
    code = fn.call("i32", callee, [integer("i32", slot), pointers, integer("i32", len(args))])
    event = LoggedEvent("packed", node.args[0].value, span=node.span)
    execution_log.stop(e.ctx, fn, event, begun, integer("i64", 0))
    e.fail_if_error(code)
    return zero(node.dtype)


def _tensor(e: Emitter, arg: tir.Expr) -> Value:
    fn = e.fn
    place = fn.alloca(DLTENSOR, 1, 8, "tensor")
    if isinstance(arg, tir.StringImm):
        size = integer("i64", len(arg.value.encode()))
        fill_tensor(fn, place, e.expr(arg), UINT8, 1, int64s(fn, [size]))
    elif is_array(arg):
        _buffer(e, arg, place)
    elif arg.dtype.is_handle or arg.dtype.is_void or arg.dtype.lanes > 1:
        message = "a packed function takes buffers, scalars and strings, not a bare pointer"
        raise unsupported(message, arg.span, help="pass the buffer itself")
    else:
        data = fn.alloca(memory_type(arg.dtype), 1, 8, "scalar")
        fn.store(casts.to_memory(e, e.expr(arg), arg.dtype), data)
        fill_tensor(fn, place, data, arg.dtype, 0, NULL)
    return place


def array_start(e: Emitter, array: tir.Call) -> Value:
    """The address of its first element."""
    if len(array.args) != 6:
        raise unsupported("`T.tvm_stack_make_array` takes 6 arguments", array.span)
    data, _, _, _, like, offset = array.args
    start = e.expr(data)
    if tir.const_int(offset) == 0:
        return start
    return e.fn.gep(memory_type(like.dtype.element), start, e.index(offset))


def _buffer(e: Emitter, array: tir.Call, place: Value) -> None:
    fn = e.fn
    shape, strides = array_layout(array, unsupported)
    dims = int64s(fn, [e.index(n) for n in shape])
    steps = int64s(fn, [e.index(s) for s in strides])
    fill_tensor(fn, place, array_start(e, array), array.args[4].dtype, len(shape), dims, steps)
