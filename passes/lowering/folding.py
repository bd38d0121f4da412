"""Substitution with constant folding, and copies of code with fresh variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.mutator import Body, TirMutator

_FOLD: dict[type, Callable[[Any, Any], Expr]] = {
    tir.Add: c.add, tir.Sub: c.sub, tir.Mul: c.mul, tir.FloorDiv: c.floordiv, tir.FloorMod: c.floormod, tir.Div: c.div,
    tir.Mod: c.truncmod, tir.Min: c.minimum, tir.Max: c.maximum, tir.EQ: c.equal, tir.NE: c.not_equal, tir.LT: c.less,
    tir.LE: c.less_equal, tir.GT: c.greater, tir.GE: c.greater_equal, tir.And: c.logical_and, tir.Or: c.logical_or,
}  # fmt: skip


_IF_THEN_ELSE = tir.Op("tir.if_then_else")


class Folding(TirMutator):
    """Substitute variables, fold integer arithmetic, and remove branches whose conditions are constant."""

    def __init__(self, values: dict[tir.Var, Expr]) -> None:
        self.values = values

    def var(self, node: tir.Var) -> Expr:
        return self.values.get(node, node)

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        lhs, rhs = self.expr(node.lhs), self.expr(node.rhs)
        if lhs is node.lhs and rhs is node.rhs:
            return node
        if not lhs.dtype.is_float and not _zero_divisor(node, rhs):
            return _FOLD[type(node)](lhs, rhs)
        return type(node)(node.dtype, lhs, rhs, span=node.span)

    def expr_cast(self, node: tir.Cast) -> Expr:
        value = self.expr(node.value)
        if value is node.value:
            return node
        if isinstance(value, tir.IntImm) and node.dtype.is_int:
            return c.cast(node.dtype, value)
        return tir.Cast(node.dtype, value, span=node.span)

    def expr_call(self, node: tir.Call) -> Expr:
        if node.op is not _IF_THEN_ELSE and node.op != _IF_THEN_ELSE:
            return super().expr_call(node)
        condition = self.expr(node.args[0])
        known = known_condition(condition)
        if known is not None:
            return self.expr(node.args[1 if known else 2])
        sides = self.exprs(node.args[1:])
        if condition is node.args[0] and sides == node.args[1:]:
            return node
        return tir.Call(node.dtype, node.op, (condition, *sides), span=node.span)

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        condition = self.expr(node.condition)
        known = known_condition(condition)
        if known is not None:
            return list(self.body(node.then_body if known else node.else_body or ()))
        then = self.body(node.then_body)
        other = None if node.else_body is None else self.body(node.else_body)
        return replace(node, condition=condition, then_body=then, else_body=other)


def known_condition(node: Expr) -> int | None:
    """Return 1 for a condition that holds (in all lanes), 0 for one that fails (in all lanes), None if unknown."""
    if isinstance(node, tir.And):
        sides = (known_condition(node.lhs), known_condition(node.rhs))
        return 0 if 0 in sides else 1 if sides == (1, 1) else None
    if node.dtype.lanes > 1 and isinstance(node, (tir.LT, tir.LE, tir.GT, tir.GE)):
        ends = [_end_lanes(side) for side in (node.lhs, node.rhs)]
        if None in ends:
            return None
        outcomes = {tir.const_int(_FOLD[type(node)](c.const(a), c.const(b))) for a in ends[0] for b in ends[1]}  # type: ignore[union-attr]
        return outcomes.pop() if len(outcomes) == 1 else None
    return tir.const_int(node)


def _end_lanes(node: Expr) -> tuple[int, int] | None:
    """Return the first and the last lane of a vector of constants with a constant step."""
    if isinstance(node, tir.Broadcast):
        value = tir.const_int(node.value)
        return None if value is None else (value, value)
    if isinstance(node, tir.Ramp):
        base, stride = tir.const_int(node.base), tir.const_int(node.stride)
        return None if base is None or stride is None else (base, base + stride * (node.lanes - 1))
    return None


def _zero_divisor(node: tir.BinaryOp, rhs: Expr) -> bool:
    return isinstance(node, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)) and tir.const_int(rhs) == 0


class Copier(Folding):
    """Copy code with a fresh variable or buffer for each one that it binds."""

    def __init__(self, values: dict[tir.Var, Expr]) -> None:
        super().__init__(dict(values))
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}

    def binder(self, node: tir.Var) -> tir.Var:
        var = tir.Var(node.name, node.dtype, node.pointer, span=node.span)
        self.values[node] = var
        return var

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        copy = self._buffers.get(node)
        if copy is None:
            copy = self._buffers[node] = self._copy_buffer(node)
        return copy

    def buffer_binder(self, node: tir.Buffer) -> tir.Buffer:
        if node.data not in self.values:
            self.binder(node.data)
        self._buffers.pop(node, None)
        return self.buffer(node)

    def _copy_buffer(self, node: tir.Buffer) -> tir.Buffer:
        """Return the buffer over the copy's variables."""
        data = self.values.get(node.data, node.data)
        offset = None if node.elem_offset is None else self.expr(node.elem_offset)
        return replace(
            node, data=data, shape=self.exprs(node.shape), strides=self.exprs(node.strides), elem_offset=offset
        )

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        start, extent = self.expr(node.min), self.expr(node.extent)
        step = None if node.step is None else self.expr(node.step)
        var = self.binder(node.var)
        return replace(
            node, var=var, min=start, extent=extent, step=step, body=self.body(node.body),
            annotations=self.annotations(node.annotations),
        )  # fmt: skip


def copy_body(body: Body, values: dict[tir.Var, Expr]) -> Body:
    """Return a copy of statements with variables replaced and fresh binders."""
    return Copier(values).body(body)
