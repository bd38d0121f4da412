"""Plan public PrimFuncs: a single kernel call on the caller's tensors."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.effects import READ, WRITE, effects
from mlcc.ir.module import Func
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.dims import Dims, as_int, widen
from mlcc.targets.plan.steps import CallKernel, HostFunction, Leaf, Memory, MemoryKind, Param, Scalar, Tensor, byte_size


def plan_prim(name: str, func: tir.PrimFunc, shared: AnyPlanning) -> HostFunction:
    """Plan a public PrimFunc. Raises CompileError for parameters that no caller can pass."""
    dims = Dims()
    symbols, params = prim_parameters(func, dims, shared.module.functions)
    args = [_argument(index, leaf) for index, param in enumerate(params) for leaf in param.leaves()]
    kernel = shared.ctx.kernel(name)
    size = dims.simplify(as_int(widen(kernel.workspace, symbols)))
    workspace = None if tir.const_int(size) == 0 else Memory(MemoryKind.TEMPORARY, size, name)
    values = tuple(symbols[s] for s in kernel.signature.symbols)
    step = CallKernel(name, tuple(args), values, workspace, span=func.span)
    host = HostFunction(name, "prim", params, None, entry_symbols(symbols), [step], dims, func.span)
    host.memories = [] if workspace is None else [workspace]
    return host


def prim_parameters(
    func: tir.PrimFunc, dims: Dims, functions: Mapping[str, Func]
) -> tuple[dict[tir.Var, tir.Expr], tuple[Param, ...]]:
    """Return the values of the variables of a PrimFunc's parameters, and the parameters as callers see them.

    `functions` are those that it may call. Raises CompileError for parameters that no caller can pass.
    """
    symbols = _symbols(func, dims)
    uses = effects(func, functions=functions)
    leaves = []
    for var, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is not None:
            leaves.append(_tensor_leaf(buffer, symbols, dims, uses.get(buffer.data, 0)))
        elif var.dtype.is_handle:
            leaves.append(Leaf(var.name, "pointer", var.dtype, span=var.span))
        else:
            leaves.append(Leaf(var.name, "scalar", var.dtype, value=symbols.get(var, var), span=var.span))
    return symbols, tuple(Param(leaf.name, leaf) for leaf in leaves)


def _argument(index: int, leaf: Leaf) -> Tensor | Scalar:
    """Return what the kernel is called with for a parameter."""
    assert leaf.dtype is not None
    if leaf.kind == "scalar":
        assert leaf.value is not None
        return Scalar(leaf.value)
    size = tir.IntImm(INT64, 0) if leaf.kind == "pointer" else byte_size(leaf.dims, leaf.dtype)
    return Tensor(Memory(MemoryKind.ARGUMENT, size, leaf.name, index), leaf.dims, leaf.dtype)


def entry_symbols(symbols: Mapping[tir.Var, tir.Expr]) -> tuple[tir.Var, ...]:
    """Return the symbols among the values of variables, which callers bind."""
    return tuple(s for s in symbols.values() if isinstance(s, tir.Var))


def _symbols(func: tir.PrimFunc, dims: Dims) -> dict[tir.Var, tir.Expr]:
    """Map the variables of the parameters to values: a symbol for a whole dimension, 0 for an element offset."""
    known: dict[tir.Var, tir.Expr] = {}
    for var, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is None and (var.dtype.is_int or var.dtype.is_bool):
            known[var] = tir.Var(var.name, INT64)
    for buffer in func.buffers:
        if buffer is None:
            continue
        for dim in buffer.shape:
            if isinstance(dim, tir.Var) and dim not in known:
                known[dim] = symbol = tir.Var(dim.name, INT64)
                dims.extent(symbol)
        for stride in buffer.strides:
            if isinstance(stride, tir.Var):
                known.setdefault(stride, tir.Var(stride.name, INT64))
        if isinstance(buffer.elem_offset, tir.Var):
            known.setdefault(buffer.elem_offset, tir.IntImm(INT64, 0))
    return known


def _tensor_leaf(buffer: tir.Buffer, symbols: dict[tir.Var, tir.Expr], dims: Dims, use: int) -> Leaf:
    try:
        shape = tuple(dims.simplify(as_int(widen(d, symbols))) for d in buffer.shape)
        strides = tuple(dims.simplify(as_int(widen(s, symbols))) for s in buffer.strides)
        offset = None if buffer.elem_offset is None else dims.simplify(as_int(widen(buffer.elem_offset, symbols)))
    except CompileError as exc:
        message = f"the shape of `{buffer.name}` cannot be derived from the arguments: {exc.diagnostics[0].message}"
        raise CompileError(error("E0757", message, buffer.span)) from None
    return Leaf(
        buffer.name, "tensor", buffer.dtype, shape, strides=strides or None, offset=offset,
        read=bool(use & READ) or not use, written=bool(use & WRITE), span=buffer.span,
    )  # fmt: skip


def offset_bytes(leaf: Leaf) -> tir.Expr:
    """Return the bytes from the kernel's pointer to the tensor's first element."""
    assert leaf.dtype is not None
    if leaf.offset is None:
        return tir.IntImm(INT64, 0)
    return c.mul(leaf.offset, leaf.dtype.bytes * leaf.dtype.lanes)
