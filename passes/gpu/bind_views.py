"""Bind the strides and offsets of views in kernels, once the layout of the memory that they view is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Stmt
from mlcc.passes.lowering.match_buffer import match, viewed_region, with_strides
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def bind_views(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (loop code with symbolic views, see `realize_blocks`) with all views bound."""
    known = {n for b in func.buffers if b is not None for n in walk(b) if isinstance(n, tir.Var)}
    return replace(func, body=_ViewBinder({*func.params, *known}).body(func.body))


class _ViewBinder(TirMutator):
    def __init__(self, defined: set[tir.Var]) -> None:
        self._defined = defined
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}

    def binder(self, node: tir.Var) -> tir.Var:
        self._defined.add(node)
        return node

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        source_region = viewed_region(self.expr(node.data))
        if source_region is None:
            return super().stmt_decl(node)
        source, region = source_region
        view = with_strides(node.buffer, source)
        if view is not node.buffer:
            self._buffers[node.buffer] = view
        return match(view, source, region, self._defined)


@dataclass(frozen=True)
class BindViews(LoweringStep):
    """Bind the strides and offsets of views, once the layout of the memory that they view is known.

    Before:  V = T.match_buffer(S[0:16, 0:16], strides=[s, 1])
    After:   V is S from its offset, with s = 64
    """

    name: ClassVar[str] = "bind-views"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return bind_views(func)
