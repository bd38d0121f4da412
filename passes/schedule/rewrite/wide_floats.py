"""Arithmetic on 16- and 8-bit floats computed in a wider type: operands are extended as they are loaded, results are
rounded as they are stored."""

from __future__ import annotations

from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import called
from mlcc.ir.node import map_children, replace


def is_narrow(dtype: DType) -> bool:
    """A float of less than 32 bits."""
    return dtype.is_float and dtype.bits < 32


class WideFloats:
    """Compute narrow floats in the type `to`."""

    def __init__(self, to: DType) -> None:
        self._to = to
        self._values: dict[tir.Var, tir.Var] = {}

    def body(self, body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
        return tuple(map(self._stmt, body))

    def _stmt(self, stmt: Any) -> Any:
        match stmt:
            case tir.BufferStore(value=value):
                return replace(stmt, value=self._narrow(value), indices=tuple(map(self._expr, stmt.indices)))
            case tir.Bind(var=var, value=value) if is_narrow(var.dtype):
                wide = self._values[var] = tir.Var(var.name, self._wide_dtype(var.dtype))
                return replace(stmt, var=wide, value=self._wide(value))
            case tir.Stmt():
                return map_children(stmt, lambda n: self._stmt(n) if isinstance(n, tir.Stmt) else self._expr(n))
        return stmt

    def _wide_dtype(self, dtype: DType) -> DType:
        return self._to.with_lanes(dtype.lanes)

    def _narrow(self, node: tir.Expr) -> tir.Expr:
        """Return a value of the same type whose operands are computed in the wide type."""
        if not is_narrow(node.dtype):
            return self._expr(node)  # type: ignore[no-any-return]
        if isinstance(node, (tir.BufferLoad, tir.FloatImm)) or (isinstance(node, tir.Var) and node not in self._values):
            return self._expr(node)  # type: ignore[no-any-return]
        if isinstance(node, tir.Cast) and not is_narrow(node.value.dtype):  # rounded once, from what it is
            return replace(node, value=self._expr(node.value))
        return tir.Cast(node.dtype, self._wide(node))

    def _expr(self, node: Any) -> Any:
        """Return an expression that is not a narrow float, or is kept, with its operands rewritten."""
        match node:
            case tir.Cast(dtype=dtype, value=value) if is_narrow(value.dtype):
                inner = self._wide(value)
                return inner if inner.dtype is dtype else replace(node, value=inner)
            case tir.CompareOp(lhs=lhs, rhs=rhs) if is_narrow(lhs.dtype):
                return replace(node, lhs=self._wide(lhs), rhs=self._wide(rhs))
            case tir.Call(args=args) if any(isinstance(a, tir.Expr) and is_narrow(a.dtype) for a in args) and (
                not is_narrow(node.dtype)
            ):
                keep = called(node).widens  # isnan and its kin
                return replace(node, args=tuple(self._wide(a) if keep else self._narrow(a) for a in args))
            case tir.Var() | tir.Buffer() | tir.Op():
                return node
        return map_children(node, lambda n: self._narrow(n) if isinstance(n, tir.Expr) else n)

    def _wide(self, node: tir.Expr) -> tir.Expr:
        """Return the value of a narrow expression in the wide type, without intermediate rounding."""
        to = self._wide_dtype(node.dtype)
        if not is_narrow(node.dtype):
            return self._expr(node)  # type: ignore[no-any-return]
        match node:
            case tir.FloatImm(value=value):
                return c.const(value, to)
            case tir.Var() if node in self._values:
                return self._values[node]
            case tir.Cast(value=value):
                inner = self._expr(value) if not is_narrow(value.dtype) else self._wide(value)
                return c.cast(to, inner)
            case tir.BinaryOp(lhs=lhs, rhs=rhs):
                return replace(node, dtype=to, lhs=self._wide(lhs), rhs=self._wide(rhs))
            case tir.Select(condition=condition, true_value=one, false_value=other):
                return tir.Select(to, self._expr(condition), self._wide(one), self._wide(other))
            case tir.Broadcast(value=value, lanes=lanes):
                return tir.Broadcast(to, self._wide(value), lanes)
            case tir.Let(var=var, value=value, body=body) if is_narrow(var.dtype):
                wide = self._values[var] = tir.Var(var.name, self._wide_dtype(var.dtype))
                return tir.Let(to, wide, self._wide(value), self._wide(body))
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, one, other)):
                return replace(node, dtype=to, args=(self._expr(condition), self._wide(one), self._wide(other)))
            case tir.Call(args=args) if called(node).widens:
                return replace(node, dtype=to, args=tuple(self._wide(a) for a in args))
        return tir.Cast(to, self._expr(node))
