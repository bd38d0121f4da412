"""Integer expressions evaluated at one iteration, and the search for an iteration in which an index is extreme.

A fault is reported only with a witness: values of the loops around it, found by evaluating every bound and condition on
the path to it, so that the access is certainly made there. What cannot be evaluated (data, unknown calls, results that
do not fit their type) makes a path uncertain; a search that fails says nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from mlcc.arith.bounds import dtype_bound
from mlcc.ir import tir
from mlcc.ir.construct import truncdiv
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr
from mlcc.verify.paths import Guard, Let, Loop, MaybeExecuted, PathStep

_MAX_TRIED = 256  # iterations tried one by one if an index is not monotonic

Env = dict[tir.Var, int]
ValueRange = tuple[int, int]  # least and greatest


class BudgetExceeded(Exception):
    """Raised when the work limit for the analysis of a function is reached."""


class IntEvaluator:
    """Evaluates integer expressions; `left` counts the nodes that may still be looked at."""

    def __init__(self, left: int) -> None:
        self.left = left

    def value(self, expr: Expr, env: Env) -> int | None:
        """The value, or None if it is not known. Raises Budget."""
        return self._value(expr, env, {})

    def _value(self, expr: Any, env: Env, memo: dict[int, int | None]) -> int | None:
        if isinstance(expr, tir.IntImm):
            return int(expr.value)
        if isinstance(expr, tir.Var):
            return env.get(expr)
        key = id(expr)
        if key in memo:
            return memo[key]
        self.left -= 1
        if self.left < 0:
            raise BudgetExceeded
        number = self._evaluate(expr, env, memo)
        if number is not None and isinstance(expr, Expr):
            low, high = _range(expr.dtype)
            if not low <= number <= high:
                number = None
        memo[key] = number
        return number

    def _evaluate(self, expr: Any, env: Env, memo: dict[int, int | None]) -> int | None:
        rule = _RULES.get(type(expr))
        if rule is not None:  # most nodes
            a = expr.lhs
            if not _is_integer(a.dtype):
                return None
            x = self._value(a, env, memo)
            y = None if x is None else self._value(expr.rhs, env, memo)
            return None if x is None or y is None else rule(x, y)
        match expr:
            case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b) if expr.dtype.lanes == 1:
                left = self._value(a, env, memo)
                if left is not None and bool(left) == isinstance(expr, tir.Or):
                    return left
                return None if left is None else self._value(b, env, memo)
            case tir.Not(value=a) if expr.dtype.lanes == 1:
                x = self._value(a, env, memo)
                return None if x is None else int(not x)
            case tir.Cast(value=a) if a.dtype.is_int or a.dtype.is_uint or a.dtype.is_bool:
                return self._value(a, env, memo) if expr.dtype.is_int or expr.dtype.is_uint else None
            case (
                tir.Select(condition=test, true_value=a, false_value=b)
                | tir.Call(op=tir.Op("tir.if_then_else"), args=(test, a, b))
            ) if expr.dtype.lanes == 1:
                x = self._value(test, env, memo)
                return None if x is None else self._value(a if x else b, env, memo)
            case tir.Call(op=tir.Op("tir.likely"), args=(a,)):
                return self._value(a, env, memo)
            case tir.Let(var=var, value=value, body=body):
                x = self._value(value, env, memo)
                return None if x is None else self._value(body, {**env, var: x}, {})
        return None

    # ------------------------------------------------------------ ranges

    def span(self, expr: Expr, spans: dict[tir.Var, ValueRange]) -> ValueRange | None:
        """Bounds of an index over the ranges of variables, a vector's lanes included; None if not known."""
        return self._span(expr, spans, {})

    def _span(
        self, expr: Any, spans: dict[tir.Var, ValueRange], memo: dict[int, ValueRange | None]
    ) -> ValueRange | None:
        if isinstance(expr, tir.IntImm):
            return expr.value, expr.value
        if isinstance(expr, tir.Var):
            return spans.get(expr)
        key = id(expr)
        if key in memo:
            return memo[key]
        self.left -= 1
        if self.left < 0:
            raise BudgetExceeded
        span = memo[key] = self._combine_ranges(expr, spans, memo)
        return span

    def _combine_ranges(
        self, expr: Any, spans: dict[tir.Var, ValueRange], memo: dict[int, ValueRange | None]
    ) -> ValueRange | None:
        match expr:
            case tir.Ramp(base=base, stride=stride, lanes=lanes):
                a, b = self._span(base, spans, memo), self._span(stride, spans, memo)
                if a is None or b is None:
                    return None
                ends = (0, b[0] * (lanes - 1), b[1] * (lanes - 1))
                return a[0] + min(ends), a[1] + max(ends)
            case tir.Broadcast(value=a) | tir.Cast(value=a) | tir.Call(op=tir.Op("tir.likely"), args=(a,)):
                return self._span(a, spans, memo)
            case tir.Select(true_value=a, false_value=b) | tir.Call(op=tir.Op("tir.if_then_else"), args=(_, a, b)):
                x, y = self._span(a, spans, memo), self._span(b, spans, memo)
                return None if x is None or y is None else (min(x[0], y[0]), max(x[1], y[1]))
            case tir.BinaryOp(lhs=a, rhs=b):
                x = self._span(a, spans, memo)
                y = None if x is None else self._span(b, spans, memo)
                return None if x is None or y is None else _range_of_operation(type(expr), x, y)
        return None

    # ------------------------------------------------------------ paths

    def follow_path(self, path: list[PathStep], chosen: dict[Loop, int], env: Env) -> dict[Loop, int] | None:
        """Follow a path in the iterations `chosen` (0 by default), adding bound variables to `env`.

        Return the number of iterations of each loop, or None if it is not certain that the end is reached.
        """
        trips: dict[Loop, int] = {}
        for step in path:
            if isinstance(step, Let):
                number = self.value(step.value, env)
                if number is None:
                    env.pop(step.var, None)
                else:
                    env[step.var] = number
            elif isinstance(step, Guard):
                number = self.value(step.condition, env)
                if number is None or bool(number) != step.holds:
                    return None
            elif isinstance(step, Loop):
                count = self._enter(step, chosen.get(step, 0), env)
                if count is None:
                    return None
                trips[step] = count
            elif isinstance(step, MaybeExecuted):
                return None
        return trips

    def _enter(self, loop: Loop, at: int, env: Env) -> int | None:
        low, extent = self.value(loop.low, env), self.value(loop.extent, env)
        apart = 1 if loop.step is None else self.value(loop.step, env)
        if low is None or extent is None or apart is None or apart < 1:
            return None
        count = -(-extent // apart)
        if not 0 <= at < count:
            return None
        env[loop.var] = low + at * apart
        return count


class Search:
    """Searches, loop by loop, the iteration of a path in which a value is least or greatest."""

    def __init__(self, numbers: IntEvaluator, path: list[PathStep], sizes: Env) -> None:
        self._numbers = numbers
        self.path = path
        self._sizes = sizes
        self._loops = [step for step in path if isinstance(step, Loop)]
        self._followed: dict[tuple[int, ...], tuple[dict[Loop, int], Env] | None] = {}  # by the iterations chosen

    def extreme(self, index: Expr, greatest: bool) -> tuple[int, dict[Loop, int], Env] | None:
        """The value, the iterations and what the variables are there; None if no iteration is certain."""
        sign = 1 if greatest else -1
        loops = self.loops_of(index)
        best = self._evaluate_at(index, {})
        if best is None:  # conditions may ask for the last iterations
            last = self._last_iterations(loops)
            best = None if last is None else self._evaluate_at(index, last)
        if best is None:
            return None
        for loop in (*loops, *loops):
            count = best[3].get(loop, 1)
            here = best[1].get(loop, 0)
            for end in (count - 1, 0):
                candidate = self._bisect_toward(index, best[1], loop, here, end)
                if candidate is not None and sign * candidate[0] > sign * best[0]:
                    best = candidate
        if _is_not_monotonic(index, self.path):
            for loop in (*loops, *loops):
                for at in range(min(best[3].get(loop, 1), _MAX_TRIED)):
                    candidate = self._evaluate_at(index, {**best[1], loop: at})
                    if candidate is not None and sign * candidate[0] > sign * best[0]:
                        best = candidate
        return best[0], best[1], best[2]

    def _bisect_toward(
        self, index: Expr, chosen: dict[Loop, int], loop: Loop, here: int, end: int
    ) -> tuple[int, dict[Loop, int], Env, dict[Loop, int]] | None:
        """The farthest certain iteration of a loop between two, by bisection: conditions tend to be monotone."""
        if here == end:
            return None
        good = None
        near, far = here, end
        while True:
            candidate = self._evaluate_at(index, {**chosen, loop: far})
            if candidate is not None:
                good, near = candidate, far
                if far == end:
                    return good
            else:
                end = far
            step = (end - near) // 2 if end >= near else -((near - end) // 2)
            if step == 0:
                return good
            far = near + step

    def _evaluate_at(
        self, index: Expr, chosen: dict[Loop, int]
    ) -> tuple[int, dict[Loop, int], Env, dict[Loop, int]] | None:
        followed = self._follow(chosen)
        if followed is None:
            return None
        trips, env = followed
        value = self._numbers.value(index, env)
        return None if value is None else (value, chosen, env, trips)

    def _follow(self, chosen: dict[Loop, int]) -> tuple[dict[Loop, int], Env] | None:
        """Follow the path once for each choice of iterations: several indices are searched at its end."""
        key = tuple(chosen.get(loop, 0) for loop in self._loops)
        if key not in self._followed:
            env = dict(self._sizes)
            trips = self._numbers.follow_path(self.path, chosen, env)
            self._followed[key] = None if trips is None else (trips, env)
        return self._followed[key]

    def _last_iterations(self, loops: Iterable[Loop]) -> dict[Loop, int] | None:
        """The last iterations of loops whose extents are known."""
        env, chosen = dict(self._sizes), dict[Loop, int]()
        for step in self.path:
            if isinstance(step, Let):
                number = self._numbers.value(step.value, env)
                if number is not None:
                    env[step.var] = number
            elif isinstance(step, Loop):
                extent = self._numbers.value(step.extent, env)
                low = self._numbers.value(step.low, env)
                if extent is None or low is None or extent < 1:
                    return None
                chosen[step] = extent - 1 if step.step is None else 0
                env[step.var] = low + chosen[step]
        return chosen

    def loops_of(self, index: Expr) -> list[Loop]:
        """The loops that a value depends on, directly or through bindings."""
        bound = {s.var: s for s in self.path if isinstance(s, (Let, Loop))}
        seen: set[int] = set()
        stack: list[Any] = [index]
        while stack:
            top = stack.pop()
            if id(top) in seen:
                continue
            seen.add(id(top))
            if isinstance(top, tir.Var):
                step = bound.get(top)
                if isinstance(step, Let):
                    stack.append(step.value)
                elif isinstance(step, Loop):
                    stack += [step.low, step.extent]
            else:
                stack += _operands(top)
        return [s for s in self.path if isinstance(s, Loop) and id(s.var) in seen]


def _is_not_monotonic(index: Expr, path: list[PathStep]) -> bool:
    """Return True if an index may take its extremes in other than first or last iterations: it is not monotonic.

    Remainders, `Select` and calls are such expressions; `let` variables are looked through.
    """
    bound = {s.var: s.value for s in path if isinstance(s, Let)}
    stack: list[Any] = [index]
    seen: set[int] = set()
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, (tir.FloorMod, tir.Mod, tir.Select, tir.Call)):
            return True
        stack += [bound[top]] if isinstance(top, tir.Var) and top in bound else _operands(top)
    return False


