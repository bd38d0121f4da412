"""Resolve views (`T.match_buffer` in a block, buffers declared over a pointer) to accesses of the viewed memory.

Afterwards each piece of memory has one name, that of its allocation or parameter, wherever views are over memory of the
same element type, from an offset that is known by its variables. Others stay. Names of small integer expressions (the
strides and offsets of views) become these, and what is asserted of them goes where it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.buffer_offsets import OffsetBuffer, OffsetCopier
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.flatten import flat_buffer
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_MAX_INLINED_NODES = 64  # nodes of a value that takes the place of its name


def resolve_views(func: tir.PrimFunc) -> tir.PrimFunc:
    """Resolve the views of `func`, flat loop code."""
    resolver = _Resolver(func)
    body = resolver.body(func.body)
    return replace(func, body=(*resolver.flat, *body))


class _Resolver(OffsetCopier):
    """Replace accesses of views; other binders stay. `flat` declares parameters that only views refer to."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self._known: dict[tir.Var, OffsetBuffer] = {}
        super().__init__({}, self._known)
        self.flat: list[Stmt] = []
        self._analyzer = Analyzer()
        self._loops = 0  # the number of enclosing loops
        self._roots = {b.data: b for b in func.buffers if b is not None}

    def binder(self, node: tir.Var) -> tir.Var:
        return node

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        self._roots[node.buffer.data] = node.buffer
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(self.expr(node.min), self.expr(node.extent)))
        self._loops += 1
        loop = super().stmt_for(node)
        self._loops -= 1
        return loop

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        value = self.expr(node.value)
        if node.var.dtype.is_int and is_pure(value) and sum(1 for _ in walk(value)) <= _MAX_INLINED_NODES:
            self.values[node.var] = value
            return []
        return replace(node, value=value)

    def stmt_assert(self, node: tir.AssertStmt) -> Stmt | list[Stmt]:
        condition = self.expr(node.condition)
        return [] if self._analyzer.prove(condition) else replace(node, condition=condition)

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        view, pointer = node.buffer, self.expr(node.data)
        offset: Expr = c.const(0)
        match pointer:
            case tir.Var():
                data = pointer
            case tir.Call(op=tir.Op(name="tir.tvm_access_ptr"), args=(kind, tir.Var() as data, offset, _, _)):
                if kind.dtype is not view.dtype:
                    return replace(node, buffer=self.buffer_binder(view), data=pointer)
            case _:
                return replace(node, buffer=self.buffer_binder(view), data=pointer)
        root = self._roots.get(data)
        # the flat form of a parameter, declared before all loops; in source code, views also have the data
        is_flat_form = root is not None and data is view.data and not _is_flat(root) and not self._loops
        if root is None or is_flat_form:
            self._roots.setdefault(view.data, view)
            if data is view.data:
                self._roots[data] = view
            return replace(node, buffer=self.buffer_binder(view), data=pointer)
        if root.dtype is not view.dtype or not is_pure(offset):
            return replace(node, buffer=self.buffer_binder(view), data=pointer)
        if not _is_flat(root):
            root = self._roots[data] = flat_buffer(root)
            self.flat.append(tir.DeclBuffer(root, data))
        self._known[view.data] = OffsetBuffer(root, offset)
        return []


def _is_flat(buffer: tir.Buffer) -> bool:
    return len(buffer.shape) == 1 and not buffer.strides


@dataclass(frozen=True)
class ResolveViews(LoweringStep):
    """Replace accesses of views by accesses of the viewed buffers.

    Before:  V_1[i * s + j], a view of S_1 with s = 64
    After:   S_1[i * 64 + j]
    """

    name: ClassVar[str] = "resolve-views"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return resolve_views(func)
