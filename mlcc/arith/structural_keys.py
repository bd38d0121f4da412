"""Structural keys of expressions: equal keys mean the same expression, variables and buffers by identity."""

from __future__ import annotations

from typing import Any

from mlcc.ir import tir
from mlcc.ir.node import Node, semantic_field_names


class StructuralKeys:
    """Numbers expressions so that structurally equal ones get one number; each node is visited once."""

    def __init__(self) -> None:
        self._by_id: dict[int, int] = {}
        self._by_form: dict[tuple[Any, ...], int] = {}
        self._keep_alive: list[Any] = []  # keeps the ids of the nodes seen from being used again

    def key(self, expr: Any) -> int:
        """Return the number of `expr`."""
        known = self._by_id.get(id(expr))
        if known is not None:
            return known
        form: tuple[Any, ...]
        if isinstance(expr, tir.BinaryOp):  # most that there are: by name, not field by field
            form = (type(expr), expr.dtype, self.key(expr.lhs), self.key(expr.rhs))
        elif isinstance(expr, tir.IntImm):
            form = (tir.IntImm, expr.dtype, expr.value)
        else:
            form = self._form(expr)
        number = self._by_form.setdefault(form, len(self._by_form))
        self._by_id[id(expr)] = number
        self._keep_alive.append(expr)
        return number

    def seen(self, expr: Any) -> bool:
        """Return True if `expr`, this very object, has been numbered, directly or inside another expression."""
        return id(expr) in self._by_id

    def same(self, a: Any, b: Any) -> bool:
        """Return True if both are structurally equal."""
        return a is b or self.key(a) == self.key(b)

    def _form(self, expr: Any) -> tuple[Any, ...]:
        if isinstance(expr, (tir.Var, tir.Buffer)) or not isinstance(expr, Node):
            return (id(expr),)
        return (type(expr), *(self._part(getattr(expr, name)) for name in semantic_field_names(type(expr))))

    def _part(self, value: Any) -> Any:
        if isinstance(value, Node):
            return ("#", self.key(value))
        if isinstance(value, tuple):
            return tuple(self._part(v) for v in value)
        if isinstance(value, float):
            return (value, str(value))  # 0.0 and -0.0 differ, nan equals itself
        return value


def same_expr(a: Any, b: Any) -> bool:
    """Return True if two expressions are structurally equal."""
    return a is b or StructuralKeys().same(a, b)
