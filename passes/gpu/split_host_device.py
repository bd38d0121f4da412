"""Outline kernels: each kernel in the form of `form_kernels` becomes a function that the host code launches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, walk
from mlcc.ir.tir import IterKind, Stmt
from mlcc.passes.gpu.device import KERNEL, TENSOR_MAPS, VOID
from mlcc.passes.gpu.form_kernels import thread_nest
from mlcc.passes.gpu.tensor_map import TensorMap
from mlcc.passes.gpu.tensor_map_parameters import with_map_parameters
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.passes.manage.stages import FLAT, KERNELS


def split_host_device(name: str, func: tir.PrimFunc, taken: Collection[str] = ()) -> dict[str, tir.PrimFunc]:
    """Return the host code of a function, under its name, and the kernels that it launches.

    A kernel is called `{name}_kernel`, with a number added if `taken` has that name. Raises CompileError E0777."""
    splitter = _KernelOutliner(name, func, taken)
    host = tir.PrimFunc(
        func.params, func.buffers, func.attrs.without(KERNEL), splitter.body(func.body), func.ret_dtype, span=func.span
    )
    return {name: host, **splitter.kernels}


class _KernelOutliner(TirMutator):
    """Replace kernels by launches."""

    def __init__(self, name: str, func: tir.PrimFunc, taken: Collection[str]) -> None:
        self._func = func
        self._name = name
        self._taken = taken
        buffers = [b for b in func.buffers if b is not None]
        order = [*(b.data for b in buffers), *func.params, *symbols_of(func)]
        self._order = {var: at for at, var in reversed(list(enumerate(order)))}
        self._buffers = {b.data: b for b in buffers}  # global memory
        self.kernels: dict[str, tir.PrimFunc] = {}

    def expr(self, node: tir.Expr) -> tir.Expr:
        return node

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt:
        self._buffers[node.buffer.data] = node.buffer
        return node

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        if isinstance(node.data, tir.Var) and node.data in self._buffers:  # the same memory, flat
            self._buffers[node.data] = node.buffer
            if node.buffer.data is node.data:
                return []
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        nest = thread_nest(node)
        if nest is None:
            return super().stmt_for(node)
        loops, body = nest
        body, maps = with_map_parameters(body, {loop.var for loop in loops})
        axes = [loop.var if loop.var.dtype is INT32 else tir.Var(loop.var.name, INT32) for loop in loops]
        pairs = list(zip(axes, loops, strict=True))
        wide = (tir.Bind(loop.var, c.cast(loop.var.dtype, axis)) for axis, loop in pairs if axis is not loop.var)
        body = (*wide, *body)
        params = self._parameters(body, axes, [loop.extent for loop in loops])
        stated = {var: known for var, known in maps.items() if var in params}
        body = (*self._views(body), *body)
        for axis, loop in reversed(pairs):
            body = (_launch_scope(axis, loop, body),)
        name = self._fresh_name()
        self.kernels[name] = self._make_kernel(params, body, stated)
        args = tuple(stated[p].call() if p in stated else p for p in params)
        return [tir.Evaluate(tir.Call(VOID, relax.GlobalVar(name), args), span=node.span)]

    def _parameters(self, body: Body, axes: list[tir.Var], extents: list[tir.Expr]) -> list[tir.Var]:
        """Return the parameters of a kernel: its free variables and those of the shapes of its buffers. Pointers come
        first; otherwise the order is that of the function's parameters.
        """
        free = dict.fromkeys(_free_variables(body, set(axes), extents))
        for buffer in [self._buffers[v] for v in free if v in self._buffers]:
            offset = () if buffer.elem_offset is None else (buffer.elem_offset,)
            sizes = (n for part in (*buffer.shape, *buffer.strides, *offset) for n in walk(part))
            free |= dict.fromkeys(n for n in sizes if isinstance(n, tir.Var))
        after = len(self._order)
        return sorted(free, key=lambda v: (not v.dtype.is_handle, self._order.get(v, after)))

    def _views(self, body: Body) -> list[Stmt]:
        """Return copies of the declarations of the host's buffers that the kernel uses."""
        nodes = [n for stmt in body for n in walk(stmt)]
        known = {n.buffer for n in nodes if isinstance(n, (tir.AllocBuffer, tir.DeclBuffer))}
        used = dict.fromkeys(n for n in nodes if isinstance(n, tir.Buffer) and n not in known)
        return [tir.DeclBuffer(b, b.data) for b in used if b is not self._buffers.get(b.data)]

    def _fresh_name(self) -> str:
        number = len(self.kernels)
        while True:
            name = f"{self._name}_kernel" + (f"_{number}" if number else "")
            if name not in self._taken and name not in self.kernels:
                return name
            number += 1

    def _make_kernel(self, params: list[tir.Var], body: Body, maps: Mapping[tir.Var, TensorMap]) -> tir.PrimFunc:
        buffers = tuple(self._buffers.get(p) for p in params)
        attrs: dict[str, object] = {KERNEL: True}
        if self._func.attrs.get("tir.noalias"):
            attrs["tir.noalias"] = True
        if maps:
            attrs[TENSOR_MAPS] = {var.name: tensor_map.form.as_attribute() for var, tensor_map in maps.items()}
        handles = (  # whose pointers are the buffers' own
            p if b is None else tir.Var(p.name, p.dtype, span=p.span) for p, b in zip(params, buffers, strict=True)
        )
        return tir.PrimFunc(tuple(handles), buffers, Attrs(attrs), body, span=self._func.span)


def _launch_scope(axis: tir.Var, loop: tir.For, body: Body) -> tir.AttrStmt:
    extent = c.cast(INT32, loop.extent)
    where = tir.IterVar(axis, tir.Range(c.const(0), extent), IterKind.THREAD, loop.thread or "", span=loop.span)
    return tir.AttrStmt(where, "thread_extent", extent, body, span=loop.span)


def _free_variables(body: Body, bound: set[tir.Var], extents: list[tir.Expr]) -> list[tir.Var]:
    """Return the free variables of statements and of the extents of a launch, in order of first use. Data variables
    of buffers are included."""
    inside = set(bound)
    used: dict[tir.Var, None] = {}
    for stmt in body:
        for node in walk(stmt):
            match node:
                case tir.Bind(var=var) | tir.For(var=var) | tir.Let(var=var):
                    inside.add(var)
                case tir.AllocBuffer(buffer=buffer) | tir.DeclBuffer(buffer=buffer):
                    inside.add(buffer.data)
            if isinstance(node, tir.Var):
                used.setdefault(node)
            elif isinstance(node, tir.Buffer):
                used.setdefault(node.data)
    used |= dict.fromkeys(n for extent in extents for n in walk(extent) if isinstance(n, tir.Var))
    return [v for v in used if v not in inside]


@dataclass(frozen=True)
class SplitHostDevice(LoweringStep):
    """Outline each kernel as a function that the host code launches by name (TVM: SplitHostDevice).

    Before:  for b in T.thread_binding(8, thread="blockIdx.x"): B[b] = A[b]
    After:   Module.f_kernel(A.data, B.data)
             def f_kernel(A, B): b = T.launch_thread("blockIdx.x", 8); B[b] = A[b]
    """

    name: ClassVar[str] = "split-host-device"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = KERNELS

    def lower_named(
        self, name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions,
        module: IRModule,
    ) -> Mapping[str, tir.PrimFunc]:  # fmt: skip
        return split_host_device(name, func, module.functions)
