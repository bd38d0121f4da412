"""Every rewrite rule holds for all small integers, also negative ones, and is reached by what its pattern says."""

from __future__ import annotations

import ast
import itertools

import pytest

from mlcc.arith import rules
from mlcc.arith.analyzer import Analyzer
from mlcc.arith.rules import EQUAL, LESS, MAX, MIN, Rule, Rules
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.equal import structural_equal

ALL = [
    pytest.param(rule, id=f"{rule.pattern} -> {rule.result} if {rule.condition}")
    for rule in (*LESS.rules, *EQUAL.rules, *MIN.rules, *MAX.rules)
]
SMALL = range(-5, 6)


def names(rule: Rule) -> list[str]:
    return sorted({n.id for n in ast.walk(ast.parse(rule.pattern)) if isinstance(n, ast.Name)} - {"min", "max"})


def cases(rule: Rule) -> list[dict[str, int]]:
    """Values for the letters of a rule under which its condition holds."""
    found = [
        dict(zip(names(rule), values, strict=True)) for values in itertools.product(SMALL, repeat=len(names(rule)))
    ]
    return [values for values in found if eval(rule.condition, {}, dict(values))]


@pytest.mark.parametrize("rule", ALL)
def test_every_rule_holds_for_small_integers(rule: Rule) -> None:
    code = [compile(text, "rule", "eval") for text in (rule.pattern, rule.result)]
    known = {"min": min, "max": max}
    tried = 0
    for values in cases(rule):
        try:
            pattern = eval(code[0], known, values)
        except ZeroDivisionError:
            continue
        tried += 1
        assert pattern == eval(code[1], known, values), values
    assert tried >= 11


def node(part: ast.expr, values: dict[str, tir.Expr]) -> tir.Expr:
    """The expression that a part of a pattern means, nothing folded."""
    if isinstance(part, ast.Name):
        return values[part.id]
    one, two = (node(operand, values) for operand in rules.operands(part))
    if isinstance(part, ast.Call):
        return (tir.Min if ast.unparse(part.func) == "min" else tir.Max)(INT32, one, two)
    classes = {ast.Add: tir.Add, ast.Sub: tir.Sub, ast.Mult: tir.Mul, ast.FloorDiv: tir.FloorDiv}
    return classes[type(rules.operator(part))](INT32, one, two)  # type: ignore[index, no-any-return]


@pytest.mark.parametrize("rule", ALL)
def test_rule_is_reached(rule: Rule) -> None:
    """The compiled rule fits its pattern and makes its result; it does not fit where its condition fails."""
    letters = {"x": tir.Var("x", INT32), "y": tir.Var("y", INT32), "z": tir.Var("z", INT32)}
    one, two = rules.operands(ast.parse(rule.pattern, mode="eval").body)
    constants = [n for n in names(rule) if n in "kn"]
    alone, same = Rules(rule), Analyzer().same
    for values in itertools.product(SMALL, repeat=len(constants)):
        known = dict(zip(constants, values, strict=True))
        given = letters | {name: c.const(value, INT32) for name, value in known.items()}
        made = alone.apply(node(one, given), node(two, given), same)
        assert (made is not None) == bool(eval(rule.condition, {}, dict(known))), known


def test_constants_that_do_not_fit_leave_an_expression_alone() -> None:
    x, y = tir.Var("x", INT32), tir.Var("y", INT32)
    product = tir.FloorDiv(INT32, tir.Mul(INT32, x, y), c.const(65536, INT32))
    for expr in (c.less(product, c.const(65536, INT32)), c.less(c.const(65536, INT32), product)):
        assert structural_equal(Analyzer().simplify(expr), expr)
    assert LESS.apply(c.sub(c.const(2**31 - 1, INT32), x), c.const(-5, INT32), Analyzer().same) is None
