"""Loop code with thread-bound loops and launch scopes: what each outermost of them holds becomes a kernel."""

from __future__ import annotations

from dataclasses import replace

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32, INT64
from mlcc.ir.node import walk
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.passes.lowering.mutator import Body, Mutator


def split_host_device(name: str, func: tir.PrimFunc) -> DeviceProgram:
    """The kernels of a function and the host code that launches them. Raises CompileError for code outside of them."""
    splitter = _Splitter(name, func)
    host = splitter.body(func.body)
    attrs = {"tir.noalias": True} if func.attrs.get("tir.noalias") else {}
    return DeviceProgram(func, host, tuple(replace(kernel, attrs=attrs) for kernel in splitter.kernels))


def thread_axis(stmt: Stmt) -> tuple[str, tir.Var, tir.Expr] | None:
    """The thread axis that a loop or launch scope binds, its variable and its extent."""
    match stmt:
        case tir.For(kind=ForKind.THREAD_BINDING, thread=str(tag)):
            return tag, stmt.var, stmt.extent
        case tir.AttrStmt(key="thread_extent", subject=tir.IterVar(thread_tag=tag, var=var)):
            return tag, var, c.as_expr(stmt.value)
    return None


class _Splitter(Mutator):
    """Leaves a launch where a kernel stood."""

    def __init__(self, name: str, func: tir.PrimFunc) -> None:
        self._name = name
        self._of_params = {b.data: b for b in func.buffers if b is not None}
        self._on_chip: list[tir.AllocBuffer] = []  # allocations around kernels that belong into one
        self.kernels: list[DeviceKernel] = []

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        if node.buffer.scope == "global":
            return node
        self._on_chip.append(node)
        return []

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        if isinstance(node.data, tir.Var) and node.data in self._of_params:
            self._of_params[node.data] = node.buffer
            return []
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        return self._kernel(node) if thread_axis(node) else super().stmt_for(node)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        return self._kernel(node) if thread_axis(node) else super().stmt_attr(node)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        text = f"`{node.buffer.name}` is written outside of thread-bound loops"
        raise CompileError(error("E0720", text, node.span, "a host cannot write to a device's memory"))

    def _kernel(self, node: Stmt) -> list[Stmt]:
        number = len(self.kernels)
        name = f"{self._name}_kernel" + (f"_{number}" if number else "")
        threads = _Threads()
        body = threads.body((node,))
        used = {n for s in body for n in walk(s) if isinstance(n, tir.Var)}
        used |= {n.data for s in body for n in walk(s) if isinstance(n, tir.Buffer)}
        mine = [a for a in self._on_chip if a.buffer.data in used]
        body = (*mine, *body)
        free = _free(body, set(threads.axes.values()))
        order = {data: at for at, data in enumerate(self._of_params)}
        params = tuple(sorted(free, key=lambda v: (not v.dtype.is_handle, order.get(v, len(order)))))
        self.kernels.append(
            DeviceKernel(
                name,
                params,
                tuple(self._of_params.get(p) for p in params),
                threads.extents,
                threads.axes,
                body,
                _dynamic_bytes(body),
            )  # fmt: skip
        )
        return [tir.Evaluate(tir.Call(INT32, relax.GlobalVar(name), params), span=node.span)]


class _Threads(Mutator):
    """Puts the thread axes in place of the variables of thread-bound loops."""

    def __init__(self) -> None:
        self.extents: dict[str, tir.Expr] = {}
        self.axes: dict[str, tir.Var] = {}

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        return self._scope(node) or super().stmt_for(node)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        return self._scope(node) or super().stmt_attr(node)

    def _scope(self, node: tir.For | tir.AttrStmt) -> list[Stmt] | None:
        found = thread_axis(node)
        if found is None:
            return None
        tag, var, extent = found
        if tag not in (*GRID, *BLOCK):
            raise CompileError(error("E0721", f"`{tag}` is no axis of a launch", node.span))
        known = self.extents.setdefault(tag, extent)
        axis = self.axes.setdefault(tag, tir.Var(tag, INT32))
        body = self.body(node.body)
        inner: tuple[Stmt, ...] = (tir.Bind(var, c.cast(var.dtype, axis)), *body)
        most, mine = tir.const_int(known), tir.const_int(extent)
        if most is None or mine is None or mine < most:
            return [tir.IfThenElse(c.less(c.cast(var.dtype, axis), c.cast(var.dtype, extent)), inner)]
        return list(inner)


def _free(body: Body, bound: set[tir.Var]) -> list[tir.Var]:
    """Variables, data of buffers included, that the statements do not bind, in order of first use."""
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
    return [v for v in found if v not in inside]


def _dynamic_bytes(body: Body) -> tir.Expr:
    total: tir.Expr = tir.IntImm(INT64, 0)
    for stmt in body:
        for node in walk(stmt):
            if isinstance(node, tir.AllocBuffer) and node.buffer.scope == "shared.dyn":
                size: tir.Expr = tir.IntImm(INT64, node.buffer.dtype.bytes * node.buffer.dtype.lanes)
                for dim in node.buffer.shape:
                    size = c.mul(size, c.cast(INT64, dim))
                total = c.add(total, size)
    return total
