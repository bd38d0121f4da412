"""Alias analysis of data variables: the allocation that each points into, and equality of addresses."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.passes.lowering.mutator import TirMutator


@dataclass(frozen=True, slots=True)
class PointsTo:
    """The target of a pointer. `root` is the variable of the allocation or parameter (None: unknown); equal `at` means
    equal address.
    """

    root: tir.Var | None
    at: tir.Var


class Aliases:
    """The targets of views and pointers, recorded in binding order. Memory of distinct roots does not overlap."""

    def __init__(self) -> None:
        self._points_to: dict[tir.Var, PointsTo] = {}

    def of(self, var: tir.Var) -> PointsTo:
        """Return the place that a handle variable points to."""
        return self._points_to.get(var) or PointsTo(var, var)

    def bind(self, var: tir.Var, pointer: tir.Expr) -> None:
        """Record that `var` equals `pointer`."""
        if pointer is not var:
            self._points_to[var] = self._resolve(var, pointer)

    def _resolve(self, var: tir.Var, pointer: tir.Expr) -> PointsTo:
        if isinstance(pointer, tir.Var):
            return self.of(pointer)
        into = called(pointer).into
        if isinstance(pointer, tir.Call) and into is not None:
            base = pointer.args[into]
            if isinstance(base, tir.BufferLoad):
                base = base.buffer.data
            return PointsTo(self._resolve(var, base).root, var)
        return PointsTo(None, var)


class AliasMutator(TirMutator):
    """Base of mutators that need aliases: `_aliases` has the pointers bound so far. Expressions stay unchanged."""

    def __init__(self) -> None:
        self._aliases = Aliases()

    def expr(self, node: tir.Expr) -> tir.Expr:
        return node

    def stmt_decl(self, node: tir.DeclBuffer) -> tir.Stmt:
        self._aliases.bind(node.buffer.data, node.data)
        return node

    def stmt_bind(self, node: tir.Bind) -> tir.Stmt:
        if node.var.dtype.is_handle:
            self._aliases.bind(node.var, node.value)
        return node
