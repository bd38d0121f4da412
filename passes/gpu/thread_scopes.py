"""Provide a mutator that tracks the variables bound to thread axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlcc.ir import tir
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.lowering.mutator import TirMutator


class ThreadMutator(TirMutator):
    def __init__(self) -> None:
        self._scopes: list[tuple[str, tir.Var]] = []

    def thread(self, axis: str) -> tir.Var | None:
        """Return the variable of a thread axis (`threadIdx.x`) at the current statement; None outside of its loops and
        scopes.
        """
        return next((var for tag, var in reversed(self._scopes) if tag == axis), None)

    @contextmanager
    def _within(self, axis: str | None, var: tir.Var) -> Iterator[None]:
        self._scopes.append((axis or "", var))
        yield
        self._scopes.pop()

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        with self._within(node.thread if node.kind is ForKind.THREAD_BINDING else None, node.var):
            return super().stmt_for(node)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        axis = node.subject
        if not isinstance(axis, tir.IterVar):
            return super().stmt_attr(node)
        with self._within(axis.thread_tag, axis.var):
            return super().stmt_attr(node)
