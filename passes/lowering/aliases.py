"""Which data variables name the same memory, and the same place in it."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.passes.lowering.mutator import TirMutator


@dataclass(frozen=True, slots=True)
class Place:
    """`root` is the variable that the memory was made or passed with (None: unknown); equal `at` is one address."""

    root: tir.Var | None
    at: tir.Var


class Aliases:
    """Views and pointers, in the order in which they are bound. Memory of distinct roots does not overlap."""

    def __init__(self) -> None:
        self._places: dict[tir.Var, Place] = {}

    def of(self, var: tir.Var) -> Place:
        """Where a handle variable points to."""
        return self._places.get(var) or Place(var, var)

    def bind(self, var: tir.Var, pointer: tir.Expr) -> None:
        """Take it that `var` is `pointer`."""
        if pointer is not var:
            self._places[var] = self._place(var, pointer)

    def _place(self, var: tir.Var, pointer: tir.Expr) -> Place:
        if isinstance(pointer, tir.Var):
            return self.of(pointer)
        into = called(pointer).into
        if isinstance(pointer, tir.Call) and into is not None:
            base = pointer.args[into]
            if isinstance(base, tir.BufferLoad):
                base = base.buffer.data
            return Place(self._place(var, base).root, var)
        return Place(None, var)


class AliasMutator(TirMutator):
    """Rewrites statements, expressions stay; `_aliases` has what was bound on the way."""

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
