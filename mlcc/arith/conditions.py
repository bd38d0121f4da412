"""Constant ranges of variables implied by a condition."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF, Bound
from mlcc.arith.linear import is_index
from mlcc.arith.rewrite import negated
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm

_ROUNDS = 8  # of narrowing; each round tightens every variable by every condition


def solve(condition: Expr, domains: Mapping[tir.Var, Bound]) -> dict[tir.Var, Bound] | None:
    """Return ranges of variables equivalent to `condition` within `domains`; None if no ranges are.

    Only conjunctions of comparisons of sums are understood.
    """
    analyzer = Analyzer()
    condition = analyzer.simplify(condition)
    if isinstance(condition, IntImm):
        return None
    parts = [p for p in conjuncts(condition) if _is_affine_comparison(p)]
    if not parts:
        return None
    bounds: dict[tir.Var, Bound] = {}
    for part in parts:
        for var in _vars(part):
            bounds.setdefault(var, domains.get(var, Bound(-INF, INF)))
    for _ in range(_ROUNDS):
        before = dict(bounds)
        for part in parts:
            _narrow(part, bounds)
        if before == bounds:
            break
    if any(b.min > b.max for b in bounds.values()):
        return None
    check = Analyzer()
    for var, bound in bounds.items():
        if bound.finite:
            check.bind_bound(var, bound.min, bound.max)
    if not all(check.prove(p) for p in parts):
        return None
    return {v: b for v, b in bounds.items() if b.finite}


def conjunct_operands(condition: Expr) -> list[Expr]:
    """Return the operands of nested `and`s from left to right, as spelled, without `True`."""
    parts: list[Expr] = []
    stack = [condition]
    while stack:
        match stack.pop():
            case tir.And(lhs=a, rhs=b):
                stack += [b, a]
            case other:
                if not (isinstance(other, IntImm) and other.value == 1):
                    parts.append(other)
    return parts


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the conjuncts from left to right, with hints dropped and negated comparisons inverted."""
    parts: list[Expr] = []
    stack = [condition]
    while stack:
        match stack.pop():
            case tir.And(lhs=a, rhs=b):
                stack += [b, a]
            case tir.Call(op=tir.Op(name="tir.likely"), args=(a,)):
                stack.append(a)
            case tir.Not(value=value) if isinstance(value, tir.CompareOp) and not value.lhs.dtype.is_float:
                stack.append(negated(value))
            case other:
                parts.append(other)
    return parts


def _is_affine_comparison(part: Expr) -> bool:
    """Return True for a comparison of sums, products, quotients and remainders of variables and constants."""
    if not isinstance(part, tir.CompareOp) or not is_index(part.lhs.dtype):
        return False
    stack: list[Expr] = [part.lhs, part.rhs]
    some = False
    while stack:
        top = stack.pop()
        if isinstance(top, (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod)):
            stack += [top.lhs, top.rhs]
        elif not isinstance(top, (tir.Var, IntImm)):
            return False
        some = some or isinstance(top, tir.Var)
    return some


def _vars(expr: Expr) -> list[tir.Var]:
    variables: dict[tir.Var, None] = {}
    stack = [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.BinaryOp):
            stack += [top.rhs, top.lhs]
        elif isinstance(top, tir.Var):
            variables[top] = None
    return list(variables)


def linear_parts(expr: Expr, casts: bool = False) -> tuple[dict[tir.Var, int], int] | None:
    """Return the integer coefficients and the constant of an affine expression, else None.

    `casts` looks through casts to wider integers; variables are integers then.
    """
    match expr:
        case IntImm(value=value):
            return {}, value
        case tir.Var(dtype=dtype) if not casts or (dtype.is_int and dtype.lanes == 1):
            return {expr: 1}, 0
        case tir.Cast(dtype=to, value=value) if (
            casts and to.kind == value.dtype.kind == "int" and to.bits >= value.dtype.bits
        ):
            return linear_parts(value, casts)
        case tir.Add(lhs=a, rhs=b) | tir.Sub(lhs=a, rhs=b):
            left, right = linear_parts(a, casts), linear_parts(b, casts)
            if left is None or right is None:
                return None
            sign = 1 if isinstance(expr, tir.Add) else -1
            coefficients = dict(left[0])
            for var, factor in right[0].items():
                coefficients[var] = coefficients.get(var, 0) + sign * factor
            return coefficients, left[1] + sign * right[1]
        case tir.Mul(lhs=a, rhs=IntImm(value=k)) | tir.Mul(lhs=IntImm(value=k), rhs=a):
            inner = linear_parts(a, casts)
            return None if inner is None else ({v: f * k for v, f in inner[0].items()}, inner[1] * k)
    return None


def _narrow(part: Expr, bounds: dict[tir.Var, Bound]) -> None:
    """Tighten each variable of `sum(k * v) + c <= 0` by the bounds of the others."""
    a, b = part.lhs, part.rhs  # type: ignore[attr-defined]
    match part:
        case tir.LT():
            sides = [c.add(c.sub(a, b), 1)]
        case tir.LE():
            sides = [c.sub(a, b)]
        case tir.GT():
            sides = [c.add(c.sub(b, a), 1)]
        case tir.GE():
            sides = [c.sub(b, a)]
        case tir.EQ():
            sides = [c.sub(a, b), c.sub(b, a)]
        case _:
            return
    for side in sides:
        linear = linear_parts(side)
        if linear is None:
            continue
        factors, constant = linear
        for var, factor in factors.items():
            if factor == 0:
                continue
            least = constant  # of everything but this variable
            for other, k in factors.items():
                if other is not var:
                    bound = bounds[other]
                    end = bound.min if k > 0 else bound.max
                    least = -INF if abs(end) >= INF or least <= -INF else least + k * end
            if least <= -INF:
                continue
            old = bounds[var]
            # factor * var <= -least
            limit = -least // factor if factor > 0 else -(-least // -factor)
            bounds[var] = old.meet(Bound(-INF, limit) if factor > 0 else Bound(limit, INF))
