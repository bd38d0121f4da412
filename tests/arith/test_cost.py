"""The cost of simplification grows with the size of an expression: Python calls are counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.tir import Expr
from tests.counting import calls

V = tuple(tir.Var(f"v{i}", INT32) for i in range(12))


def clamps(size: int) -> Expr:
    """min(max(min(...) + v, w * k) + v, w * k)"""
    made: Expr = V[0]
    for i in range(size):
        made = _either(i, c.add(made, V[(i + 1) % 12]), c.mul(V[(i + 2) % 12], i + 1))
    return made


def outward(size: int) -> Expr:
    made: Expr = V[0]
    for i in range(size):
        made = _either(i, c.sub(c.mul(V[(i + 2) % 12], 2), i), made)
    return made


def balanced(size: int, at: int = 1) -> Expr:
    if size == 1:
        return c.add(c.mul(V[at % 12], at % 5 + 1), at)
    return _either(size.bit_length(), balanced(size // 2, 2 * at), balanced(size // 2, 2 * at + 1))


def quotients(size: int) -> Expr:
    made: Expr = V[0]
    for i in range(size):
        quotient = c.add(c.floordiv(made, 3 + i % 3), c.floormod(V[(i + 1) % 12], 5))
        made = quotient if i % 2 else c.floormod(c.add(c.mul(made, 2), V[i % 12]), 7 + i)
    return made


def choices(size: int) -> Expr:
    made: Expr = V[0]
    for i in range(size):
        condition = c.less(c.add(V[i % 12], i), c.add(V[(i + 5) % 12], V[(i + 7) % 12]))
        made = tir.Select(INT32, condition, c.add(made, 1), V[(i + 2) % 12])
    return made


def conditions(size: int) -> Expr:
    made: Expr = c.less(V[0], V[1])
    for i in range(size):
        part = c.less(c.add(V[i % 12], i % 7), c.add(c.mul(V[(i + 5) % 12], i % 3 + 1), V[(i + 3) % 12]))
        made = c.logical_and(made, part) if i % 3 else c.logical_or(made, part)
    return made


def sums(size: int) -> Expr:
    made: Expr = V[0]
    for i in range(size):
        made = c.add(made, c.minimum(c.mul(V[i % 12], i + 1), c.add(V[(i + 3) % 12], i)))
    return made


def shared(size: int) -> Expr:
    """Every level uses the one below twice."""
    made: Expr = V[0]
    for i in range(size):
        if i % 2:
            made = c.floordiv(c.add(c.maximum(made, V[i % 12]), c.minimum(c.mul(made, 3), V[(i + 1) % 12])), 2)
        else:
            made = c.minimum(c.add(made, 3), c.sub(V[i % 12], made))
    return made


def _either(i: int, a: Expr, b: Expr) -> Expr:
    return c.minimum(a, b) if i % 2 else c.maximum(a, b)


@pytest.mark.parametrize("known", [True, False], ids=["bounded", "unknown"])
@pytest.mark.parametrize(
    "make", [clamps, outward, balanced, quotients, choices, conditions, sums, shared], ids=lambda f: f.__name__
)
def test_four_times_the_size_takes_four_times_the_calls(make: Callable[[int], Expr], known: bool) -> None:
    def simplified(size: int) -> int:
        analyzer = Analyzer()
        for var in V if known else ():
            analyzer.bind_bound(var, 0, 63)
        expr = make(size)
        return calls(lambda: analyzer.simplify(expr))

    simplified(2)
    assert simplified(64) < 5.5 * simplified(16) + 1000


def test_comparisons_of_nested_extremes_are_made_once() -> None:
    """A comparison of n with m operands is made of n * m comparisons, each made once."""

    def compared(size: int) -> int:
        expr = c.less(clamps(size), outward(size))
        return calls(lambda: Analyzer().simplify(expr))

    assert compared(32) < 4.5 * compared(16)
