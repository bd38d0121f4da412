"""Public PrimFuncs as plans: one kernel, called with tensors as the caller passes them."""

from __future__ import annotations

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import Node, children
from mlcc.targets.llvm.dims import Dims, as_number, widen
from mlcc.targets.llvm.plan import CallKernel, HostFunction, Leaf, Memory, Param, Place, Scalar, Tensor, byte_size
from mlcc.targets.llvm.shared import AnyPlanning

_READ, _WRITE = 1, 2


def plan_prim(name: str, func: tir.PrimFunc, shared: AnyPlanning) -> HostFunction:
    """The plan of a public PrimFunc. Raises CompileError for parameters that no caller can pass."""
    dims = Dims()
    symbols = _symbols(func, dims)
    uses = effects(func)
    params: list[Param] = []
    args: list[Tensor | Scalar] = []
    for index, (var, buffer) in enumerate(zip(func.params, func.buffers, strict=True)):
        if buffer is not None:
            leaf = _tensor_leaf(buffer, symbols, dims, uses.get(buffer.data, 0))
            size = byte_size(leaf.dims, buffer.dtype)
            args.append(Tensor(Memory(Place.ARGUMENT, size, buffer.name, index), leaf.dims, buffer.dtype))
        elif var.dtype.is_handle:
            leaf = Leaf(var.name, "pointer", var.dtype, span=var.span)
            args.append(Tensor(Memory(Place.ARGUMENT, tir.IntImm(INT64, 0), var.name, index), (), var.dtype))
        else:
            value = symbols.get(var, var)
            leaf = Leaf(var.name, "scalar", var.dtype, value=value, span=var.span)
            args.append(Scalar(value))
        params.append(Param(leaf.name, leaf))
    kernel = shared.ctx.kernel(name)
    size = dims.simplify(as_number(widen(kernel.workspace, symbols)))
    workspace = None if tir.const_int(size) == 0 else Memory(Place.TEMPORARY, size, name)
    step = CallKernel(name, tuple(args), tuple(symbols[s] for s in kernel.signature.symbols), workspace)
    made = HostFunction(name, "prim", tuple(params), None, _entry_symbols(symbols), [step], dims, func.span)
    made.memories = [] if workspace is None else [workspace]
    return made


def _entry_symbols(symbols: dict[tir.Var, tir.Expr]) -> tuple[tir.Var, ...]:
    return tuple(s for s in symbols.values() if isinstance(s, tir.Var))


def _symbols(func: tir.PrimFunc, dims: Dims) -> dict[tir.Var, tir.Expr]:
    """What every variable of the parameters is known as: a symbol where it stands alone, 0 for an offset."""
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
        shape = tuple(dims.simplify(as_number(widen(d, symbols))) for d in buffer.shape)
        strides = tuple(dims.simplify(as_number(widen(s, symbols))) for s in buffer.strides)
        offset = None if buffer.elem_offset is None else dims.simplify(as_number(widen(buffer.elem_offset, symbols)))
    except CompileError as exc:
        message = f"the shape of `{buffer.name}` cannot be told from what a caller passes: {exc.diagnostics[0].message}"
        raise CompileError(error("E0757", message, buffer.span)) from None
    return Leaf(
        buffer.name, "tensor", buffer.dtype, shape, strides=strides or None, offset=offset,
        read=bool(use & _READ) or not use, written=bool(use & _WRITE), span=buffer.span,
    )  # fmt: skip


# ---------------------------------------------------------------- effects


def effects(func: tir.PrimFunc) -> dict[tir.Var, int]:
    """By data variable: 1 if the function reads that memory, 2 if it writes it, 3 if both.

    Memory whose address goes elsewhere (to an extern or packed function) counts as both, unless the access pointer
    says less.
    """
    found: dict[tir.Var, int] = {}
    alias: dict[tir.Var, tir.Var] = {}
    for var, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is not None:
            alias[var] = buffer.data

    def note(var: tir.Var, use: int) -> None:
        while var in alias:
            var = alias[var]
        found[var] = found.get(var, 0) | use

    def visit(node: Node) -> None:
        match node:
            case tir.Block(match_buffers=matches):
                for match in matches:
                    alias[match.buffer.data] = match.source.buffer.data
                for part in (*node.iter_vars, *node.body, *(node.init or ())):
                    visit(part)
                return
            case tir.DeclBuffer(buffer=buffer, data=tir.Var() as data):
                if data is not buffer.data:
                    alias[buffer.data] = data
                return
            case tir.AllocBuffer():
                return
            case tir.BufferLoad(buffer=buffer, indices=indices):
                note(buffer.data, _READ)
                for index in indices:
                    visit(index)
                return
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                note(buffer.data, _WRITE)
                for part in (value, *indices):
                    visit(part)
                return
            case tir.Call(op=tir.Op(name="tir.tvm_access_ptr"), args=(_, tir.Var() as data, *_, mask)):
                note(data, (tir.const_int(mask) or 3) & 3)
                return
            case tir.Call(op=tir.Op(name="tir.address_of"), args=(tir.BufferLoad(buffer=buffer, indices=indices),)):
                note(buffer.data, _READ | _WRITE)
                for index in indices:
                    visit(index)
                return
            case tir.Var() if node.dtype.is_handle:
                note(node, _READ | _WRITE)
                return
        for child in children(node):
            visit(child)

    for stmt in func.body:
        visit(stmt)
    return found


def offset_bytes(leaf: Leaf) -> tir.Expr:
    """Bytes from where the kernel's pointer points to the tensor's first element."""
    assert leaf.dtype is not None
    if leaf.offset is None:
        return tir.IntImm(INT64, 0)
    return c.mul(leaf.offset, leaf.dtype.bytes * leaf.dtype.lanes)
