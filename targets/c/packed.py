"""Print calls of packed functions: DLTensors on the stack, and a slot that is bound by the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.dtypes import UINT8, DType
from mlcc.runtime.abi import dtype_code
from mlcc.targets.c import expressions as ex
from mlcc.targets.c.dtypes import memory_type
from mlcc.targets.plan.kernel_calls import array_layout, is_array
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import PRODUCT, UNARY

if TYPE_CHECKING:
    from mlcc.targets.c.kernel import KernelWriter

PACKED_CALL = "packed_call"  # the function of the file that calls a slot


def tensor(data: str, dtype: DType, dims: str, count: int, strides: str = "NULL") -> str:
    """Return the initializer of a DLTensor; `dims` and `strides` are arrays of `count` numbers, or NULL."""
    code, bits, lanes = dtype_code(str(dtype))
    return f"{{(void *)({data}), {{MLCC_CPU, 0}}, {count}, {{{code}, {bits}, {lanes}}}, {dims}, {strides}, 0}}"


def start(w: KernelWriter, array: tir.Call) -> str:
    """Print the address of the first element of a tensor."""
    array_layout(array, refuse)
    data, _, _, _, like, offset = array.args
    printed = ex.text(w, data, UNARY)
    if tir.const_int(offset) == 0:
        return printed
    return f"({memory_type(like.dtype)} *)(void *){printed} + {ex.index(w, offset, PRODUCT)}"


def call(w: KernelWriter, node: tir.Call) -> None:
    """Print call_packed(name, args...). It gives no value besides success. Raises CompileError (E0780)."""
    if not node.args or not isinstance(node.args[0], tir.StringImm):
        raise refuse("`T.call_packed` needs a name as its first argument", node.span)
    slot = w.ctx.packed_slot(node.args[0].value)
    names = [_argument(w, arg) for arg in node.args[1:]]
    args = "NULL"
    if names:
        args = w.fresh("args")
        w.lines.add(f"DLTensor *{args}[{len(names)}] = {{{', '.join(f'&{n}' for n in names)}}};")
    code = w.fresh("code")
    w.lines.add(f"const int32_t {code} = {PACKED_CALL}({slot}, {args}, {len(names)});")
    w.lines.add(f"if ({code} != 0) return {code};")


def _argument(w: KernelWriter, arg: tir.Expr) -> str:
    """Print the definition of a DLTensor and return its name."""
    if isinstance(arg, tir.StringImm):
        shape = _numbers(w, [str(len(arg.value.encode()))])
        return _define(w, tensor(ex.string_literal(arg.value), UINT8, shape, 1))
    if is_array(arg):
        dims, strides = array_layout(arg, refuse)
        shape = _numbers(w, [ex.index(w, d) for d in dims])
        steps = _numbers(w, [ex.index(w, s) for s in strides])
        return _define(w, tensor(start(w, arg), arg.args[4].dtype, shape, len(dims), steps))
    if arg.dtype.is_handle or arg.dtype.is_void or arg.dtype.lanes > 1:
        message = "a packed function takes buffers, scalars and strings, not a bare pointer"
        raise refuse(message, arg.span, help="pass the buffer itself")
    name = w.fresh("scalar")
    w.lines.add(f"{memory_type(arg.dtype)} {name} = {ex.to_memory(w, arg)};")
    return _define(w, tensor(f"&{name}", arg.dtype, "NULL", 0))


def _define(w: KernelWriter, initializer: str) -> str:
    name = w.fresh("tensor")
    w.lines.add(f"DLTensor {name} = {initializer};")
    return name


def _numbers(w: KernelWriter, values: Sequence[str]) -> str:
    if not values:
        return "NULL"
    name = w.fresh("dims")
    w.lines.add(f"int64_t {name}[{len(values)}] = {{{', '.join(values)}}};")
    return name
