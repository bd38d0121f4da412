"""Plan graph-level calls as steps: kernels, packed functions, functions of the module, memory and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, Span, did_you_mean, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.runtime.abi import dtype_code
from mlcc.targets.plan.branch import condition as condition_of
from mlcc.targets.plan.dims import as_int, widen
from mlcc.targets.plan.steps import (
    CallKernel,
    CallPacked,
    Check,
    Closure,
    Copy,
    Scalar,
    Scope,
    Shape,
    Storage,
    Tensor,
    Text,
    Tuple,
    Unknown,
    Value,
    byte_size,
)

if TYPE_CHECKING:
    from mlcc.targets.plan.planner import Planner

PRINT = "mlcc.print"  # the packed function behind R.print


def refuse(message: str, span: Span | None, code: str = "E0754", help: str | None = None) -> CompileError:
    """Return the error for a call that has no native form."""
    return CompileError(error(code, message, span, help=help))


def plan_call(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan a call and return its value. Raises CompileError."""
    match expr.op:
        case tir.Op(name=name):
            plan_operator = _OPERATORS.get(name.removeprefix("relax."))
            if plan_operator is not None:
                return plan_operator(p, expr, scope)
            operator = name.replace("relax.", "R.", 1)
            raise refuse(f"`{operator}` has no native form", expr.span, help="run `lower-to-tir` before, or -O2")
        case relax.ExternFunc(name=name):
            return _call_packed(p, name, [p.value(a, scope) for a in expr.args], expr, scope)
        case relax.GlobalVar(name=name):
            return _call_module(p, name, expr, scope)
    return _call_value(p, p.value(expr.op, scope), [p.value(a, scope) for a in expr.args], expr.span)


# ---------------------------------------------------------------- functions of the module


def _function_of_module(p: Planner, name: str, span: Span | None) -> relax.Function | tir.PrimFunc:
    func = p.shared.module.functions.get(name)
    if func is None:
        hint = did_you_mean(name, p.shared.module.functions)
        raise refuse(f"the module has no function `{name}`", span, "E0758", hint)
    return func


def _call_module(p: Planner, name: str, expr: relax.Call, scope: Scope) -> Value:
    func = _function_of_module(p, name, expr.span)
    args = [p.value(a, scope) for a in expr.args]
    if isinstance(func, tir.PrimFunc):
        _add_kernel_call(p, name, func, args, expr.span)
        return Tuple(())
    return p.inline(Closure(name, func, Scope(name)), args, expr.span)


def _call_value(p: Planner, callee: Value, args: list[Value], span: Span | None) -> Value:
    """Plan a call of a closure: a nested function, or one that was passed as an argument."""
    if isinstance(callee, Closure):
        return p.inline(callee, args, span)
    if isinstance(callee, Unknown) and callee.reason is None:
        raise CompileError(())
    raise refuse("a function that is only known at run time cannot be called", span)


