"""Constant bounds of integer expressions: the least and greatest value that an expression can take.

int32 and int64 arithmetic is assumed not to overflow (index arithmetic); for every other integer type a result that
may leave the type's range is taken to be anything in that range.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from mlcc.arith.structural_keys import StructuralKeys
from mlcc.ir import tir
from mlcc.ir.construct import truncdiv
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr

INF = 1 << 200  # stands for infinity; results beyond +-2**100 count as infinite
_HUGE = 1 << 100


class Bound(NamedTuple):
    """min <= value <= max; -INF and INF where there is none."""

    min: int
    max: int

    def union(self, other: Bound) -> Bound:
        return Bound(min(self.min, other.min), max(self.max, other.max))

    def meet(self, other: Bound) -> Bound:
        return Bound(max(self.min, other.min), min(self.max, other.max))

    @property
    def finite(self) -> bool:
        return self.min > -_HUGE and self.max < _HUGE


EVERYTHING = Bound(-INF, INF)
BOOL_BOUND = Bound(0, 1)


def _clamp(value: int) -> int:
    return -INF if value < -_HUGE else INF if value > _HUGE else value


def _clamped(low: int, high: int) -> Bound:
    return Bound(_clamp(low), _clamp(high))


def dtype_bound(dtype: DType) -> Bound:
    """Return the range of values of a dtype; int64 counts as unbounded."""
    if dtype.is_bool:
        return BOOL_BOUND
    if not dtype.is_int or (dtype.bits == 64 and dtype.kind == "int"):
        return EVERYTHING
    if dtype.is_uint:
        return Bound(0, (1 << dtype.bits) - 1)
    return Bound(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)


class Bounds:
    """Constant bounds of expressions under assumptions on variables and, by `assume`, on whole expressions."""

    def __init__(self, keys: StructuralKeys, modular: Callable[[Expr], tuple[int, int]]) -> None:
        self._keys = keys
        self._modular = modular
        self._vars: dict[tir.Var, Bound] = {}
        self._known: dict[int, list[Bound]] = {}
        self._memo: dict[int, tuple[Expr, Bound]] = {}
        self._bindings = 0  # how often a variable was bound

    @property
    def assuming(self) -> bool:
        """Return True if there are bounds assumed for whole expressions."""
        return any(self._known.values())

    def bind(self, var: tir.Var, bound: Bound) -> None:
        self._vars[var] = bound
        self._bindings += 1
        if id(var) in self._memo:  # else no bound that is known follows from it
            self._memo = {}

    def forget(self) -> None:
        """Drop cached bounds after a change of the residues."""
        self._memo = {}

    def assume(self, expr: Expr, bound: Bound) -> Callable[[], None]:
        """Assume that `expr` lies within `bound` until the returned function is called."""
        stack = self._known.setdefault(self._keys.key(expr), [])
        stack.append(bound)
        before, self._memo = self._memo, {}
        bindings = self._bindings

        def undo() -> None:
            stack.remove(bound)
            self._memo = before if bindings == self._bindings else {}

        return undo

    def of(self, expr: Expr) -> Bound:
        """Return the bound of an integer or bool expression."""
        cached = self._memo.get(id(expr))
        if cached is not None:
            return cached[1]
        bound = self._visit(expr)
        dtype = expr.dtype
        if dtype.bits < 32 or dtype.is_uint:
            limit = dtype_bound(dtype)
            if bound.min < limit.min or bound.max > limit.max:
                bound = limit
        if self._known:
            for known in self._known.get(self._keys.key(expr), ()):
                bound = bound.meet(known)
        self._memo[id(expr)] = (expr, bound)
        return bound

    def _visit(self, expr: Expr) -> Bound:
        match expr:
            case tir.IntImm(value=value):
                return Bound(value, value)
            case tir.Var():
                return self._vars.get(expr) or dtype_bound(expr.dtype)
            case tir.CompareOp() | tir.And() | tir.Or() | tir.Not():
                return BOOL_BOUND
            case tir.BinaryOp() if not expr.dtype.is_float:
                return self._binary(expr)
            case tir.Select(true_value=a, false_value=b):
                return self.of(a).union(self.of(b))
            case tir.Cast(dtype=dtype, value=value) if value.dtype.is_int or value.dtype.is_bool:
                limit, inner = dtype_bound(dtype), self.of(value)
                return inner if limit.min <= inner.min and inner.max <= limit.max else limit
            case tir.Broadcast(value=value):
                return self.of(value)
            case tir.Ramp(base=base, stride=stride, lanes=lanes):
                step = _product(self.of(stride), Bound(0, lanes - 1))
                low = self.of(base)
                return _clamped(low.min + step.min, low.max + step.max)
            case tir.Call(op=tir.Op(name=name), args=args):
                return self._call(expr, name.removeprefix("tir."), args)
        return dtype_bound(expr.dtype)

    def _call(self, expr: tir.Call, name: str, args: tuple[Expr, ...]) -> Bound:
        dtype_range = dtype_bound(expr.dtype)
        if not (expr.dtype.is_int or expr.dtype.is_bool):
            return EVERYTHING
        match name, args:
            case ("if_then_else", (_, a, b)):
                return self.of(a).union(self.of(b))
            case ("likely", (a,)):
                return self.of(a)
            case ("checked_index", (_, extent, *_)):
                return Bound(0, max(self.of(extent).max - 1, 0))
            case ("bitwise_and", (a, b)):
                one, two = self.of(a), self.of(b)
                if one.min >= 0 or two.min >= 0:
                    return Bound(0, min(x.max for x in (one, two) if x.min >= 0))
            case ("shift_right", (a, b)):
                one, two = self.of(a), self.of(b)
                if two.min >= 0 and two.max < expr.dtype.bits and one.finite:
                    return Bound(
                        min(one.min >> two.min, one.min >> two.max), max(one.max >> two.min, one.max >> two.max)
                    )
                if two.min >= 0 and one.min >= 0:
                    return Bound(0, one.max)
            case ("shift_left", (a, b)):
                one, two = self.of(a), self.of(b)
                if two.min >= 0 and two.max < expr.dtype.bits and one.finite:
                    return _clamped(
                        min(one.min << two.max, one.min << two.min), max(one.max << two.max, one.max << two.min)
                    )
        return dtype_range

    def _binary(self, expr: tir.BinaryOp) -> Bound:
        a, b = self.of(expr.lhs), self.of(expr.rhs)
        match expr:
            case tir.Add():
                return _clamped(a.min + b.min, a.max + b.max)
            case tir.Sub():
                return _clamped(a.min - b.max, a.max - b.min)
            case tir.Mul():
                return _product(a, b)
            case tir.Min():
                return Bound(min(a.min, b.min), min(a.max, b.max))
            case tir.Max():
                return Bound(max(a.min, b.min), max(a.max, b.max))
            case tir.FloorDiv():
                return _quotient(a, b, lambda x, y: x // y)
            case tir.Div():
                return _quotient(a, b, truncdiv)
            case tir.FloorMod():
                return self._floormod(expr, a, b)
            case tir.Mod():
                return _truncmod(a, b)
        return dtype_bound(expr.dtype)

    def _floormod(self, expr: tir.BinaryOp, a: Bound, b: Bound) -> Bound:
        if b.min <= 0:
            if b.max < 0 or b.min == b.max:
                return Bound(min(b.min + 1, 0), 0)
            return Bound(min(b.min + 1, 0), max(b.max - 1, 0))
        if a.min >= 0 and a.max < b.min:
            return a
        if b.min == b.max and b.max < _HUGE:
            low, high = a.min // b.min, a.max // b.min
            if low == high and a.finite:
                return Bound(a.min - low * b.min, a.max - low * b.min)
            coeff, base = self._modular(expr.lhs)
            step = gcd(coeff, b.min)
            return Bound(base % step, b.min - step + base % step) if step else Bound(base % b.min, base % b.min)
        return Bound(0, min(a.max, b.max - 1) if a.min >= 0 else b.max - 1)


def _product(a: Bound, b: Bound) -> Bound:
    corners = [x * y for x in a for y in b]
    return _clamped(min(corners), max(corners))


def _quotient(a: Bound, b: Bound, divide: Callable[[int, int], int]) -> Bound:
    """Return the bound of a quotient, from the extreme divisors: the ends, and -1 and 1 if the range spans 0."""
    divisors = [d for d in (b.min, b.max, -1, 1) if d and b.min <= d <= b.max]
    if not divisors:
        return EVERYTHING
    corners = [divide(x, d) for x in a for d in divisors]
    return _clamped(min(corners), max(corners))


def _truncmod(a: Bound, b: Bound) -> Bound:
    """Return the bound of a truncated remainder: sign of the dividend, magnitude below the divisor's."""
    if a.min >= 0 and b.min > a.max:
        return a
    most = max(abs(b.min), abs(b.max)) - 1
    return Bound(0 if a.min >= 0 else -min(most, -a.min), 0 if a.max <= 0 else min(most, a.max))
