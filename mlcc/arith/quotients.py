"""Differences of quotients, and of a number and a multiple of its quotient, rewritten as remainders (as TVM does).

With `//` and `%` that round down, (x + m) // k - x // k counts the multiples of k between two points, and
x - x // k * k is x % k.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm

Same = Callable[[Expr, Expr], bool]


def quotient_difference(a: Expr, b: Expr, same: Same) -> Expr | None:
    """Return a - b, of simplified integers without constant terms, as a remainder or a quotient of one, else None."""
    match a, b:
        case tir.Mul(lhs=x, rhs=IntImm(value=k)), tir.Mul(lhs=y, rhs=IntImm(value=m)) if k == m:
            difference = _quotient_steps(*split_constant(x), *split_constant(y), same)
            return None if difference is None else c.mul(difference, k)
    difference = _quotient_steps(a, 0, b, 0, same)
    if difference is None:
        difference = _remainder(a, b, same)
    if difference is None:
        difference = _remainder(b, a, same)
        difference = None if difference is None else c.sub(0, difference)
    return difference


def _quotient_steps(a: Expr, plus: int, b: Expr, minus: int, same: Same) -> Expr | None:
    """(x + m) // k - (x + n) // k == ((x + n % k) % k + (m - n)) // k, plus what stands beside the quotients."""
    match a, b:
        case tir.FloorDiv(lhs=p, rhs=IntImm(value=k)), tir.FloorDiv(lhs=q, rhs=IntImm(value=m)) if k == m > 0:
            (x, high), (y, low) = split_constant(p), split_constant(q)
            if high == low or (not high and k != 2) or not same(x, y):
                return None
            if k == 2:
                difference = c.add(c.mul(c.floormod(x, 2), high % 2 - low % 2), high // 2 - low // 2)
            else:
                difference = c.floordiv(c.add(c.floormod(c.add(x, low % k), k), high - low), k)
            return c.add(difference, plus - minus)
    return None


def _remainder(a: Expr, b: Expr, same: Same) -> Expr | None:
    """x * s - (x + y) // k * (k * s) == ((x + y) % k - y) * s."""
    match b:
        case tir.Mul(lhs=tir.FloorDiv(lhs=dividend, rhs=IntImm(value=k)), rhs=IntImm(value=m)) if k and m % k == 0:
            scale = m // k
        case _:
            return None
    x: Expr = a
    if scale != 1:
        match a:
            case tir.Mul(lhs=x, rhs=IntImm(value=s)) if s == scale:
                pass
            case _:
                return None
    rest = c.floormod(dividend, k)
    if not same(x, dividend):
        match dividend:
            case tir.Add(lhs=first, rhs=y) if same(x, first):
                rest = c.sub(rest, y)
            case tir.Sub(lhs=first, rhs=y) if same(x, first):
                rest = c.add(rest, y)
            case _:
                return None
    return c.mul(rest, scale)


def split_constant(expr: Expr) -> tuple[Expr, int]:
    """Split off the constant addend of an expression."""
    match expr:
        case tir.Add(lhs=rest, rhs=IntImm(value=k)):
            return rest, k
        case tir.Sub(lhs=rest, rhs=IntImm(value=k)):
            return rest, -k
    return expr, 0
