"""Intervals of expressions: what an index can be while loop variables run over their domains.

The ends are spelled the way TVM spells them, because regions inferred here are compared structurally with regions
that it inferred: an end is left as the operators build it until two intervals are joined, which simplifies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm


@dataclass(slots=True, eq=False)  # not frozen, which triples the time of making one
class Interval:
    """The interval low..high, both inclusive; None for an infinite end. `low is high` for a single point.

    Immutable by convention.
    """

    low: Expr | None
    high: Expr | None
    empty: bool = False

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low is self.high


EVERYTHING = Interval(None, None)
NOTHING = Interval(None, None, True)

Domains = Mapping[tir.Var, Interval]


def point(value: Expr) -> Interval:
    return Interval(value, value)


def from_range(span: tir.Range) -> Interval:
    """Return the interval of a range: min .. min + extent - 1."""
    if isinstance(span.extent, IntImm) and span.extent.value == 1:
        return point(span.min)
    return Interval(span.min, c.sub(c.add(span.extent, span.min), 1))


def union(a: Interval, b: Interval, analyzer: Analyzer) -> Interval:
    """Return the convex hull of both, with its ends simplified."""
    if a.empty or b.empty:
        return b if a.empty else a
    low = None if a.low is None or b.low is None else analyzer.simplify(c.minimum(a.low, b.low))
    high = None if a.high is None or b.high is None else analyzer.simplify(c.maximum(a.high, b.high))
    return Interval(low, high)


def meet(a: Interval, b: Interval, analyzer: Analyzer) -> Interval:
    """Return the intersection of two intervals."""
    if a.empty or b.empty:
        return NOTHING
    lows = [x for x in (a.low, b.low) if x is not None]
    highs = [x for x in (a.high, b.high) if x is not None]
    low = analyzer.simplify(c.maximum(*lows)) if len(lows) == 2 else lows[0] if lows else None
    high = analyzer.simplify(c.minimum(*highs)) if len(highs) == 2 else highs[0] if highs else None
    if low is not None and high is not None:
        order = analyzer.compare(low, high)
        if order.min > 0:
            return NOTHING
        if order.min == order.max == 0:
            return point(low)
    return Interval(low, high)


def to_range(interval: Interval, whole: tir.Range, analyzer: Analyzer) -> tir.Range:
    """Return the interval as a range; `whole` if an end is missing."""
    if interval.low is None or interval.high is None:
        return whole
    if interval.is_point or analyzer.prove_equal(interval.low, interval.high):
        return tir.Range(interval.low, IntImm(interval.low.dtype, 1))
    extent = analyzer.simplify(c.sub(c.add(interval.high, 1), interval.low))
    return tir.Range(interval.low, extent)


def eval_set(index: Expr, domains: Domains, analyzer: Analyzer | None = None) -> Interval:
    """Return the interval of values of `index` over the `domains` of its variables, for all lanes of a vector."""
    return _Evaluator(domains, analyzer or Analyzer()).ends(index, index)


def eval_range(low: Expr, high: Expr, domains: Domains, analyzer: Analyzer | None = None) -> Interval:
    """Return the interval from the least `low` to the greatest `high` over the `domains` of their variables."""
    return _Evaluator(domains, analyzer or Analyzer()).ends(low, high)


_Combine = Callable[["_Evaluator", Interval, Interval], Interval]


class _Evaluator:
    """Interval arithmetic, bottom-up over an expression."""

    def __init__(self, domains: Domains, analyzer: Analyzer) -> None:
        self._domains = domains
        self._analyzer = analyzer
        self._depth = 0

    def ends(self, low: Expr, high: Expr) -> Interval:
        first = self.visit(low)
        last = first if high is low else self.visit(high)
        if first.is_point and first is last:
            return first
        return Interval(first.low, last.high, first.empty or last.empty)

    def visit(self, expr: Expr) -> Interval:
        match expr:
            case IntImm():
                return point(expr)
            case tir.Var():
                return self._var(expr)
            case tir.BinaryOp():
                a, b = self.visit(expr.lhs), self.visit(expr.rhs)
                if a.low is expr.lhs is a.high and b.low is expr.rhs is b.high:
                    return point(expr)
                return self._combine(type(expr), a, b)
            case tir.Ramp():
                return self._ramp(expr)
            case tir.Broadcast(value=value):
                return self.visit(value)
            case tir.Select(true_value=yes, false_value=no):
                return union(self.visit(no), self.visit(yes), self._analyzer)
            case tir.Cast(dtype=dtype, value=value):
                return self._cast(dtype, self.visit(value))
            case tir.BufferLoad(indices=indices) if all(self._is_invariant(i) for i in indices):
                return point(expr)
            case tir.Call(op=tir.Op(name="tir.checked_index"), args=(index, extent, *_)):
                if self._is_invariant(index) and self._is_invariant(extent):
                    return point(expr)
                return Interval(c.const(0, expr.dtype), self.visit(c.sub(c.cast(expr.dtype, extent), 1)).high)
        return EVERYTHING

    def _is_invariant(self, index: Expr) -> bool:
        interval = self.visit(index)
        return interval.is_point and interval.low is index

    def _var(self, var: tir.Var) -> Interval:
        domain = self._domains.get(var)
        if domain is None:
            return point(var)
        if domain.low is var is domain.high or self._depth >= len(self._domains):
            return domain
        if domain.low is None or domain.high is None:
            return domain
        self._depth += 1  # a domain may mention other variables, but no chain is longer than there are variables
        low = self.visit(domain.low)
        high = low if domain.is_point else self.visit(domain.high)
        self._depth -= 1
        return Interval(low.low, high.high)

    def _ramp(self, expr: tir.Ramp) -> Interval:
        base = self.visit(expr.base)
        if not isinstance(expr.stride, IntImm):
            return EVERYTHING
        last = c.const(expr.stride.value * (expr.lanes - 1), expr.base.dtype)
        zero = c.const(0, expr.base.dtype)
        lanes = Interval(zero, last) if expr.stride.value > 0 else Interval(last, zero)
        return self._combine(tir.Add, base, lanes)

    def _cast(self, dtype: object, value: Interval) -> Interval:
        if value.is_point:
            return point(c.cast(dtype, value.low))  # type: ignore[arg-type]
        low = None if value.low is None else c.cast(dtype, value.low)  # type: ignore[arg-type]
        high = None if value.high is None else c.cast(dtype, value.high)  # type: ignore[arg-type]
        return Interval(low, high, value.empty)

    def _combine(self, kind: type, a: Interval, b: Interval) -> Interval:
        from mlcc.arith.rewrite import MAKE

        if a.is_point and b.is_point:
            if kind in _DIVISIONS and isinstance(b.low, IntImm) and b.low.value == 0:
                return EVERYTHING
            return point(MAKE[kind](a.low, b.low))  # type: ignore[arg-type]
        if a.empty or b.empty:
            return NOTHING
        rule = _COMBINE.get(kind)
        if rule is not None:
            return rule(self, a, b)
        if issubclass(kind, (tir.CompareOp, tir.And, tir.Or)):
            return Interval(c.const(False), c.const(True))
        return EVERYTHING

    def _add(self, a: Interval, b: Interval) -> Interval:
        return Interval(_apply_to_both(c.add, a.low, b.low), _apply_to_both(c.add, a.high, b.high))

    def _sub(self, a: Interval, b: Interval) -> Interval:
        return Interval(_apply_to_both(c.sub, a.low, b.high), _apply_to_both(c.sub, a.high, b.low))

    def _mul(self, a: Interval, b: Interval) -> Interval:
        if a.is_point:
            a, b = b, a
        if not b.is_point and all(x.low is not None and self._analyzer.prove_at_least(x.low, 0) for x in (a, b)):
            return Interval(_apply_to_both(c.mul, a.low, b.low), _apply_to_both(c.mul, a.high, b.high))
        return self._monotone(a, b, c.mul)

    def _divide(self, a: Interval, b: Interval) -> Interval:
        return self._monotone(a, b, c.floordiv)

    def _truncdivide(self, a: Interval, b: Interval) -> Interval:
        return self._monotone(a, b, c.div)

    def _monotone(self, a: Interval, b: Interval, make: Callable[[Expr, Expr], Expr]) -> Interval:
        """x * k, x // k, x / k for one k: increasing in x for k > 0, decreasing for k < 0."""
        if not b.is_point:
            return EVERYTHING
        by: Expr = b.low  # type: ignore[assignment]
        if isinstance(by, IntImm) and by.value in (0, 1):
            return a if by.value == 1 else (b if make is c.mul else EVERYTHING)
        if self._analyzer.prove_at_least(by, 0):
            return Interval(_apply_to_one(make, a.low, by), _apply_to_one(make, a.high, by))
        if self._analyzer.prove_at_least(c.negate(by), 1):
            return Interval(_apply_to_one(make, a.high, by), _apply_to_one(make, a.low, by))
        if a.low is None or a.high is None:
            return EVERYTHING
        positive = c.greater_equal(by, c.const(0, by.dtype))
        first, last = make(a.low, by), make(a.high, by)
        return Interval(tir.Select(by.dtype, positive, first, last), tir.Select(by.dtype, positive, last, first))

    def _mod(self, a: Interval, b: Interval) -> Interval:
        """0 .. k - 1, or tighter where all of a has one quotient; 1 - |k| .. |k| - 1 for a k of unknown sign."""
        if not b.is_point:
            return EVERYTHING
        by: Expr = b.low  # type: ignore[assignment]
        if isinstance(by, IntImm) and by.value == 0:
            return EVERYTHING
        zero = IntImm(by.dtype, 0)
        if not self._analyzer.prove_at_least(by, 0):
            size = c.const(abs(by.value), by.dtype) if isinstance(by, IntImm) else _absolute(by)
            return Interval(c.negate(c.sub(size, 1)), c.sub(size, 1))
        if isinstance(by, IntImm) and a.low is not None and a.high is not None:
            first, last = c.floordiv(a.low, by), c.floordiv(a.high, by)
            if self._analyzer.prove_equal(first, last):
                return Interval(c.sub(a.low, c.mul(by, first)), c.sub(a.high, c.mul(by, first)))
        return Interval(zero, c.sub(by, 1))

    def _truncmod(self, a: Interval, b: Interval) -> Interval:
        """0 .. k - 1 for a >= 0 and k > 0; else down to 1 - k."""
        if not b.is_point or not self._analyzer.prove_at_least(b.low, 1):  # type: ignore[arg-type]
            return EVERYTHING
        most = c.sub(b.low, 1)  # type: ignore[arg-type]
        if a.low is not None and self._analyzer.prove_at_least(a.low, 0):
            return Interval(IntImm(most.dtype, 0), most)
        return Interval(c.negate(most), most)

    def _min(self, a: Interval, b: Interval) -> Interval:
        low = _apply_to_both(c.minimum, a.low, b.low)
        return Interval(low, c.minimum(a.high, b.high) if a.high and b.high else a.high or b.high)

    def _max(self, a: Interval, b: Interval) -> Interval:
        high = _apply_to_both(c.maximum, a.high, b.high)
        return Interval(c.maximum(a.low, b.low) if a.low and b.low else a.low or b.low, high)


_COMBINE: dict[type, _Combine] = {
    tir.Add: _Evaluator._add, tir.Sub: _Evaluator._sub, tir.Mul: _Evaluator._mul, tir.FloorDiv: _Evaluator._divide,
    tir.Div: _Evaluator._truncdivide, tir.FloorMod: _Evaluator._mod, tir.Mod: _Evaluator._truncmod,
    tir.Min: _Evaluator._min, tir.Max: _Evaluator._max,
}  # fmt: skip
_DIVISIONS = (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)


def _absolute(value: Expr) -> Expr:
    return tir.Select(value.dtype, c.greater_equal(value, c.const(0, value.dtype)), value, c.negate(value))


def _apply_to_both(make: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else make(a, b)


def _apply_to_one(make: Callable[[Expr, Expr], Expr], a: Expr | None, by: Expr) -> Expr | None:
    return None if a is None else make(a, by)
