"""Handles: opaque names of blocks, loops and sampled integers, as users, scripts and traces hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import INT32


class Handle:
    """A name of a block, loop or integer. Compares by identity; the schedules that it belongs to resolve it."""

    __slots__ = ("__weakref__",)

    def __copy__(self) -> Handle:
        return self

    def __deepcopy__(self, memo: object) -> Handle:
        return self


class BlockRV(Handle):
    """A block. `hint` is the name that it had when the handle was made."""

    __slots__ = ("hint",)

    def __init__(self, hint: str = "") -> None:
        self.hint = hint

    def __repr__(self) -> str:
        return f"<BlockRV {self.hint or '?'}>"


class LoopRV(Handle):
    """A loop. `hint` is the name that its variable had when the handle was made."""

    __slots__ = ("hint",)

    def __init__(self, hint: str = "") -> None:
        self.hint = hint

    def __repr__(self) -> str:
        return f"<LoopRV {self.hint or '?'}>"


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ValueError("division by zero")
    return a // b


def _floormod(a: int, b: int) -> int:
    if b == 0:
        raise ValueError("division by zero")
    return a % b


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": _floordiv, "%": _floormod,
}  # fmt: skip


EXPRESSIONS: dict[str, Callable[[tir.Expr, tir.Expr], tir.Expr]] = {
    "+": construct.add, "-": construct.sub, "*": construct.mul, "//": calls.floordiv, "%": calls.floormod,
}  # fmt: skip

MOST_OPERATIONS = 600  # evaluated and printed by recursion


class ExprRV(Handle):
    """A sampled integer, or arithmetic on sampled integers; it stays symbolic in traces so that decisions can be
    changed.

    `schedule.get` gives its value.
    """

    __slots__ = ("_var", "lhs", "op", "rhs", "size")

    def __init__(self, op: str = "", lhs: ExprRV | int = 0, rhs: ExprRV | int = 0) -> None:
        """Create the expression. Raises ValueError for more than MOST_OPERATIONS operations, counting shared ones each
        time.
        """
        self.op, self.lhs, self.rhs = op, lhs, rhs
        self._var: tir.Var | None = None
        self.size: int = 1 + sum(x.size for x in (lhs, rhs) if isinstance(x, ExprRV))
        if self.size > MOST_OPERATIONS:
            raise ValueError(f"arithmetic over sampled values of more than {MOST_OPERATIONS} operations")

    def __repr__(self) -> str:
        return "<ExprRV>" if self.is_leaf else f"<ExprRV {self.expr}>"

    @property
    def is_leaf(self) -> bool:
        return not self.op

    @property
    def var(self) -> tir.Var:
        """Return the variable that represents a sampled integer inside index maps, always the same one."""
        if self._var is None:
            self._var = tir.Var("v", INT32)
        return self._var

    @property
    def expr(self) -> tir.Expr:
        """The value as a TensorIR expression over the variables of the sampled integers in it."""
        if self.is_leaf:
            return self.var
        sides = (x.expr if isinstance(x, ExprRV) else construct.const(x) for x in (self.lhs, self.rhs))
        return EXPRESSIONS[self.op](*sides)

    def _with(self, op: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, bool) or not isinstance(other, (int, ExprRV)):
            return NotImplemented
        return ExprRV(op, other, self) if swapped else ExprRV(op, self, other)

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("//", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._with("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._with("%", other, True)

    def __neg__(self) -> Any:
        return ExprRV("-", 0, self)
