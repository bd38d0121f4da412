"""Comparisons of minima and maxima, operand by operand, against all values of the variables."""

from __future__ import annotations

import random

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.min_max import min_max_operands, prove_less_equal
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.tir import Expr
from tests.arith.exprs import value

B = tir.Var("b", INT32)


def blocks(count: int) -> Analyzer:
    analyzer = Analyzer()
    analyzer.bind(B, tir.Range(c.const(0), c.const(count)))
    return analyzer


def test_a_tile_whose_last_is_cut_off() -> None:
    """What 8 threads of 10 rows each read of 4096 rows, of which a copy in pieces of 80 has all."""
    read = c.minimum(c.sub(4096, c.mul(B, 80)), c.sub(4100, c.mul(c.maximum(c.mul(B, 8), 402), 10)))
    written = c.sub(4096, c.maximum(c.mul(B, 80), 4014))
    assert prove_less_equal(read, written, blocks(52))
    assert not prove_less_equal(written, read, blocks(52))


def test_operands_of_nested_minima_are_listed() -> None:
    expr = c.add(c.sub(7, c.mul(c.maximum(B, 3), 2)), 1)
    assert [str(e) for e in min_max_operands(expr, tir.Min)] == ["7 - b * 2 + 1", "2"]
    assert [str(e) for e in min_max_operands(expr, tir.Max)] == [str(expr)]


def test_comparisons_are_decided_only_where_they_hold() -> None:
    rng = random.Random(0)

    def draw(depth: int) -> Expr:
        if depth == 0:
            return c.add(c.mul(B, rng.randint(-3, 3)), rng.randint(-9, 9))
        make = rng.choice((c.minimum, c.maximum, c.add, c.sub))
        return make(draw(depth - 1), draw(depth - 1))

    proved = 0
    for _ in range(300):
        a, b = draw(2), draw(2)
        if prove_less_equal(a, b, blocks(5)):
            proved += 1
            assert all(value(a, {B: n}) <= value(b, {B: n}) for n in range(5)), f"{a} <= {b}"
    assert proved > 20
