"""The analyzer against brute force over small domains."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, INT64, DType
from tests.arith.exprs import DOMAINS, VARS, conditions, integers, points, value

CASES = settings(max_examples=150, deadline=None)
X, Y, Z = VARS


def bound_analyzer() -> Analyzer:
    analyzer = Analyzer()
    for var, domain in DOMAINS.items():
        analyzer.bind(var, tir.Range(c.const(domain.start), c.const(len(domain))))
    return analyzer


@CASES
@given(integers)
def test_simplify_keeps_the_value(expr: tir.Expr) -> None:
    made = bound_analyzer().simplify(expr)
    assert all(value(made, at) == value(expr, at) for at in points())


@CASES
@given(conditions)
def test_simplify_keeps_the_truth(expr: tir.Expr) -> None:
    made = bound_analyzer().simplify(expr)
    assert all(bool(value(made, at)) == bool(value(expr, at)) for at in points())


@CASES
@given(integers)
def test_simplify_reaches_a_fixed_point(expr: tir.Expr) -> None:
    """A second pass may only shorten; a third changes nothing that the second did not."""
    analyzer = bound_analyzer()
    once = analyzer.simplify(analyzer.simplify(expr))
    assert analyzer.same(analyzer.simplify(once), once)


def test_casts_keep_the_residues_that_hold() -> None:
    """Wider, a number keeps all residues; narrower, those of powers of two that the width has."""
    analyzer, wide = Analyzer(), tir.Var("n", INT64)
    eights = c.cast(INT64, c.floormod(c.mul(X, 8), 256))
    assert analyzer.prove(c.equal(c.floormod(c.add(c.mul(wide, 256), eights), 8), 0))
    assert analyzer.modular_set(c.cast(INT32, c.add(c.mul(wide, 24), 5))) == (8, 5)
    assert analyzer.modular_set(c.cast(INT32, c.mul(wide, 3))) == (1, 0)


def test_what_a_constraint_said_ends_with_it() -> None:
    """Bounds of remainders follow from residues: they are computed anew when those change."""
    analyzer, rest = Analyzer(), c.floormod(c.add(X, 1), 8)
    assert analyzer.bound(rest) == (0, 7)
    with analyzer.constraint(c.equal(c.floormod(X, 4), 0)):
        assert analyzer.bound(rest) == (1, 5)
    assert analyzer.bound(rest) == (0, 7)
    with analyzer.constraint(c.equal(c.floormod(X, 4), 0)):
        pass
    later = c.floormod(c.add(X, 1), 4)
    with analyzer.constraint(c.logical_and(c.equal(c.floormod(X, 4), 0), c.less(X, Y))):
        assert analyzer.bound(later) == (1, 1)
    assert analyzer.bound(later) == (0, 3)


def test_a_variable_bound_inside_a_constraint_stays_bound() -> None:
    analyzer = Analyzer()
    least = c.minimum(X, Y)
    assert analyzer.same(analyzer.simplify(least), least)
    with analyzer.constraint(c.less(Z, Y)):
        analyzer.bind_bound(X, 0, 3)
        analyzer.bind_bound(Y, 5, 9)
    assert analyzer.simplify(least) is X


@CASES
@given(integers)
def test_bounds_and_residues_hold(expr: tir.Expr) -> None:
    analyzer = bound_analyzer()
    low, high = analyzer.bound(expr)
    coeff, base = analyzer.modular_set(expr)
    for at in points():
        found = value(expr, at)
        assert low <= found <= high
        assert found == base if coeff == 0 else found % coeff == base


@CASES
@given(conditions, integers)
def test_constraints_are_used_soundly(condition: tir.Expr, expr: tir.Expr) -> None:
    analyzer = bound_analyzer()
    with analyzer.constraint(condition):
        made, bound = analyzer.simplify(expr), analyzer.bound(expr)
    for at in points():
        if value(condition, at):
            assert value(made, at) == value(expr, at)
            assert bound.min <= value(expr, at) <= bound.max
    after = analyzer.simplify(expr)
    assert all(value(after, at) == value(expr, at) for at in points())


@CASES
@given(integers)
def test_intervals_cover_all_values(expr: tir.Expr) -> None:
    """`z` stays symbolic, the others run over their domains."""
    domains = {v: from_range(tir.Range(c.const(DOMAINS[v].start), c.const(len(DOMAINS[v])))) for v in (X, Y)}
    found = eval_set(expr, domains)
    for at in points():
        assert found.low is None or value(found.low, at) <= value(expr, at)
        assert found.high is None or value(found.high, at) >= value(expr, at)


def test_products_of_what_is_not_negative_have_ends() -> None:
    zero = c.const(0)
    found = eval_set(c.mul(c.minimum(X, 7), Y), {X: Interval(zero, None), Y: Interval(zero, c.const(5))})
    assert (tir.const_int(found.low), tir.const_int(found.high)) == (0, 35)
    assert eval_set(c.mul(X, Y), {X: Interval(c.const(-1), c.const(2)), Y: Interval(zero, None)}).high is None


def test_like_terms_are_collected() -> None:
    analyzer = bound_analyzer()
    made = analyzer.simplify(c.add(c.add(c.mul(X, 4), Y), c.sub(c.mul(X, 4), Y)))
    assert isinstance(made, tir.Mul) and made.lhs is X and tir.const_int(made.rhs) == 8


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (c.floordiv(c.add(c.mul(Y, 8), X), 8), Y),
        (c.floormod(c.add(c.mul(Y, 8), X), 8), X),
        (c.add(c.mul(c.floordiv(Y, 4), 4), c.floormod(Y, 4)), Y),
        (c.floordiv(c.floordiv(Y, 4), 3), c.floordiv(Y, 12)),
        (c.floormod(c.floormod(Y, 12), 4), c.floormod(Y, 4)),
        (c.minimum(c.add(Y, 3), Y), Y),
        (c.sub(c.maximum(Y, c.add(Y, 3)), Y), c.const(3)),
        (c.less(c.add(c.mul(Y, 8), X), 8), c.less(Y, 1)),
        (c.logical_and(c.less(Y, X), c.greater_equal(Y, X)), c.const(False)),
        (tir.Select(INT32, c.less(X, 8), Y, Z), Y),
    ],
)
def test_known_expressions_simplify_as_expected(expr: tir.Expr, expected: tir.Expr) -> None:
    analyzer = bound_analyzer()
    assert analyzer.same(analyzer.simplify(expr), expected)


def test_divisions_by_symbolic_extents_simplify() -> None:
    n = tir.Var("n", INT64)
    i = tir.Var("i", INT64)
    analyzer = Analyzer()
    analyzer.bind_bound(n, 1, 1 << 40)
    made = analyzer.simplify(c.sub(c.add(c.sub(c.add(n, i), 1), 1), i))
    assert made is n
    assert analyzer.prove(c.less(c.sub(n, 1), n))
    assert not analyzer.prove(c.less(i, n))
    with analyzer.constraint(c.less(i, n)):
        assert analyzer.prove(c.less_equal(c.add(i, 1), n))


def test_equal_when_not_provable_is_not_claimed() -> None:
    a, b = tir.Var("a", INT32), tir.Var("b", INT32)
    analyzer = Analyzer()
    assert not analyzer.prove(c.equal(a, b))
    assert not analyzer.prove_equal(a, b)
    assert analyzer.prove(c.not_equal(c.add(c.mul(a, 4), 1), c.mul(b, 2)))


@pytest.mark.parametrize("name", ["uint8", "uint32", "int8", "float32"])
def test_wrapping_and_floating_types_are_left_alone(name: str) -> None:
    dtype = DType.of(name)
    a, b = tir.Var("a", dtype), tir.Var("b", dtype)
    expr = tir.Sub(dtype, tir.Add(dtype, a, b), b)
    assert Analyzer().simplify(expr) is expr
    compare = tir.LT(BOOL, a, tir.Add(dtype, a, c.const(1, dtype)))
    assert Analyzer().simplify(compare) is compare


def test_narrow_bounds_wrap() -> None:
    a = tir.Var("a", DType.of("uint8"))
    expr = tir.Add(a.dtype, a, c.const(1, "uint8"))
    assert Analyzer().bound(expr) == (0, 255)
    assert Analyzer().bound(tir.Cast(INT32, expr)) == (0, 255)


def test_what_was_simplified_before_a_variable_is_bound_follows_its_range_afterwards() -> None:
    """Results are kept over bindings of other variables, and forgotten where the variable occurs."""
    analyzer = Analyzer()
    x, y = tir.Var("x", INT32), tir.Var("y", INT32)
    quotient, kept = c.floordiv(x, 8), c.sub(c.add(y, 1), 1)
    assert analyzer.simplify(quotient) is quotient
    assert analyzer.simplify(kept) is y
    assert analyzer.bound(x).max > 7
    analyzer.bind(x, tir.Range(c.const(0), c.const(8)))
    assert tir.const_int(analyzer.simplify(quotient)) == 0
    assert analyzer.simplify(kept) is y
    with analyzer.constraint(c.less(x, 4)):
        z = tir.Var("z", INT32)
        analyzer.bind(z, tir.Range(c.const(0), c.const(4)))
        assert tir.const_int(analyzer.simplify(c.floordiv(x, 4))) == 0
    assert tir.const_int(analyzer.simplify(c.floordiv(x, 4))) is None
    assert analyzer.bound(z) == (0, 3)
