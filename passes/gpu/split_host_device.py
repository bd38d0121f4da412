"""Kernels in the form of `form_kernels` become kernels of their own, launched where they stood."""

from __future__ import annotations

from dataclasses import replace

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.checked import INDEX, checked_index
from mlcc.ir.dtypes import HANDLE, INT32
from mlcc.ir.node import walk
from mlcc.ir.tir import Stmt
from mlcc.passes.gpu.device import DeviceKernel, DeviceProgram
from mlcc.passes.gpu.form_kernels import thread_nest
from mlcc.passes.gpu.shared_layout import dynamic_layout
from mlcc.passes.gpu.tensor_map_parameters import with_map_parameters
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.symbols import symbols_of


def split_host_device(name: str, func: tir.PrimFunc) -> DeviceProgram:
    """The kernels of a function, called `{name}_kernel` and on, and the host code that launches them."""
    splitter = _Splitter(name, func)
    host = splitter.body(func.body)
    attrs = {"tir.noalias": True} if func.attrs.get("tir.noalias") else {}
    return DeviceProgram(func, host, tuple(replace(kernel, attrs=attrs) for kernel in splitter.kernels))


class _Splitter(TirMutator):
    """Leaves a launch where a kernel stood."""

    def __init__(self, name: str, func: tir.PrimFunc) -> None:
        self._name = name
        buffers = [b for b in func.buffers if b is not None]
        order = [*(b.data for b in buffers), *func.params, *symbols_of(func)]
        self._order = {var: at for at, var in reversed(list(enumerate(order)))}
        self._buffers = {b.data: b for b in buffers}  # global memory
        self.kernels: list[DeviceKernel] = []

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
        found = thread_nest(node)
        if found is None:
            return super().stmt_for(node)
        loops, body = found
        body, maps = with_map_parameters(body, {loop.var for loop in loops})
        number = len(self.kernels)
        name = f"{self._name}_kernel" + (f"_{number}" if number else "")
        extents: dict[str, tir.Expr] = {}
        axes: dict[str, tir.Var] = {}
        head: list[Stmt] = []
        for loop in loops:
            assert loop.thread is not None
            extents[loop.thread] = loop.extent
            axes[loop.thread] = axis = loop.var if loop.var.dtype is INT32 else tir.Var(loop.var.name, INT32)
            if axis is not loop.var:
                head.append(tir.Bind(loop.var, c.cast(loop.var.dtype, axis)))
        body = (*head, *body)
        asked = [n for e in extents.values() for n in walk(e) if isinstance(n, tir.Var)]
        free = _free(body, set(axes.values()), asked)
        after = len(self._order)
        params = tuple(sorted(free, key=lambda v: (not v.dtype.is_handle, self._order.get(v, after))))
        buffers = tuple(self._buffers.get(p) for p in params)
        stated = {var: known for var, known in maps.items() if var in params}
        asserts = _assertions(body)
        error = (tir.Var("error", HANDLE, tir.PointerType(INT32, "global")),) if asserts else ()
        size = dynamic_layout(body).size
        self.kernels.append(
            DeviceKernel(
                name,
                (*params, *error),
                (*buffers, *[None] * len(error)),
                extents,
                axes,
                body,
                size,
                asserts,
                maps=stated,
            )
        )
        args = tuple(stated[p].call() if p in stated else p for p in params)
        return [tir.Evaluate(tir.Call(INT32, relax.GlobalVar(name), args), span=node.span)]


def _assertions(body: Body) -> tuple[tuple[str, str], ...]:
    """Kinds and messages of the assertions and index checks that may fail, each once."""
    found: dict[tuple[str, str], None] = {}
    for stmt in body:
        for node in walk(stmt):
            if isinstance(node, tir.AssertStmt) and not tir.const_int(node.condition):
                found.setdefault((node.kind, "".join(node.message)))
            elif (check := checked_index(node)) is not None:
                found.setdefault((INDEX, check.message))
    return tuple(found)


def _free(body: Body, bound: set[tir.Var], asked: list[tir.Var]) -> list[tir.Var]:
    """Variables, data of buffers included, that the statements do not bind, in order of first use, and those `asked`
    for."""
    inside = set(bound)
    found: dict[tir.Var, None] = {}
    for stmt in body:
        for node in walk(stmt):
            match node:
                case tir.Bind(var=var) | tir.For(var=var) | tir.Let(var=var):
                    inside.add(var)
                case tir.AllocBuffer(buffer=buffer) | tir.DeclBuffer(buffer=buffer):
                    inside.add(buffer.data)
            if isinstance(node, tir.Var):
                found.setdefault(node)
            elif isinstance(node, tir.Buffer):
                found.setdefault(node.data)
    for var in asked:
        found.setdefault(var)
    return [v for v in found if v not in inside]
