"""The canonical form of index expressions is TVM's: schedules are compared structurally with its results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.arith.analyzer import Analyzer  # noqa: E402
from mlcc.ir import construct as c  # noqa: E402
from mlcc.ir import tir  # noqa: E402
from mlcc.ir.dtypes import INT32  # noqa: E402

BOUNDED = {"x": (0, 8), "y": (0, 4)}
NAMES = "xyznm"
MINE = {name: tir.Var(name, INT32) for name in NAMES}
THEIRS = {name: tvm.tirx.Var(name, "int32") for name in NAMES}
SYMBOLS = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "Min": "min", "Max": "max", "LT": "<",
    "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=", "And": "and", "Or": "or",
}  # fmt: skip
MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "+": c.add, "-": c.sub, "*": c.mul, "//": c.floordiv, "%": c.floormod, "min": c.minimum, "max": c.maximum,
    "<": c.less, "<=": c.less_equal, ">": c.greater, ">=": c.greater_equal, "==": c.equal, "!=": c.not_equal,
}  # fmt: skip
THEIR_NODES = {symbol: name for name, symbol in SYMBOLS.items()}

# what splitting, fusing, reordering and tiling make, as nested tuples
KNOWN = [
    ("//", ("+", ("*", "n", 4), 33), 32),
    ("//", ("+", ("*", "n", 2), -5), 6),
    ("//", ("+", ("*", "n", 4), 1), 6),
    ("+", ("*", "z", 4), "y"),
    ("//", ("+", ("*", "z", 4), "y"), 4),
    ("%", ("+", ("*", "z", 4), "y"), 4),
    ("+", ("*", ("//", "z", 4), 4), ("%", "z", 4)),
    ("//", ("+", ("*", ("//", "z", 16), 16), ("%", "z", 16)), 4),
    ("//", ("%", "z", 64), 8),
    ("%", ("//", "z", 8), 8),
    ("%", ("%", "z", 64), 8),
    ("//", ("//", "z", 8), 4),
    ("-", ("+", ("+", ("*", "z", 4), 3), 1), ("*", "z", 4)),
    ("-", ("+", ("-", "n", 1), 1), 0),
    ("//", ("+", "n", 3), 4),
    ("+", ("*", ("+", ("*", "z", 2), "y"), 8), "x"),
    ("-", ("min", ("+", ("*", "z", 4), 4), "n"), ("*", "z", 4)),
    ("<", ("+", ("*", "z", 4), "y"), "n"),
    ("<", ("+", ("*", "z", 4), "y"), 128),
    ("<", ("+", ("*", "z", 4), "y"), 126),
    ("<=", ("+", "z", 1), "n"),
    (">=", ("-", "z", 1), 0),
    ("==", ("+", "z", 3), 5),
    ("max", ("-", "n", 1), 0),
    ("min", ("*", "x", 4), 32),
    ("*", ("+", "x", 1), ("+", "n", 2)),
    ("-", "m", ("*", "n", 8)),
    ("*", ("-", 0, "n"), 8),
    # comparisons of sums of multiples, and differences of quotients, as regions and predicates make them
    ("<", ("-", "z", "n"), 0),
    ("<", 0, ("-", "z", "n")),
    ("<", ("*", "z", 4), ("*", "n", 4)),
    ("<", ("+", ("*", "z", 4), "y"), ("*", "n", 4)),
    ("<", ("+", ("*", "z", 4), "y"), ("*", ("//", ("+", "n", 3), 4), 4)),
    (">=", ("+", ("*", "z", 4), "y"), ("*", "n", 4)),
    ("<", ("+", ("*", "z", 4), "y"), ("+", ("*", "n", 8), ("*", "m", 4))),
    ("<=", ("-", "z", "n"), 0),
    ("<", ("+", ("*", "z", 8), "x"), ("*", "n", 8)),
    ("-", ("//", ("+", "z", 5), 4), ("//", "z", 4)),
    ("-", ("//", ("+", "z", 5), 4), ("//", ("+", "z", 2), 4)),
    ("-", ("//", "z", 4), ("//", ("+", "z", 2), 4)),
    ("-", ("//", ("+", "z", 1), 2), ("//", "z", 2)),
    ("-", ("//", "z", 2), ("//", ("+", "z", 1), 2)),
    ("-", ("//", ("+", "z", 3), 2), ("//", ("+", "z", 2), 2)),
    ("-", ("//", ("-", "z", 1), 4), ("//", ("-", "z", 3), 4)),
    ("-", "n", ("*", ("//", "n", -4), -4)),
    ("-", "n", ("*", ("//", "n", 4), 4)),
    ("-", ("*", ("//", ("+", "n", 3), 4), 4), "n"),
    ("+", "n", ("%", ("-", 0, "n"), 4)),
    ("%", ("-", 0, ("*", "n", 2)), 8),
    ("-", ("+", "m", ("//", ("+", "z", 5), 4)), ("//", "z", 4)),
    ("-", ("*", ("//", ("+", "z", 5), 4), 3), ("*", ("//", "z", 4), 3)),
    ("+", ("-", ("//", ("+", "z", 5), 4), ("//", "z", 4)), "n"),
    ("-", ("+", ("*", ("//", ("+", "z", 1), 2), 96), 96), ("*", ("//", "z", 2), 96)),
    ("+", ("-", "n", ("*", ("//", "n", 4), 4)), "y"),
    ("-", ("*", "n", 2), ("*", ("//", ("+", "n", 3), 4), 8)),
    ("-", "m", ("*", ("//", ("+", "n", "m"), 4), 4)),
    ("-", "n", ("*", ("//", ("+", "n", "m"), 4), 4)),
    ("-", ("+", 3, "n"), ("*", ("//", "n", 4), 4)),
    ("<=", ("*", ("//", "z", 2), 2), "z"),
    ("<", "z", ("+", ("*", ("//", "z", 2), 2), 2)),
    ("<", ("+", ("*", "z", 4), "y"), ("+", ("max", ("-", ("*", ("//", ("+", "n", 3), 4), 4), 1), 0), 1)),
    ("<", "x", ("+", ("max", ("-", "n", 1), 0), 1)),
    ("<", ("+", ("*", "x", 4), "y"), ("+", ("max", ("-", ("*", "n", 4), 1), 0), 1)),
    # a multiple divided: what the scale leaves has one quotient over the whole range
    ("//", ("*", "y", 36), 16),
    ("//", ("*", "y", 37), 16),
    ("//", ("*", "x", 33), 16),
    ("//", ("*", "x", -31), 16),
    ("//", ("+", ("*", "x", 33), "y"), 16),
    ("//", ("+", ("*", "y", 90), 1), 8),
    ("//", ("*", "x", 36), 16),
    ("//", ("+", ("*", "x", 6), ("*", "y", 37)), 16),
]


def mlcc_expr(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return MAKE[tree[0]](mlcc_expr(tree[1]), mlcc_expr(tree[2]))
    return MINE[tree] if isinstance(tree, str) else c.const(tree, INT32)


def tvm_expr(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return getattr(tvm.tirx, THEIR_NODES[tree[0]])(tvm_expr(tree[1]), tvm_expr(tree[2]))
    return THEIRS[tree] if isinstance(tree, str) else tvm.tirx.IntImm("int32", tree)


def canonical_text(expr: Any) -> str:
    """An expression of either side in one spelling."""
    name = type(expr).__name__
    if name == "Var":
        return str(expr.name)
    if name == "IntImm":
        return str(int(expr.value))
    if name == "Not":
        return f"not {canonical_text(getattr(expr, 'value', None) or expr.a)}"
    assert name in SYMBOLS, name
    left, right = (expr.lhs, expr.rhs) if isinstance(expr, tir.Expr) else (expr.a, expr.b)
    return f"({canonical_text(left)} {SYMBOLS[name]} {canonical_text(right)})"


@pytest.fixture(scope="module")
def both() -> tuple[Analyzer, Any]:
    analyzer, other = Analyzer(), tvm.sym.Analyzer()
    for name, (low, high) in BOUNDED.items():
        analyzer.bind(MINE[name], tir.Range(c.const(low), c.const(high - low)))
        other.bind(THEIRS[name], tvm.ir.Range(low, high))
    return analyzer, other


@pytest.mark.parametrize("tree", KNOWN, ids=str)
def test_canonical_forms_of_known_expressions_agree(tree: Any, both: tuple[Analyzer, Any]) -> None:
    analyzer, other = both
    assert canonical_text(analyzer.simplify(mlcc_expr(tree))) == canonical_text(other.simplify(tvm_expr(tree)))


def random_tree(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*NAMES, *NAMES, 0, 1, 2, 3, 4, 5, 8, 16])
    kind = rng.choice("+++-**/%")
    if kind in "*/%":
        return ("//" if kind == "/" else kind, random_tree(rng, depth - 1), rng.choice([2, 3, 4, 8]))
    return (kind, random_tree(rng, depth - 1), random_tree(rng, depth - 1))


def test_random_expressions_mostly_agree(both: tuple[Analyzer, Any], all_cases: bool) -> None:
    """Rare forms differ, such as remainders of negated terms; both are right (see tests/arith)."""
    analyzer, other = both
    count = 5000 if all_cases else 600
    different = []
    for seed in range(count):
        tree = random_tree(random.Random(seed), 3)
        one, two = canonical_text(analyzer.simplify(mlcc_expr(tree))), canonical_text(other.simplify(tvm_expr(tree)))
        if one != two:
            different.append(f"{tree}: {one} against {two}")
    assert len(different) <= count * 0.02, "\n".join(different)
