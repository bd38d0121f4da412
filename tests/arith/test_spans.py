"""Quotients and remainders by sizes that are not known, against the numbers."""

from __future__ import annotations

import itertools

import pytest

from mlcc.arith.symbolic_extents import SymbolicExtents
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.ir.visit import substitute

B, M, I, J, K = (tir.Var(name, INT64) for name in "bmijk")
L = tir.Var("l", INT64)
LENGTH = c.add(B, M)
EXTENTS = {I: c.mul(B, 8), J: M, K: c.const(4, INT64), L: LENGTH}


def div(a: tir.Expr, b: tir.Expr | int) -> tir.Expr:
    return c.floordiv(a, c.as_expr(b, INT64))


def mod(a: tir.Expr, b: tir.Expr | int) -> tir.Expr:
    return c.floormod(a, c.as_expr(b, INT64))


def spans() -> SymbolicExtents:
    made = SymbolicExtents([B, M])
    for var, extent in EXTENTS.items():
        made.bind(var, extent)
    return made


def value(expr: tir.Expr, given: dict[tir.Var, int]) -> int:
    found = tir.const_int(substitute(expr, {v: c.const(n, INT64) for v, n in given.items()}))
    if found is None:
        from mlcc.arith.analyzer import simplify

        found = tir.const_int(simplify(substitute(expr, {v: c.const(n, INT64) for v, n in given.items()})))
    assert found is not None
    return found


FLAT = c.add(c.mul(I, M), J)
DEEP = c.add(c.mul(c.add(c.mul(I, M), J), 4), K)
GONE = [
    div(FLAT, M), mod(FLAT, M), mod(div(div(FLAT, M), 8), B), div(DEEP, c.mul(M, 4)), mod(DEEP, c.mul(M, 4)),
    mod(div(DEEP, 4), M), div(c.add(div(K, 4), FLAT), M), div(mod(DEEP, 4), 4), div(c.mul(FLAT, 8), c.mul(M, 16)),
    mod(mod(DEEP, c.mul(4, M)), c.mul(M, 4)),
]  # fmt: skip
STAY = [div(c.add(FLAT, 1), M), div(I, B), mod(c.mul(I, J), M), div(c.sub(FLAT, J), M), div(c.add(J, K), M)]


# by the length of a concatenation
ROW = c.add(c.mul(c.add(c.mul(I, M), J), LENGTH), L)
SUMS = [
    div(ROW, LENGTH), mod(ROW, LENGTH), mod(div(ROW, LENGTH), M), div(div(ROW, LENGTH), M), div(L, c.add(B, M)),
    div(c.mul(J, c.add(LENGTH, 3)), c.add(LENGTH, 3)),
]  # fmt: skip
NO_SUMS = [
    mod(c.add(c.mul(J, c.add(LENGTH, 3)), L), c.add(LENGTH, 3)),
    div(L, M),
    div(c.add(L, 1), LENGTH),
    mod(c.add(L, B), LENGTH),
    div(J, LENGTH),
    div(ROW, c.add(B, 1)),
]


@pytest.mark.parametrize("expr", [*SUMS, *NO_SUMS], ids=str)
def test_expressions_over_sums_of_sizes_keep_their_values(expr: tir.Expr) -> None:
    simplified = spans().simplify(expr)
    for b, m in itertools.product((1, 2, 3), (1, 2, 5)):
        for i, j, last in itertools.product(range(0, 8 * b, 3), range(m), range(b + m)):
            known = {B: b, M: m, I: i, J: j, L: last}
            assert value(simplified, known) == value(expr, known)


@pytest.mark.parametrize("expr", SUMS, ids=str)
def test_divisions_by_sums_of_sizes_are_decided(expr: tir.Expr) -> None:
    assert not [n for n in walk(spans().simplify(expr)) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]


@pytest.mark.parametrize("expr", [*GONE, *STAY], ids=str)
def test_simplified_expressions_keep_their_values(expr: tir.Expr) -> None:
    made = spans().simplify(expr)
    for b, m in itertools.product((1, 2, 3), (1, 2, 5)):
        for i, j, k in itertools.product(range(0, 8 * b, 3), range(m), range(4)):
            given = {B: b, M: m, I: i, J: j, K: k}
            assert value(made, given) == value(expr, given)


@pytest.mark.parametrize("expr", GONE[:8], ids=str)
def test_what_loops_decide_is_not_divided_by_sizes(expr: tir.Expr) -> None:
    made = spans().simplify(expr)
    divisors = [n.rhs for n in walk(made) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]
    assert all(isinstance(divisor, tir.IntImm) for divisor in divisors)


def test_a_variable_that_is_no_size_decides_nothing() -> None:
    expr = div(FLAT, M)
    assert SymbolicExtents([B]).simplify(expr) is expr