def _invoke_closure(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan invoke_closure(function, (arguments,))."""
    return _call_value(p, p.value(expr.args[0], scope), _as_list(p.value(expr.args[1], scope)), expr.span)


def _callee(p: Planner, expr: relax.Expr) -> tuple[str, tir.PrimFunc | None]:
    """Resolve the callee of a destination-passing call: its name, and the PrimFunc of the module, if it is one."""
    functions = p.shared.module.functions
    if isinstance(expr, relax.GlobalVar):
        func = _function_of_module(p, expr.name, expr.span)
        if not isinstance(func, tir.PrimFunc):
            raise refuse(f"`{expr.name}` is not a PrimFunc", expr.span, "E0752")
        return expr.name, func
    if isinstance(expr, relax.ExternFunc):
        callee = functions.get(expr.name)
        if isinstance(callee, tir.PrimFunc):
            return expr.name, callee
        for name, func in functions.items():
            if isinstance(func, tir.PrimFunc) and func.attrs.get("global_symbol") == expr.name:
                return name, func
        return expr.name, None
    raise refuse("the callee must be a function of the module or a packed function", expr.span)


def _as_list(value: Value) -> list[Value]:
    return list(value.fields) if isinstance(value, Tuple) else [value]


def _call_tir(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan call_tir or call_dps_packed: arguments, new outputs, then the scalars of `tir_vars`."""
    name, func = _callee(p, expr.args[0])
    args = _as_list(p.value(expr.args[1], scope)) if len(expr.args) > 1 else []
    extra = p.value(expr.args[2], scope) if len(expr.args) > 2 else Shape(())
    results = [p.fresh(info, scope, expr.span, f"the result of `{name}`") for info in expr.sinfo_args]
    outs = [leaf for r in results for leaf in _leaves(r)]
    scalars = [Scalar(d) for d in extra.dims] if isinstance(extra, Shape) else [extra]
    if func is not None:
        _add_kernel_call(p, name, func, [*args, *outs, *scalars], expr.span)
    else:
        _add_packed_call(p, name, [*args, *scalars], outs, "dps", expr.span)
    return results[0] if len(results) == 1 else Tuple(tuple(results))


def _leaves(value: Value) -> list[Value]:
    return [leaf for f in value.fields for leaf in _leaves(f)] if isinstance(value, Tuple) else [value]


def _call_inplace(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan call_tir_inplace: an output with an index shares that argument's memory, others are allocated.

    The argument is copied unless nothing else can see it: values never change at the graph level.
    """
    name, func = _callee(p, expr.args[0])
    args = _as_list(p.value(expr.args[1], scope))
    extra = p.value(expr.args[2], scope) if len(expr.args) > 2 else Shape(())
    infos = [f for i in expr.sinfo_args for f in (i.fields if isinstance(i, relax.TupleStructInfo) else (i,))]
    indices = expr.attrs.get("inplace_indices", ())
    results: list[Value] = []
    fresh: list[Value] = []
    for info, index in zip(infos, indices, strict=False):
        if index < 0:
            fresh.append(p.fresh(info, scope, expr.span, f"the result of `{name}`"))
            results.append(fresh[-1])
            continue
        source = args[index] if index < len(args) else None
        if not isinstance(source, Tensor):
            raise refuse(f"`{name}` cannot write its argument {index} in place", expr.span, "E0752")
        copy = p.temporary(source.dims, source.dtype)
        p.steps.append(Copy(copy, source))
        args[index] = copy
        results.append(copy)
    scalars = [Scalar(d) for d in extra.dims] if isinstance(extra, Shape) else []
    if func is None:
        raise refuse("an in-place call must name a PrimFunc of the module", expr.span)
    _add_kernel_call(p, name, func, [*args, *fresh, *scalars], expr.span)
    return results[0] if len(results) == 1 else Tuple(tuple(results))


# ---------------------------------------------------------------- kernels


def _add_kernel_call(p: Planner, name: str, func: tir.PrimFunc, args: list[Value], span: Span | None) -> None:
    """Plan a call of a PrimFunc, with symbols from the arguments' shapes; mismatches fail now or at run time."""
    if len(args) != len(func.params):
        raise refuse(f"`{name}` takes {len(func.params)} arguments, not {len(args)}", span, "E0752")
    symbol_values = _scalar_values(func, args)
    _bind_symbols(func, args, symbol_values)
    checked: list[Tensor | Scalar] = []
    for var, buffer, arg in zip(func.params, func.buffers, args, strict=True):
        what = f"argument `{buffer.name if buffer is not None else var.name}` of `{name}`"
        checked.append(_kernel_argument(p, var, buffer, arg, symbol_values, what, span))
    kernel = p.shared.ctx.kernel(name)
    symbols = []
    for symbol in kernel.signature.symbols:
        if symbol not in symbol_values:
            raise refuse(
                f"`{symbol.name}` of `{name}` cannot be derived from the shapes of its arguments", span, "E0752"
            )
        symbols.append(p.dims.simplify(symbol_values[symbol]))
    size = p.dims.simplify(as_int(widen(kernel.workspace, symbol_values)))
    workspace = None if tir.const_int(size) == 0 else p.memory(size)
    p.steps.append(CallKernel(name, tuple(checked), tuple(symbols), workspace, span=span))


def _scalar_values(func: tir.PrimFunc, args: list[Value]) -> dict[tir.Var, tir.Expr]:
    """Return the values of integer parameters."""
    return {
        var: as_int(arg.value)
        for var, arg in zip(func.params, args, strict=True)
        if isinstance(arg, Scalar) and not arg.value.dtype.is_float
    }


def _bind_symbols(func: tir.PrimFunc, args: list[Value], symbol_values: dict[tir.Var, tir.Expr]) -> None:
    """Bind variables that are a whole extent, stride or offset of a buffer."""
    for buffer, arg in zip(func.buffers, args, strict=True):
        if buffer is None or not isinstance(arg, Tensor) or len(buffer.shape) != len(arg.dims):
            continue
        pairs = [
            *zip(buffer.shape, arg.dims, strict=True),
            *zip(buffer.strides, compact_strides(arg.dims), strict=False),
        ]
        if buffer.elem_offset is not None:
            pairs.append((buffer.elem_offset, tir.IntImm(INT64, 0)))
        for dim, value in pairs:
            if isinstance(dim, tir.Var):
                symbol_values.setdefault(dim, value)


def compact_strides(dims: tuple[tir.Expr, ...]) -> list[tir.Expr]:
    """Return the strides, in elements, of a compact tensor."""
    strides: list[tir.Expr] = []
    step: tir.Expr = tir.IntImm(INT64, 1)
    for dim in reversed(dims):
        strides.insert(0, step)
        step = c.mul(step, dim)
    return strides


def _kernel_argument(
    p: Planner, var: tir.Var, buffer: tir.Buffer | None, arg: Value, symbol_values: dict[tir.Var, tir.Expr], what: str,
    span: Span | None,
) -> Tensor | Scalar:  # fmt: skip
    if isinstance(arg, Unknown):
        raise CompileError(()) if arg.reason is None else refuse(f"{what} has no native form: {arg.reason}", span)
    if buffer is None and not var.dtype.is_handle:
        if not isinstance(arg, Scalar) or arg.value.dtype.is_float != var.dtype.is_float:
            raise refuse(f"{what} must be a scalar of {var.dtype}", span, "E0752")
        return arg
    if not isinstance(arg, Tensor):
        raise refuse(f"{what} must be a tensor", span, "E0752")
    if buffer is None:
        return arg
    if buffer.dtype is not arg.dtype:
        raise refuse(f"{what} is {arg.dtype}, not {buffer.dtype}", span, "E0752")
    if len(buffer.shape) != len(arg.dims):
        raise refuse(f"{what} has {len(arg.dims)} dimensions, not {len(buffer.shape)}", span, "E0752")
    for index, (want, have) in enumerate(zip(buffer.shape, arg.dims, strict=True)):
        p.require_equal(p.dims.simplify(as_int(widen(want, symbol_values))), have, f"dim {index} of {what}", span)
    for index, (want, have) in enumerate(zip(buffer.strides, compact_strides(arg.dims), strict=False)):
        p.require_equal(p.dims.simplify(as_int(widen(want, symbol_values))), have, f"stride {index} of {what}", span)
    if buffer.elem_offset is not None:
        offset = p.dims.simplify(as_int(widen(buffer.elem_offset, symbol_values)))
        if tir.const_int(offset) != 0:
            shifted = c.sub(arg.offset, c.mul(offset, arg.dtype.bytes * arg.dtype.lanes))
            return Tensor(arg.memory, arg.dims, arg.dtype, p.dims.simplify(shifted))
    return arg


# ---------------------------------------------------------------- packed functions


def _argument_kinds(name: str, args: list[Value], span: Span | None) -> tuple[str, ...]:
    kinds = []
    for index, arg in enumerate(args):
        match arg:
            case Tensor():
                kinds.append("tensor")
            case Scalar(value=value):
                kinds.append("bool" if value.dtype.is_bool else "float" if value.dtype.is_float else "int")
            case Shape():
                kinds.append("shape")
            case Text():
                kinds.append("str")
            case Unknown(reason=None):
                raise CompileError(())
            case _:
                why = f": {arg.reason}" if isinstance(arg, Unknown) else ""
                raise refuse(f"argument {index} of packed function `{name}` has no native form{why}", span)
    return tuple(kinds)


def _add_packed_call(
    p: Planner, name: str, args: list[Value], outs: list[Value], style: str, span: Span | None
) -> None:
    kinds = _argument_kinds(name, args, span)
    slot = p.shared.packed(name, kinds, len(outs), style)
    p.steps.append(CallPacked(slot, (*args, *outs)))


def _call_packed(p: Planner, name: str, args: list[Value], expr: relax.Call, scope: Scope) -> Value:
    """Plan call_packed: the function returns its results, which are copied to memory of the declared type."""
    infos = expr.sinfo_args or (() if expr.struct_info is None else (expr.struct_info,))
    results: list[Value] = []
    for info in infos:
        is_declared = isinstance(info, (relax.TensorStructInfo, relax.TupleStructInfo)) and _is_sized(info)
        if not is_declared:
            _add_packed_call(p, name, args, [], "value", expr.span)
            return Unknown(f"it is returned by packed function `{name}` without a declared shape and dtype")
        results.append(p.fresh(info, scope, expr.span, f"the result of `{name}`"))
    outs = [leaf for r in results for leaf in _leaves(r)]
    _add_packed_call(p, name, args, outs, "value", expr.span)
    return results[0] if len(results) == 1 else Tuple(tuple(results))


def _is_sized(info: relax.StructInfo) -> bool:
    """Return True if memory for a value can be allocated: its tensors have a known dtype and extents."""
    if isinstance(info, relax.TupleStructInfo):
        return all(_is_sized(f) for f in info.fields)
    return isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None


def _call_pure_packed(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    callee = expr.args[0]
    if not isinstance(callee, relax.ExternFunc):
        raise refuse("a packed call must name a packed function", expr.span)
    return _call_packed(p, callee.name, [p.value(a, scope) for a in expr.args[1:]], expr, scope)


def _print(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    _add_packed_call(p, PRINT, [p.value(a, scope) for a in expr.args], [], "value", expr.span)
    return Tuple(())


def _assert(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    condition = condition_of(p, p.value(expr.args[0], scope), expr.span)
    text = p.value(expr.args[1], scope) if len(expr.args) > 1 else Text("")
    message = text.value if isinstance(text, Text) and text.value else "assertion failed"
    p.steps.append(Check(condition, p.shared.code("ASSERT", message)))
    return Tuple(())


# ---------------------------------------------------------------- memory, views and shapes


def _tensor(p: Planner, expr: relax.Expr, scope: Scope) -> Tensor:
    value = p.value(expr, scope)
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Unknown) and value.reason is None:
        raise CompileError(())
    raise refuse("this must be a tensor", expr.span, "E0752")


def _alloc_tensor(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    shape, dtype = p.value(expr.args[0], scope), p.value(expr.args[1], scope)
    if not isinstance(shape, Shape) or not isinstance(dtype, Text):
        raise refuse("`R.builtin.alloc_tensor` takes a shape and a dtype", expr.span, "E0752")
    return p.temporary(shape.dims, DType.of(dtype.value))


def _alloc_storage(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    shape = p.value(expr.args[0], scope)
    if not isinstance(shape, Shape):
        raise refuse("storage needs a shape", expr.span, "E0752")
    return Storage(p.memory(byte_size(shape.dims, DType.of("uint8"))))


def _storage_tensor(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    storage, offset, shape, dtype = (p.value(a, scope) for a in expr.args[:4])
    if not (isinstance(storage, Storage) and isinstance(offset, Scalar) and isinstance(shape, Shape)):
        raise refuse("a tensor in storage needs the storage, an offset and a shape", expr.span, "E0752")
    if not isinstance(dtype, Text):
        raise refuse("a tensor in storage needs a dtype", expr.span, "E0752")
    return Tensor(storage.memory, shape.dims, DType.of(dtype.value), offset.value)


def _no_op(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan nothing: the memory planner decides when memory is reused."""
    return Tuple(())


def _identity(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    return p.value(expr.args[0], scope)


def _view(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan a reshape as a view of the same memory: compact tensors need no copy."""
    source = _tensor(p, expr.args[0], scope)
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None:
        raise refuse("the shape of this view is not known", expr.span, "E0757")
    dims = tuple(p.dim(d, scope) for d in info.dims)
    view = Tensor(source.memory, dims, source.dtype, source.offset)
    p.require_equal(p.dims.simplify(view.size), p.dims.simplify(source.size), "the size of the view", expr.span)
    return view


def _memory_view(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan memory.view: another shape, dtype or start within the same memory."""
    source = _tensor(p, expr.args[0], scope)
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or info.dtype is None:
        raise refuse("the shape or dtype of this view is not known", expr.span, "E0757")
    start = p.value(expr.args[3], scope) if len(expr.args) > 3 else Tuple(())
    start_offset = start.value if isinstance(start, Scalar) else tir.IntImm(INT64, 0)
    dims = tuple(p.dim(d, scope) for d in info.dims)
    view = Tensor(source.memory, dims, info.dtype, p.dims.simplify(c.add(source.offset, start_offset)))
    end = c.add(start_offset, view.size)
    in_bounds = c.logical_and(c.greater_equal(start_offset, 0), c.less_equal(end, source.size))
    code = p.shared.code("CAST", f"{p.name}: a view exceeds its tensor")
    if not p.dims.analyzer.prove(in_bounds):
        p.steps.append(Check(Scalar(in_bounds), code, any(map(p.measured.has, dims))))
    return view


def _shape_of(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    return Shape(_tensor(p, expr.args[0], scope).dims)


def _tensor_to_shape(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    """Plan tensor_to_shape: the elements of a vector are read when the step runs."""
    source = _tensor(p, expr.args[0], scope)
    count = tir.const_int(source.dims[0]) if len(source.dims) == 1 else None
    if count is None or source.dtype is not INT64:
        raise refuse("`R.tensor_to_shape` takes a vector of int64 whose length is known", expr.span, "E0757")
    return p.measure(source, count, "data")


def _shape_i(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    source, axis = _tensor(p, expr.args[0], scope), p.value(expr.args[1], scope)
    index = tir.const_int(axis.value) if isinstance(axis, Scalar) else None
    if index is None or not 0 <= index < len(source.dims):
        raise refuse("the axis of `R.inspect.tensor_shape_i` is not an axis of the tensor", expr.span)
    return Scalar(source.dims[index])


def _stride_i(p: Planner, expr: relax.Call, scope: Scope) -> Value:
    source, axis = _tensor(p, expr.args[0], scope), p.value(expr.args[1], scope)
    index = tir.const_int(axis.value) if isinstance(axis, Scalar) else None
    if index is None or not 0 <= index < len(source.dims):
        raise refuse("the axis of `R.inspect.tensor_stride_i` is not an axis of the tensor", expr.span)
    return Scalar(p.dims.simplify(compact_strides(source.dims)[index]))


def _tensor_property(compute: Callable[[Tensor], tir.Expr]) -> Callable[[Planner, relax.Call, Scope], Value]:
    """Return the planner of an operator that returns a property of a planned tensor."""
    return lambda p, expr, scope: Scalar(compute(_tensor(p, expr.args[0], scope)))


_OPERATORS: dict[str, Callable[[Planner, relax.Call, Scope], Value]] = {
    "call_tir": _call_tir, "call_dps_packed": _call_tir, "call_tir_with_grad": _call_tir,
    "call_tir_inplace": _call_inplace, "call_pure_packed": _call_pure_packed,
    "invoke_closure": _invoke_closure, "invoke_pure_closure": _invoke_closure,
    "print": _print, "assert_op": _assert,
    "builtin.alloc_tensor": _alloc_tensor,
    "memory.alloc_storage": _alloc_storage, "vm.alloc_storage": _alloc_storage,
    "memory.alloc_tensor": _storage_tensor, "vm.alloc_tensor": _storage_tensor,
    "memory.kill_storage": _no_op, "memory.kill_tensor": _no_op, "vm.kill_object": _no_op,
    "reshape": _view, "expand_dims": _view, "squeeze": _view, "flatten": _view, "nn.batch_flatten": _view,
    "memory.view": _memory_view, "memory.ensure_zero_offset": _identity,
    "builtin.stop_lift_params": _identity, "to_vdevice": _identity, "hint_on_device": _identity,
    "grad.no_grad": _identity, "grad.start_checkpoint": _identity, "grad.end_checkpoint": _identity,
    "null_value": _no_op,
    "inspect.tensor_ndim": _tensor_property(lambda t: tir.IntImm(INT64, len(t.dims))),
    "inspect.tensor_dtype_bits": _tensor_property(lambda t: tir.IntImm(INT64, t.dtype.bits)),
    "inspect.tensor_dtype_lanes": _tensor_property(lambda t: tir.IntImm(INT64, t.dtype.lanes)),
    "inspect.tensor_dtype_code": _tensor_property(lambda t: tir.IntImm(INT64, dtype_code(str(t.dtype))[0])),
    "inspect.tensor_byte_offset": _tensor_property(lambda t: tir.IntImm(INT64, 0)),  # every tensor starts at its data
    "inspect.tensor_elem_offset": _tensor_property(lambda t: tir.IntImm(INT64, 0)),
    "inspect.tensor_stride_i": _stride_i,
    "tensor_to_shape": _tensor_to_shape, "shape_of": _shape_of, "inspect.tensor_shape_i": _shape_i,
}  # fmt: skip

NATIVE_OPERATORS = frozenset(_OPERATORS)  # names without `R.`
