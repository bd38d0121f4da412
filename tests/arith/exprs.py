"""Random integer expressions over small domains, and their value by definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import strategies as st

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.construct import truncdiv
from mlcc.ir.dtypes import INT32
from mlcc.ir.tir import Expr

VARS = tuple(tir.Var(n, INT32) for n in "xyz")
DOMAINS = {VARS[0]: range(8), VARS[1]: range(-3, 4), VARS[2]: range(2, 7)}
_CONSTANTS = st.sampled_from([-9, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12])
_DIVISORS = st.sampled_from([-3, 1, 2, 3, 4, 6, 8])
_SAME = (tir.Add, tir.Sub, tir.Mul, tir.Min, tir.Max)
_DIVIDE = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_COMPARE = (tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE)


def _leaf() -> st.SearchStrategy[Expr]:
    return st.sampled_from(VARS) | _CONSTANTS.map(c.const)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Nodes are made unfolded, so that the simplifier sees everything."""
    same = st.builds(lambda k, a, b: k(INT32, a, b), st.sampled_from(_SAME), inner, inner)
    divide = st.builds(lambda k, a, b: k(INT32, a, c.const(b)), st.sampled_from(_DIVIDE), inner, _DIVISORS)
    scale = st.builds(lambda a, b: tir.Mul(INT32, a, c.const(b)), inner, _CONSTANTS)
    choose = st.builds(lambda p, a, b: tir.Select(INT32, p, a, b), conditions_of(inner), inner, inner)
    return same | divide | scale | choose


def conditions_of(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    compare = st.builds(lambda k, a, b: k(c.BOOL, a, b), st.sampled_from(_COMPARE), inner, inner)
    joined = st.builds(lambda k, a, b: k(c.BOOL, a, b), st.sampled_from([tir.And, tir.Or]), compare, compare)
    return compare | joined | compare.map(lambda a: tir.Not(c.BOOL, a))


integers = st.recursive(_leaf(), _grow, max_leaves=8)
conditions = conditions_of(integers)


def points() -> Iterator[dict[tir.Var, int]]:
    """Every point of the domains."""
    for values in itertools.product(*DOMAINS.values()):
        yield dict(zip(DOMAINS, values, strict=True))


def value(expr: Expr, at: dict[tir.Var, int]) -> int:
    """The value of an expression, straight from what each node means."""
    match expr:
        case tir.Var():
            return at[expr]
        case tir.IntImm(value=v):
            return v
        case tir.Not(value=a):
            return int(not value(a, at))
        case tir.Select(condition=p, true_value=a, false_value=b):
            return value(a, at) if value(p, at) else value(b, at)
    assert isinstance(expr, tir.BinaryOp), type(expr)
    a, b = value(expr.lhs, at), value(expr.rhs, at)
    match expr:
        case tir.Add():
            return a + b
        case tir.Sub():
            return a - b
        case tir.Mul():
            return a * b
        case tir.FloorDiv():
            return a // b
        case tir.FloorMod():
            return a % b
        case tir.Div():
            return truncdiv(a, b)
        case tir.Mod():
            return a - truncdiv(a, b) * b
        case tir.Min():
            return min(a, b)
        case tir.Max():
            return max(a, b)
        case tir.EQ():
            return int(a == b)
        case tir.NE():
            return int(a != b)
        case tir.LT():
            return int(a < b)
        case tir.LE():
            return int(a <= b)
        case tir.GT():
            return int(a > b)
        case tir.GE():
            return int(a >= b)
        case tir.And():
            return int(a and b)
        case tir.Or():
            return int(a or b)
    raise AssertionError(type(expr))
