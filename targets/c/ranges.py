"""Intervals of integer expressions, to tell which arithmetic can wrap around: signed overflow is undefined in C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlcc.ir import tir
from mlcc.ir.tir import Expr
from mlcc.targets.c.dtypes import integer_range

Interval = tuple[int, int]


class Ranges:
    """Compute intervals that hold the value of an expression, wrap-around included.

    `variables` are the intervals of variables that are narrower than their dtypes'.
    """

    def __init__(self) -> None:
        self.variables: dict[tir.Var, Interval] = {}
        self._known: dict[int, tuple[Expr, Interval]] = {}
        self._wraps = True

    @contextmanager
    def without_overflow(self) -> Iterator[None]:
        """Take it as given that nothing wraps around, as in sizes that were checked."""
        wraps, known = self._wraps, self._known
        self._wraps, self._known = False, {}
        try:
            yield
        finally:
            self._wraps, self._known = wraps, known

    def bind(self, var: tir.Var, interval: Interval) -> None:
        self.variables[var] = interval

    def of(self, node: Expr) -> Interval:
        """Return the interval of an integer expression."""
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = (node, self._compute(node))
        return known[1]

    def fits(self, node: tir.BinaryOp) -> bool:
        """Return True if a sum, difference or product cannot wrap around."""
        if not self._wraps:
            return True
        low, high = self._exact(node)
        least, greatest = integer_range(node.dtype)
        return least <= low and high <= greatest

    def never_negative(self, node: Expr) -> bool:
        return self.of(node)[0] >= 0

    def _exact(self, node: tir.BinaryOp) -> Interval:
        """Return the interval of a sum, difference or product before wrap-around."""
        (a, b), (c, d) = self.of(node.lhs), self.of(node.rhs)
        if isinstance(node, tir.Add):
            return a + c, b + d
        if isinstance(node, tir.Sub):
            return a - d, b - c
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)

    def _compute(self, node: Expr) -> Interval:
        whole = integer_range(node.dtype)
        match node:
            case tir.IntImm(value=value):
                return value, value
            case tir.Var():
                return self.variables.get(node, whole)
            case tir.Add() | tir.Sub() | tir.Mul() if node.dtype.is_int:
                low, high = self._exact(node)
                if self._wraps and not (whole[0] <= low and high <= whole[1]):
                    return whole
                return max(low, whole[0]), min(high, whole[1])
            case tir.FloorDiv(lhs=lhs, rhs=tir.IntImm(value=divisor)) if divisor > 0:
                low, high = self.of(lhs)
                return low // divisor, high // divisor
            case tir.FloorMod(lhs=lhs, rhs=tir.IntImm(value=divisor)) if divisor > 0:
                low, high = self.of(lhs)
                return (low, high) if low >= 0 and high < divisor else (0, divisor - 1)
            case tir.Min(lhs=lhs, rhs=rhs):
                (a, b), (c, d) = self.of(lhs), self.of(rhs)
                return min(a, c), min(b, d)
            case tir.Max(lhs=lhs, rhs=rhs):
                (a, b), (c, d) = self.of(lhs), self.of(rhs)
                return max(a, c), max(b, d)
            case tir.Cast(value=value) if value.dtype.is_int or value.dtype.is_bool:
                low, high = self.of(value)
                return (low, high) if whole[0] <= low and high <= whole[1] else whole
            case tir.Select(true_value=true, false_value=false) if node.dtype.is_int:
                (a, b), (c, d) = self.of(true), self.of(false)
                return min(a, c), max(b, d)
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, true, false)) if node.dtype.is_int:
                (a, b), (c, d) = self.of(true), self.of(false)
                return min(a, c), max(b, d)
        return whole
