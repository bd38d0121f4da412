"""Calls of kernels from code: tensors assembled from pointers, and the symbols that arguments determine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from mlcc.errors import CompileError, Span, error
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.targets.plan.signature import KernelSignature

Refuse = Callable[[str, "Span | None"], CompileError]  # a target's error for what it does not take
Dims = tuple[tir.Expr, ...]

_MAKE_ARRAY = tir.Op("tir.tvm_stack_make_array")


def is_array(arg: tir.Expr) -> TypeGuard[tir.Call]:
    """Return True if an argument is a tensor assembled from pointer, shape and strides (`tvm_stack_make_array`)."""
    return isinstance(arg, tir.Call) and arg.op == _MAKE_ARRAY


def array_layout(array: tir.Call, refuse: Refuse) -> tuple[Dims, Dims]:
    """Return dimensions and strides (none: compact) of tvm_stack_make_array(data, shape, strides, ndim, like, offset).

    Raises the error of `refuse`.
    """
    if len(array.args) != 6:
        raise refuse("`T.tvm_stack_make_array` takes 6 arguments", array.span)
    _, shape, strides, ndim, _, _ = array.args
    rank = tir.const_int(ndim)
    if rank is None or not isinstance(shape, tir.Call) or len(shape.args) != rank:
        raise refuse("`T.tvm_stack_make_array` needs `T.tvm_stack_make_shape` with as many dimensions", array.span)
    if not isinstance(strides, tir.Call):
        return shape.args, ()
    if len(strides.args) != rank:
        raise refuse("`T.tvm_stack_make_array` needs as many strides as dimensions", array.span)
    return shape.args, strides.args


def symbol_values(
    name: str, signature: KernelSignature, args: Dims, node: tir.Call, refuse: Refuse
) -> dict[tir.Var, tir.Expr]:
    """Check the arguments of a call of a kernel, and return the values of its symbols, which tensors determine.

    Raises the error of `refuse` for another number of arguments or another dtype, and CompileError E0708 for a symbol
    without a value.
    """
    if len(args) != len(signature.params):
        raise refuse(f"`{name}` takes {len(signature.params)} arguments, not {len(args)}", node.span)
    values: dict[tir.Var, tir.Expr] = {}
    for param, arg in zip(signature.params, args, strict=True):
        if arg.dtype is not param.var.dtype:
            message = f"`{param.var.name}` of `{name}` is {param.var.dtype}, not {arg.dtype}"
            raise refuse(message, arg.span or node.span)
        if param.buffer is not None and is_array(arg):
            _bind_symbols(param.buffer, *array_layout(arg, refuse), values)
    for symbol in signature.symbols:
        if symbol not in values:
            message = f"the value of `{symbol.name}` in the call of `{name}` cannot be derived from its arguments"
            raise CompileError(error("E0708", message, node.span))
    return values


def _bind_symbols(buffer: tir.Buffer, shape: Dims, strides: Dims, values: dict[tir.Var, tir.Expr]) -> None:
    """Bind the symbols of a callee's buffer to the shape, strides and offset of the tensor passed for it."""
    pairs: list[tuple[tir.Expr, tir.Expr]] = []
    if len(shape) == len(buffer.shape):
        pairs += zip(buffer.shape, shape, strict=True)
        pairs += zip(buffer.strides, strides or compact_strides(shape), strict=bool(buffer.strides))
    if buffer.elem_offset is not None:
        pairs.append((buffer.elem_offset, tir.IntImm(INT64, 0)))
    for symbol, value in pairs:
        if isinstance(symbol, tir.Var):
            values.setdefault(symbol, value)
