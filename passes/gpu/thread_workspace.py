"""Allocate thread-private temporaries of a size known only at the launch in global memory, one part for each thread.

    for b in T.thread_binding(n, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            K = T.alloc_buffer((m,), "float32")
            K[i] = ...

becomes

    K = T.alloc_buffer((n, 64, m), "float32")
    for b in T.thread_binding(n, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            K[b, t, i] = ...

where the host knows all of these numbers, and nothing but loads and stores names the buffer. Local memory, where
temporaries of constant size lie, has no such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import holds, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import used_vars
from mlcc.passes.gpu.thread_axes import thread_axis
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def allocate_thread_memory(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (without blocks) with such temporaries allocated by the host."""
    return replace(func, body=_WorkspaceAllocator().body(func.body))


class _WorkspaceAllocator(TirMutator):
    def __init__(self) -> None:
        self._open: list[tuple[str, Expr, Expr]] = []  # of bound loops around: axis, place, extent
        self._tags: set[str] = set()  # of the current kernel
        self._inside: set[tir.Var] = set()  # variables defined inside the kernel
        self._address_taken: set[tir.Var] = set()  # data that something else than loads and stores uses
        self._hoisted: list[Stmt] = []
        self._workspaces: dict[tir.Buffer, tuple[tir.Buffer, tuple[Expr, ...]]] = {}

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        axis = thread_axis(node)
        if axis is None:
            return super().stmt_for(node)
        tag, var, extent = axis
        return self._bound(node, (tag, c.sub(var, node.min), extent))

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        axis = thread_axis(node)
        return super().stmt_attr(node) if axis is None else self._bound(node, axis)

    def _bound(self, node: tir.For | tir.AttrStmt, axis: tuple[str, Expr, Expr]) -> Stmt | list[Stmt]:
        outermost = not self._open
        if outermost:
            self._scan(node)
        self._open.append(axis)
        body = self.body(node.body)
        self._open.pop()
        stmt = node if body is node.body else replace(node, body=body)
        if not outermost:
            return stmt
        before, self._hoisted = self._hoisted, []
        return [*before, stmt]

    def _scan(self, kernel: Stmt) -> None:
        self._tags, self._inside, self._address_taken = set(), set(), set()
        for node in walk(kernel):
            match node:
                case tir.For(var=var) | tir.Bind(var=var) | tir.Let(var=var) | tir.IterVar(var=var):
                    self._inside.add(var)
                case tir.DeclBuffer(data=data):
                    self._address_taken |= used_vars(data)
                case tir.Call(args=args):
                    self._address_taken.update(a for a in args if isinstance(a, tir.Var))
            if isinstance(node, (tir.For, tir.AttrStmt)) and (axis := thread_axis(node)):
                self._tags.add(axis[0])

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        old = node.buffer
        if not self._open or old.scope != "global" or all(tir.const_int(d) is not None for d in old.shape):
            return node
        tags = [tag for tag, _, _ in self._open]
        if set(tags) != self._tags or len(tags) != len(self._tags) or old.strides or old.data in self._address_taken:
            return node
        extents = tuple(extent for _, _, extent in self._open)
        if any(used_vars(d) & self._inside or _has_loads(d) for d in (*extents, *old.shape)):
            return node
        wide = c.make_buffer(old.name, (*extents, *old.shape), old.dtype)
        self._hoisted.append(tir.AllocBuffer(wide, span=node.span))
        self._workspaces[old] = wide, tuple(place for _, place, _ in self._open)
        return []

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        indices = self.exprs(node.indices)
        if node.buffer not in self._workspaces:
            return node if indices is node.indices else replace(node, indices=indices)
        wide, part = self._workspaces[node.buffer]
        return replace(node, buffer=wide, indices=(*part, *indices))

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        store = super().stmt_store(node)
        assert isinstance(store, tir.BufferStore)
        if store.buffer not in self._workspaces:
            return store
        wide, part = self._workspaces[store.buffer]
        return replace(store, buffer=wide, indices=(*part, *store.indices))


def _has_loads(expr: Expr) -> bool:
    return holds(expr, tir.BufferLoad)


@dataclass(frozen=True)
class AllocateThreadMemory(LoweringStep):
    """Allocate thread-private temporaries of a size known only at the launch in global memory.

    Before:  in each thread: K = T.alloc_buffer((m,)); K[i] = ...
    After:   K = T.alloc_buffer((n, 64, m)); in each thread: K[b, t, i] = ...
    """

    name: ClassVar[str] = "allocate-thread-memory"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return allocate_thread_memory(func)
