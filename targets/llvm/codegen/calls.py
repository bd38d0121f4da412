"""Calls: functions of the module, externs, pointers, return, and the table of all intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.intrinsics import name_of
from mlcc.ir.node import Node, find
from mlcc.targets.llvm.codegen import casts, index_checks, intrinsics, memory, packed, vmath
from mlcc.targets.llvm.codegen.ir_text import NULL, Value, integer
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.llvm.codegen.native_functions import NATIVE_PREFIX
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import is_small_float, memory_type, register_type, zero
from mlcc.targets.plan.kernel_calls import is_array, symbol_values

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.context import ModuleContext
    from mlcc.targets.llvm.codegen.emitter import Emitter
    from mlcc.targets.llvm.codegen.native_functions import NativeFunction


def call(e: Emitter, node: tir.Call) -> Value:
    """Emit a call of an intrinsic or of a function of the module."""
    op = node.op
    if isinstance(op, relax.GlobalVar):
        return e.module_function(op.name, node.args, node)
    name = op.name.removeprefix("tir.")
    emit = e.CALLS.get(name)
    if emit is None:
        raise unsupported(f"the {e.TARGET} target has no `T.{name}`", node.span, help=did_you_mean(name, e.CALLS))
    value = emit(e, node)
    if value.type != register_type(node.dtype) and not node.dtype.is_handle:
        raise unsupported(f"`T.{name}` of these arguments does not return {node.dtype}", node.span)
    return value


# ---------------------------------------------------------------- functions


def module_function(e: Emitter, name: str, args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
    """Emit a call of a kernel. Arguments are pointers, or tensors that also determine the callee's symbols."""
    fn = e.fn
    kernel = e.ctx.kernel(name)
    sig = kernel.signature
    symbols = symbol_values(name, sig, args, node, unsupported)
    values: list[Value] = []
    for arg in args:
        if is_array(arg):
            values.append(packed.array_start(e, arg))
        else:
            values.append(casts.to_memory(e, e.expr(arg), arg.dtype))
    values += [e.index(symbols[symbol]) for symbol in sig.symbols]
    result = NULL
    if sig.result is not None:
        result = fn.alloca(memory_type(sig.result))
        values.append(result)
    values.append(e.callee_workspace)
    e.fail_if_error(fn.call("i32", f"@{kernel.symbol}", values))
    if sig.result is None:
        return zero(node.dtype)
    return casts.from_memory(e, fn.load(memory_type(sig.result), result), sig.result)


def callee_workspace(node: Node, ctx: ModuleContext) -> int:
    """Emit the kernels that a node calls; return the maximum of their workspaces, in bytes."""
    largest = 0
    for call in find(node, tir.Call):
        name = call.op.name if isinstance(call.op, relax.GlobalVar) else _extern_name(call)
        if name in ctx.functions or isinstance(call.op, relax.GlobalVar):
            size = tir.const_int(ctx.kernel(name).workspace)
            if size is None:
                message = f"`{name}` has temporaries of symbolic size, so only relax functions can call it"
                raise unsupported(message, call.span)
            largest = max(largest, size)
    return largest


def _extern_name(node: tir.Call) -> str:
    match node.op, node.args:
        case tir.Op("tir.call_extern" | "tir.call_pure_extern"), (tir.StringImm(value=name), *_):
            return name
    return ""


def _extern(e: Emitter, node: tir.Call) -> Value:
    if not node.args or not isinstance(node.args[0], tir.StringImm):
        raise unsupported(f"`T.{name_of(node)}` needs a name as its first argument", node.span)
    symbol, args = node.args[0].value, node.args[1:]
    native = e.ctx.natives.get(symbol)
    if native is not None:
        return _native_function(e, native, args, node)
    types = LIBM.get(symbol)
    if types is not None:
        return _libm(e, symbol, types, args, node)
    if symbol in e.ctx.functions:
        return e.module_function(symbol, args, node)
    if symbol not in e.ctx.options.allow_extern:
        near = did_you_mean(symbol, LIBM)
        help = f"provide it as LLVM IR (pragma_import_llvm), allow it with --allow-extern {symbol}, or use "
        help += "T.call_packed" + (f"; {near}" if near else "")
        raise unsupported(f"the extern `{symbol}` is not allowed", node.span, help=help)
    return _c_function(e, symbol, args, node)


