"""Extents in native code, in the manifest and by Python's integers are the same numbers."""

from __future__ import annotations

import random

import pytest

from mlcc.driver import build
from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, INT32, INT64
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.runtime.loader import load
from mlcc.runtime.manifest import evaluate, show
from mlcc.targets.plan.dims import as_json, format_dim, widen

A, B = tir.Var("a", INT64), tir.Var("b", INT32)
ARITHMETIC = (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod, tir.Min, tir.Max)
COMPARE = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE)


def expression(rng: random.Random, depth: int) -> tir.Expr:
    """A random int64 expression; nothing is folded when it is built."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice((A, tir.Cast(INT64, B), tir.IntImm(INT64, rng.randint(-4, 9))))
    kind = rng.randrange(12)
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    if kind < 8:
        return rng.choice(ARITHMETIC)(INT64, left, right)
    if kind == 8:
        return tir.Cast(INT64, condition(rng, left, right))
    if kind == 9:
        name = rng.choice(("bitwise_and", "bitwise_or", "bitwise_xor"))
        return tir.Call(INT64, tir.Op(f"tir.{name}"), (left, right))
    if kind == 10:
        return tir.Call(INT64, tir.Op("tir.shift_right"), (left, tir.IntImm(INT64, rng.randrange(4))))
    return tir.Select(INT64, condition(rng, left, right), left, right)


def condition(rng: random.Random, left: tir.Expr, right: tir.Expr) -> tir.Expr:
    one = rng.choice(COMPARE)(BOOL, left, right)
    other = rng.choice(COMPARE)(BOOL, right, tir.IntImm(INT64, 2))
    return rng.choice((one, tir.And(BOOL, one, other), tir.Or(BOOL, one, other), tir.Not(BOOL, one)))


def tuples(value: object) -> object:
    return tuple(map(tuples, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(3))
def test_native_code_and_manifest_agree(seed: int) -> None:
    rng = random.Random(seed)
    exprs = tuple(expression(rng, 4) for _ in range(60))
    params = (
        relax.Var("x", relax.PrimStructInfo(INT64, A)),
        relax.Var("y", relax.PrimStructInfo(INT32, B)),
    )
    body = relax.SeqExpr((), relax.ShapeExpr(exprs, relax.ShapeStructInfo(exprs, len(exprs))))
    func = relax.Function(params, body, attrs=Attrs({"global_symbol": "main"}))
    exe = load(build(IRModule({"main": func}), opt_level=1, pipeline=""))
    names = {A: "a", B: "b"}
    forms = [tuples(as_json(widen(e, names_to_vars := {v: tir.Var(n, INT64) for v, n in names.items()}),
                            {w: names[v] for v, w in names_to_vars.items()})) for e in exprs]  # fmt: skip
    for a, b in ((0, 0), (1, -1), (7, 3), (-5, 2), (100, -7), (3, 64)):
        wanted = tuple(evaluate(form, {"a": a, "b": b}) for form in forms)  # type: ignore[arg-type]
        assert exe["main"](a, b) == wanted


def test_expressions_read_as_people_write_them() -> None:
    n = tir.Var("n", INT64)
    assert format_dim(c.add(c.mul(n, 2), 1)) == "(n * 2) + 1"
    assert format_dim(c.minimum(c.floordiv(n, 4), 3)) == "min(n // 4, 3)"
    assert show(("select", ("<", "n", 3), 1, ("-", "n", 2))) == "select(n < 3, 1, n - 2)"


def test_what_is_no_integer_arithmetic_is_refused() -> None:
    from mlcc.ir.dtypes import FLOAT32

    n = tir.Var("n", INT64)
    for expr in (tir.Cast(INT64, tir.Cast(FLOAT32, n)), c.call("int64", "clz", n), tir.Var("m", INT64)):
        with pytest.raises(CompileError, match="E0753"):
            widen(expr, {n: n})