def _operands(expr: Any) -> list[Any]:
    match expr:
        case tir.BinaryOp(lhs=a, rhs=b):
            return [a, b]
        case tir.Cast(value=a) | tir.Not(value=a):
            return [a]
        case tir.Select(condition=test, true_value=a, false_value=b):
            return [test, a, b]
        case tir.Call(args=args):
            return list(args)
        case tir.Let(value=a, body=b):
            return [a, b]
    return []


@functools.cache
def _is_integer(dtype: DType) -> bool:
    return (dtype.is_int or dtype.is_bool) and dtype.lanes == 1


@functools.cache
def _range(dtype: DType) -> ValueRange:
    bounds = dtype_bound(dtype)
    if dtype.kind == "int" and dtype.bits == 64:
        return -(1 << 63), (1 << 63) - 1
    return bounds.min, bounds.max


def _floordiv(a: int, b: int) -> int | None:
    return a // b if b else None


def _floormod(a: int, b: int) -> int | None:
    return a % b if b else None


def _truncmod(a: int, b: int) -> int | None:
    return a - truncdiv(a, b) * b if b else None


_RULES: dict[type, Callable[[int, int], int | None]] = {
    tir.Add: lambda a, b: a + b, tir.Sub: lambda a, b: a - b, tir.Mul: lambda a, b: a * b,
    tir.FloorDiv: _floordiv, tir.FloorMod: _floormod, tir.Mod: _truncmod,
    tir.Div: lambda a, b: truncdiv(a, b) if b else None,
    tir.Min: min, tir.Max: max,
    tir.EQ: lambda a, b: int(a == b), tir.NE: lambda a, b: int(a != b), tir.LT: lambda a, b: int(a < b),
    tir.LE: lambda a, b: int(a <= b), tir.GT: lambda a, b: int(a > b), tir.GE: lambda a, b: int(a >= b),
}  # fmt: skip


def _range_of_operation(kind: type, x: ValueRange, y: ValueRange) -> ValueRange | None:
    """Interval arithmetic."""
    if kind is tir.Add:
        return x[0] + y[0], x[1] + y[1]
    if kind is tir.Sub:
        return x[0] - y[1], x[1] - y[0]
    if kind is tir.Mul:
        ends = [a * b for a in x for b in y]
        return min(ends), max(ends)
    if kind in (tir.FloorDiv, tir.Div) and y[0] > 0:
        divide = truncdiv if kind is tir.Div else int.__floordiv__
        ends = [divide(a, b) for a in x for b in y]
        return min(ends), max(ends)
    if kind in (tir.FloorMod, tir.Mod) and y[0] > 0 and (x[0] >= 0 or kind is tir.FloorMod):
        if y[0] == y[1] and x[0] // y[0] == x[1] // y[0]:
            return x[0] % y[0], x[1] % y[0]
        return 0, min(y[1] - 1, x[1]) if x[0] >= 0 else y[1] - 1
    if kind is tir.Min:
        return min(x[0], y[0]), min(x[1], y[1])
    if kind is tir.Max:
        return max(x[0], y[0]), max(x[1], y[1])
    return None