def _libm(e: Emitter, symbol: str, types: tuple[str, ...], args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
    lanes = node.dtype.lanes
    is_valid = (
        len(args) == len(types) - 1 and register_type(node.dtype.element) == types[0] and not is_small_float(node.dtype)
    )
    if not is_valid or any(
        register_type(a.dtype.element) != t or a.dtype.lanes != lanes or is_small_float(a.dtype)
        for a, t in zip(args, types[1:], strict=True)
    ):
        argument_types = ", ".join(str(a.dtype) for a in args)
        parameter_types = ", ".join(types[1:])
        raise unsupported(
            f"`{symbol}` is {types[0]}({parameter_types}) in C, not {node.dtype}({argument_types})", node.span
        )
    fn, values = e.fn, [e.expr(a) for a in args]
    callee = e.ctx.module.declare(symbol, types[0], types[1:], "nounwind willreturn memory(none)")
    if lanes == 1:
        return fn.call(types[0], callee, values)
    results = Value(register_type(node.dtype), "poison")
    for lane in range(lanes):
        results = fn.insert(results, fn.call(types[0], callee, [fn.extract(v, lane) for v in values]), lane)
    return results


def _c_function(e: Emitter, symbol: str, args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
    """Emit a call of a C function by the arguments' types; narrow integers are extended as C's conventions require."""
    for dtype in (node.dtype, *(a.dtype for a in args)):
        if dtype.lanes > 1 or is_small_float(dtype):
            raise unsupported(f"{dtype} cannot be passed to the extern `{symbol}`", node.span)
    values = [e.expr(a) for a in args]
    extensions = [_extension(a) for a in args]
    ret = register_type(node.dtype)
    e.ctx.externs.setdefault(symbol)
    params = [f"{v.type} {x}".rstrip() for v, x in zip(values, extensions, strict=True)]
    callee = e.ctx.module.declare(symbol, ret, params)
    text = ", ".join(f"{v.type} {x + ' ' if x else ''}{v.ref}" for v, x in zip(values, extensions, strict=True))
    if ret == "void":
        e.fn.line(f"call void {callee}({text})")
        return zero(node.dtype)
    return e.fn.op(ret, f"call {ret} {callee}({text})")


def _native_function(e: Emitter, native: NativeFunction, args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
    """Emit a call of a function of a native kernel; the argument types must match its LLVM IR."""
    fn, values = e.fn, [e.expr(a) for a in args]
    void = native.result == "void"
    argument_types = tuple(v.type for v in values)
    result_type = "void" if void else register_type(node.dtype)
    small = any(is_small_float(a.dtype) for a in (node, *args))
    if native.varargs or small or argument_types != native.params or result_type != native.result:
        message = f"`{native.name}` is {native} in its LLVM IR, but called as {node.dtype}({', '.join(argument_types)})"
        raise CompileError(error("E0708", message, node.span))
    callee = e.ctx.module.declare(NATIVE_PREFIX + native.name, native.result, native.params)
    if void:
        fn.line(f"call void {callee}({', '.join(map(str, values))})")
        return zero(node.dtype)
    return fn.call(native.result, callee, values)


def _extension(arg: tir.Expr) -> str:
    dtype = arg.dtype
    if dtype.is_bool or (dtype.is_uint and dtype.bits < 32):
        return "zeroext"
    return "signext" if dtype.is_int and dtype.bits < 32 else ""


_INTEGER_INTRINSICS = frozenset(
    ("ctpop", "bswap", "bitreverse", "smin", "smax", "umin", "umax", "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat")
)
_LLVM_INTRINSICS = {
    "fabs": 1, "sqrt": 1, "exp": 1, "exp2": 1, "log": 1, "log2": 1, "log10": 1, "sin": 1, "cos": 1, "floor": 1,
    "ceil": 1, "trunc": 1, "rint": 1, "nearbyint": 1, "round": 1, "pow": 2, "copysign": 2, "minnum": 2, "maxnum": 2,
    "fma": 3, "fmuladd": 3, "ctpop": 1, "bswap": 1, "bitreverse": 1, "smin": 2, "smax": 2, "umin": 2, "umax": 2,
    "sadd.sat": 2, "uadd.sat": 2, "ssub.sat": 2, "usub.sat": 2,
}  # fmt: skip


def _llvm_intrinsic(e: Emitter, node: tir.Call) -> Value:
    """Emit an LLVM intrinsic whose operands have one type. A count of operands may follow the name."""
    first = node.args[0] if node.args else None
    name = first.value if isinstance(first, tir.StringImm) else ""
    base = name.removeprefix("llvm.")
    args = node.args[1:]
    if base == "prefetch" or base.startswith("prefetch."):
        return zero(node.dtype)
    count = _LLVM_INTRINSICS.get(base)
    if count is None:
        message = f"the LLVM intrinsic `{name}` is not supported"
        raise unsupported(message, node.span, help=did_you_mean(base, _LLVM_INTRINSICS))
    if len(args) == count + 1 and tir.const_int(args[0]) is not None:
        args = args[1:]  # older texts give the number of operands that select the overload
    if len(args) != count or any(a.dtype is not node.dtype for a in args) or is_small_float(node.dtype):
        raise unsupported(f"`llvm.{base}` takes {count} operands of the result's type", node.span)
    takes_dtype = node.dtype.is_int if base in _INTEGER_INTRINSICS else node.dtype.is_float
    if not takes_dtype or base == "bswap" and node.dtype.bits < 16:
        raise unsupported(f"`llvm.{base}` does not take {node.dtype}", node.span)
    values = [e.expr(a) for a in args]
    if node.dtype.is_float and (base in vmath.UNARY or base in vmath.ROUNDING or base == "pow"):
        return vmath.call(e, base, values, node.dtype.lanes)
    if base == "bswap" and e.ctx.is_gpu and node.dtype.lanes > 1:  # LLVM cannot select it for vectors
        swapped = Value(values[0].type, "poison")
        for lane in range(node.dtype.lanes):
            swapped = e.fn.insert(swapped, e.intrinsic("llvm.bswap", e.fn.extract(values[0], lane)), lane)
        return swapped
    return e.intrinsic(f"llvm.{base}", *values)


# ---------------------------------------------------------------- pointers


def _access_ptr(e: Emitter, node: tir.Call) -> Value:
    """tvm_access_ptr(type, data, offset in elements, extent, mask)."""
    if len(node.args) != 5:
        raise unsupported(f"`T.tvm_access_ptr` takes 5 arguments, not {len(node.args)}", node.span)
    element = node.args[0].dtype
    index = e.index(node.args[2])
    if element.lanes > 1:
        index = e.fn.binary("mul nsw", index, integer("i64", element.lanes))
    scalar = "i8" if element.is_void else memory_type(element.element)
    return e.fn.gep(scalar, e.expr(node.args[1]), index)


def _address_of(e: Emitter, node: tir.Call) -> Value:
    match node.args:
        case (tir.BufferLoad(buffer=buffer, indices=(index,)),):
            if isinstance(index, tir.Ramp):
                index = index.base
            return memory.address(e, buffer, index)
        case (tir.Var() as var,):
            return e.expr(var)
    raise unsupported("`T.address_of` takes an element of a buffer", node.span)


def _byte_offset(e: Emitter, node: tir.Call) -> Value:
    pointer, offset = node.args[:2]
    if not pointer.dtype.is_handle or not offset.dtype.is_int or offset.dtype.lanes > 1:
        raise unsupported(f"`T.{name_of(node)}` takes a handle and an integer", node.span)
    return e.fn.gep("i8", e.expr(pointer), e.index(offset))


# ---------------------------------------------------------------- return


def _ret(e: Emitter, node: tir.Call) -> Value:
    if e.result is not None and node.args:
        dtype, address = e.result
        value = casts.cast(e, e.expr(node.args[0]), node.args[0].dtype, dtype)
        e.fn.store(casts.to_memory(e, value, dtype), address)
    e.leave(integer("i32", 0))
    e.fn.start(e.fn.label("dead"))  # an expression must end in an open block
    return zero(node.dtype)


def _no_op_barrier(e: Emitter, node: tir.Call) -> Value:
    """Emit nothing for a barrier: code for CPUs that would need one has been refused earlier."""
    return zero(node.dtype)


TABLE: dict[str, Callable[[Emitter, tir.Call], Value]] = {
    **intrinsics.TABLE, "checked_index": index_checks.emit,
    "call_extern": _extern, "call_pure_extern": _extern,
    "call_llvm_intrin": _llvm_intrinsic, "call_llvm_pure_intrin": _llvm_intrinsic,
    **dict.fromkeys(("call_packed", "tvm_call_packed", "call_cpacked", "tvm_call_cpacked"), packed.call),
    "tvm_access_ptr": _access_ptr, "address_of": _address_of,
    "handle_add_byte_offset": _byte_offset, "ptr_byte_offset": _byte_offset,
    "ret": _ret, "thread_return": _ret, "tvm_storage_sync": _no_op_barrier,
}  # fmt: skip
