"""Scalarise vector expressions lane by lane: C has no vector operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children, replace
from mlcc.ir.tir import Expr
from mlcc.targets.source.dialect import refuse

Loads = Mapping[int, list[Expr]]  # id of a load -> its lanes


class Lanes:
    """Extract lanes of vector expressions. `vectors` maps vector variables to the scalar variables of their lanes."""

    def __init__(self) -> None:
        self.vectors: dict[tir.Var, list[tir.Var]] = {}

    def of(self, node: Expr, lane: int, loads: Loads) -> Expr:
        """Return a lane of an expression; a scalar is returned unchanged. Raises CompileError."""
        if node.dtype.lanes == 1 and not loads:
            return node
        match node:
            case tir.Var() if node.dtype.lanes > 1:
                return self.vectors[node][lane]
            case tir.Ramp():
                return c.add(node.base, c.mul(node.stride, c.const(lane, node.stride.dtype)))
            case tir.Broadcast():
                return self.of(node.value, lane % node.value.dtype.lanes, loads)
            case tir.BufferLoad() if node.dtype.lanes > 1:
                return loads[id(node)][lane]
            case tir.Shuffle():
                return self._shuffle_lane(node, lane, loads)
            case tir.BinaryOp():
                return type(node)(
                    node.dtype.element, self.of(node.lhs, lane, loads), self.of(node.rhs, lane, loads), span=node.span
                )
            case tir.Cast() | tir.Not():
                value = self.of(node.value, lane, loads)
                return replace(node, dtype=node.dtype.element, value=value)
            case tir.Select():
                a, t, f = (self.of(x, lane, loads) for x in (node.condition, node.true_value, node.false_value))
                return tir.Select(node.dtype.element, a, t, f, span=node.span)
            case tir.Call(op=tir.Op(name=name)):
                return self._call(node, name.removeprefix("tir."), lane, loads)
        if node.dtype.lanes == 1:
            return node
        raise refuse(f"a vector `{type(node).__name__}` has no source form", node.span)

    def _call(self, node: tir.Call, name: str, lane: int, loads: Loads) -> Expr:
        if name in ("vectorlow", "vectorhigh"):
            first = node.dtype.lanes if name == "vectorhigh" else 0
            return self.of(node.args[0], first + lane, loads)
        if name == "vectorcombine":
            low, high = node.args[:2]
            count = low.dtype.lanes
            return self.of(low, lane, loads) if lane < count else self.of(high, lane - count, loads)
        if name == "get_active_lane_mask":
            base, limit = node.args
            return c.less(c.add(base, c.const(lane, base.dtype)), limit)
        if name == "dp4a":
            return node
        args = tuple(self.of(a, lane, loads) for a in node.args)
        return tir.Call(node.dtype.element, node.op, args, span=node.span)

    def _shuffle_lane(self, node: tir.Shuffle, lane: int, loads: Loads) -> Expr:
        number = tir.const_int(node.indices[lane])
        for source in node.vectors:
            count = source.dtype.lanes
            if number is not None and number < count:
                return self.of(source, number, loads)
            number = None if number is None else number - count
        raise refuse("a shuffle with computed lanes has no source form", node.span)


def vector_loads(
    node: Expr, visit: Callable[[tir.BufferLoad, tuple[Expr, ...]], None], guards: tuple[Expr, ...] = ()
) -> None:
    """Call `visit` for every vector load in an expression, inner ones first, with the conditions that guard it.

    The address may be invalid if a guard is false.
    """
    if isinstance(node, tir.Call) and getattr(node.op, "name", "") == "tir.if_then_else":
        condition, then, otherwise = node.args
        vector_loads(condition, visit, guards)
        vector_loads(then, visit, (*guards, condition))
        vector_loads(otherwise, visit, (*guards, c.logical_not(condition)))
        return
    for child in children(node):
        if isinstance(child, Expr):
            vector_loads(child, visit, guards)
    if isinstance(node, tir.BufferLoad) and node.dtype.lanes > 1:
        visit(node, guards)
