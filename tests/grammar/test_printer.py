"""The printer: goldens, totality, names, precedence, numbers, constants, cost."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlcc
from mlcc.grammar.printer.literals import float_text, quote
from mlcc.grammar.printer.names import RESERVED, Names, identifier
from mlcc.grammar.printer.printer import constant_data, script
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, FLOAT32, INT32, INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, walk
from mlcc.ir.tensor_data import TensorData
from tests.generate.functions import prim_func
from tests.generate.graphs import module, tensor
from tests.grammar import samples

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("dialect", ["mlcc", "tvm"])
@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_printed_samples_match_golden_files(name: str, dialect: str, golden: Callable[[Path, str], None]) -> None:
    text = script(samples.SAMPLES[name](), dialect)
    ast.parse(text)
    golden(GOLDEN / f"{name}.{dialect}.txt", text)


# ---------------------------------------------------------------- totality


@pytest.mark.parametrize("seed", range(60))
def test_generated_functions_are_python(seed: int) -> None:
    func = prim_func(seed)
    for dialect in ("mlcc", "tvm"):
        ast.parse(script(func, dialect))


@pytest.mark.parametrize("seed", range(40))
def test_generated_modules_are_python(seed: int) -> None:
    mod = module(seed)
    for dialect in ("mlcc", "tvm"):
        ast.parse(script(mod, dialect))


def test_every_node_has_a_text() -> None:
    """Parts out of their context too: expressions with free variables, buffers, regions, blocks, bindings."""
    kinds = set()
    roots: list[Any] = [prim_func(seed) for seed in range(25)]
    roots += [f for seed in range(10) for f in module(seed).functions.values()]
    roots += [f for make in samples.SAMPLES.values() for f in make().functions.values()]
    for root in roots:
        for node in walk(root):
            if type(node) in kinds and len(kinds) > 60:
                continue
            kinds.add(type(node))
            for dialect in ("mlcc", "tvm"):
                text = script(node, dialect)
                assert text.endswith("\n")
                if not isinstance(node, tir.BufferRegion):
                    ast.parse(text)
            assert str(node) == script(node).rstrip("\n")
    missing = {"CommReducer", "Reduce", "Shuffle"} - {k.__name__ for k in kinds}
    assert not missing


def test_unknown_dialects_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no dialect `tir`; there are mlcc, tvm"):
        script(prim_func(1), "tir")


# ---------------------------------------------------------------- expressions

X, Y, Z = (tir.Var(n, INT32) for n in "xyz")
F, G = (tir.Var(n, FLOAT32) for n in "fg")
P, Q = (tir.Var(n, BOOL) for n in "pq")


def two(node: type, a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """A node as it is, unfolded."""
    return node(BOOL if issubclass(node, tir.CompareOp) else a.dtype, a, b)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (c.add(X, c.mul(Y, Z)), "x + y * z"),
        (c.mul(c.add(X, Y), Z), "(x + y) * z"),
        (c.sub(X, c.sub(Y, Z)), "x - (y - z)"),
        (c.sub(c.sub(X, Y), Z), "x - y - z"),
        (c.floordiv(X, c.floormod(Y, 3)), "x // (y % 3)"),
        (c.add(X, -3), "x + -3"),
        (c.mul(c.const(-3), X), "-3 * x"),
        (c.div(X, 3), "T.Div(x, 3)"),
        (c.div(F, G), "f / g"),
        (c.truncmod(X, 3), "T.truncmod(x, 3)"),
        (c.minimum(X, c.maximum(Y, 2)), "T.min(x, T.max(y, 2))"),
        (c.less(c.add(X, 1), Y), "x + 1 < y"),
        (c.equal(P, c.less(X, Y)), "p == (x < y)"),
        (two(tir.LT, c.cast("int32", c.less(X, Y)), Z), 'T.Cast("int32", x < y) < z'),
        (c.logical_and(P, c.logical_or(P, Q)), "p and (p or q)"),
        (c.logical_or(c.logical_and(P, Q), P), "p and q or p"),
        (c.logical_and(P, c.logical_and(Q, P)), "p and (q and p)"),
        (c.logical_not(c.logical_and(P, Q)), "not (p and q)"),
        (c.logical_not(c.equal(X, Y)), "not x == y"),
        (two(tir.EQ, c.logical_not(P), Q), "(not p) == q"),
        (tir.Not(BOOL, tir.TRUE), "T.Not(T.bool(True))"),
        # what construction would fold or convert keeps its form
        (two(tir.Add, c.const(1), c.const(2)), "T.Add(1, 2)"),
        (two(tir.Add, X, c.const(0)), "T.Add(x, 0)"),
        (two(tir.Mul, X, c.const(1)), "T.Mul(x, 1)"),
        (two(tir.FloorDiv, X, c.const(0)), "T.FloorDiv(x, 0)"),
        (two(tir.Min, c.const(1), c.const(2)), "T.Min(1, 2)"),
        (two(tir.Mod, c.const(5), c.const(2)), "T.Mod(5, 2)"),
        (two(tir.And, P, tir.TRUE), "T.And(p, T.bool(True))"),
        (two(tir.LT, c.const(1), c.const(2)), "T.LT(1, 2)"),
        (two(tir.Add, X, tir.Var("l", INT64)), "T.Add(x, l)"),
        (tir.Add(INT64, X, Y), "T.Add(x, y)"),
        # constants
        (c.const(3, "int64"), "T.int64(3)"),
        (c.const(-(2**31)), "-2147483648"),
        (c.const(255, "uint8"), "T.uint8(255)"),
        (c.const(2**64 - 1, "uint64"), "T.uint64(18446744073709551615)"),
        (tir.TRUE, "T.bool(True)"),
        (c.const(0.1), "T.float32(0.1)"),
        (c.const(1e-45), "T.float32(1e-45)"),
        (c.const(float("inf")), 'T.float32("inf")'),
        (c.const(float("-inf"), "float16"), 'T.float16("-inf")'),
        (c.const(float("nan"), "bfloat16"), 'T.bfloat16("nan")'),
        (c.const(-0.0), "T.float32(-0.0)"),
        (c.max_value("float32"), "T.float32(3.4028234663852886e+38)"),
        # the rest
        (tir.Ramp(INT32.with_lanes(4), X, c.const(1), 4), "T.Ramp(x, 1, 4)"),
        (tir.Broadcast(INT32.with_lanes(4), X, 4), "T.Broadcast(x, 4)"),
        (tir.Shuffle(INT32, (X, Y), (c.const(0),)), "T.Shuffle([x, y], [0])"),
        (tir.Let(INT32, X, Y, c.add(X, 1)), "T.Let(x + 1, where={x: y})"),
        (tir.Select(INT32, P, X, Y), "T.Select(p, x, y)"),
        (c.call("float32", "exp", F), "T.exp(f)"),
        (c.call("int32", "call_extern", "foo", X), 'T.call_extern("int32", "foo", x)'),
        (c.call("int32", "bitwise_and", X, 3), "T.bitwise_and(x, 3)"),
        (tir.Call(INT32, relax.GlobalVar("callee"), (X,)), "cls.callee(x)"),
        (c.load(c.make_buffer("A", ()),), "A[()]"),
        (c.load(c.make_buffer("A", (4, 4)), X, 2), "A[x, 2]"),
        (tir.StringImm('a"b\n'), '"a\\"b\\n"'),
    ],
)  # fmt: skip
def test_expressions_are_printed_as_expected(expr: tir.Expr, text: str) -> None:
    assert script(expr) == text + "\n"
    ast.parse(text, mode="eval")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (c.const(2**64 - 1, "uint64"), 'T.Cast("uint64", T.int64(-1))'),
        (c.min_value("float64"), 'T.FloatImm("float64", -1.7976931348623157e+308)'),
        (c.call("int32", "shift_left", X, 3), "T.LShift(x, 3)"),
        (c.call("float32", "floor", c.const(1.5)), 'T.call_intrin("float32", "tirx.floor", T.float32(1.5))'),
        (c.call("int32", "if_then_else", tir.TRUE, X, Y),
         'T.call_intrin("int32", "prim.if_then_else", T.bool(True), x, y)'),
    ],
)  # fmt: skip
def test_expressions_are_printed_for_tvm(expr: tir.Expr, text: str) -> None:
    assert script(expr, "tvm") == text + "\n"


# ---------------------------------------------------------------- numbers and strings


@given(st.floats(width=64))
def test_float64_literals_read_back_equal(value: float) -> None:
    text = float_text(value, DType.of("float64"))
    read = float(text.strip('"'))
    assert read == value or (math.isnan(read) and math.isnan(value))
    assert math.copysign(1, read) == math.copysign(1, value) or math.isnan(value)


@given(st.floats(width=32), st.sampled_from(["float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"]))
def test_narrow_float_literals_are_short_and_exact(value: float, name: str) -> None:
    dtype = DType.of(name)
    rounded = c.round_float(value, dtype)
    text = float_text(rounded, dtype)
    read = c.round_float(float(text.strip('"')), dtype)
    assert read == rounded or (math.isnan(read) and math.isnan(rounded))
    assert len(text) <= 25


@given(st.text())
def test_string_literals_read_back_equal(text: str) -> None:
    literal = quote(text)
    assert "\n" not in literal and literal.isprintable()
    assert ast.literal_eval(literal) == text


# ---------------------------------------------------------------- names


@given(st.lists(st.text(max_size=6), max_size=12))
def test_names_are_unique_identifiers(hints: list[str]) -> None:
    names = Names()
    made = [names.fresh(h) for h in hints]
    assert len(set(made)) == len(made)
    for name in made:
        assert name.isidentifier() and name.isascii() and name not in RESERVED


def test_names_of_ended_scopes_are_free_again() -> None:
    names = Names()
    assert names.fresh("i") == "i"
    for _ in range(3):
        names.push()
        assert [names.fresh("i"), names.fresh("i"), names.fresh("j")] == ["i_1", "i_2", "j"]
        names.pop()
    assert names.fresh("i") == "i_1"
    assert names.fresh("i_1") == "i_1_1"


def test_names_for_outer_scopes_avoid_those_inside() -> None:
    names = Names()
    names.push()
    names.fresh("i")
    names.pop()
    names.push()
    assert names.fresh("i", 0) == "i_1"


@pytest.mark.parametrize("hint", ["for", "T", "R", "cls", "None", "", "1x", "a b", "é", "a.b", "__", "range"])
def test_hard_names_become_identifiers(hint: str) -> None:
    x = relax.Var(hint, tensor((), FLOAT32))
    func = relax.Function((x,), relax.SeqExpr((), x), x.struct_info, True, Attrs(global_symbol="main"))
    for name, expected in (("Module", identifier(hint)), (hint, None)):
        (made,) = ast.parse(script(IRModule({"main": func}, name=name))).body
        assert isinstance(made, ast.ClassDef) and isinstance(made.body[0], ast.FunctionDef)
        arg = made.body[0].args.args[0].arg
        assert arg not in RESERVED and arg != made.name and arg == (expected or arg)


def test_function_names_that_are_no_identifiers() -> None:
    func = tir.PrimFunc((), (), Attrs(global_symbol="a.b"), (tir.Evaluate(c.const(0)),))
    caller = tir.PrimFunc((), (), Attrs(), (tir.Evaluate(tir.Call(INT32, relax.GlobalVar("a.b"), ())),))
    text = script(IRModule({"a.b": func, "a_b": func, "caller": caller}))
    assert 'T.func_attr({"global_symbol": "a.b"})' in text
    assert "def a_b()" in text and "def a_b_1()" in text and "Module.a_b()" in text


# ---------------------------------------------------------------- constants


def constant(array: np.ndarray, key: str = "", dtype: str | None = None) -> relax.Constant:
    data = TensorData.of(array, DType.of(dtype) if dtype else None, key)
    return relax.Constant(data, tensor(tuple(c.const(n, INT64) for n in array.shape), data.dtype))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (constant(np.array(1.5, "float32")), 'R.const(1.5, "float32")'),
        (constant(np.array([[1, 2], [3, 4]], "int8")), 'R.const([[1, 2], [3, 4]], "int8")'),
        (constant(np.array([True, False])), 'R.const([True, False], "bool")'),
        (constant(np.array([np.inf, -np.inf, np.nan], "float16")),
         'R.const([float("inf"), float("-inf"), float("nan")], "float16")'),
        (constant(np.array([0x3F80, 0x4000], "uint16"), dtype="bfloat16"), 'R.const([1.0, 2.0], "bfloat16")'),
        (constant(np.zeros((0,), "float32")), 'R.const([], "float32")'),
        (relax.Constant(TensorData(FLOAT32, (4, 2), None, "w")),
         'R.data("w", R.Tensor((4, 2), dtype="float32"))'),
        (relax.Constant(TensorData(FLOAT32, (4,), None, "w", "ab" * 32)),
         f'R.data("w", R.Tensor((4,), dtype="float32"), sha256="{"ab" * 32}")'),
        (relax.Constant(TensorData(DType.of("void"), (), None, "relax.expr.Constant[3]")),
         'metadata["relax.expr.Constant"][3]'),
        (relax.Constant(TensorData(DType.of("void"), (), None, "ir.GenericConst[0]")),
         'metadata["ir.GenericConst"][0]'),
        (relax.Constant(TensorData(DType.of("void"), (), None, "meta[relay.Constant][12]")),
         "meta[relay.Constant][12]"),
    ],
)  # fmt: skip
def test_constants_are_printed_as_expected(node: relax.Constant, text: str) -> None:
    assert script(node) == text + "\n"


def test_large_constants_are_references() -> None:
    values = np.arange(17, dtype="float32")
    node = constant(values, "w 0")
    text = script(node)
    first, line = text.splitlines()
    assert first.startswith('R.data("w 0", R.Tensor((17,), dtype="float32"), sha256="')
    assert line.startswith("# mlcc.data w%200 float32 17 ")
    assert script(node, data=False).splitlines() == [first]
    assert script(node, "tvm") == f'R.const({values.tolist()}, "float32")\n'
    assert constant_data(node) == {"w 0": node.data}


def test_constants_get_unique_keys() -> None:
    a, b = constant(np.arange(20, dtype="int8")), constant(np.arange(1, 21, dtype="int8"))
    same = constant(np.arange(20, dtype="int8"))
    assert list(constant_data(relax.Tuple((a, b, same)))) == ["constant", "constant_1"]
    empty = constant(np.zeros((0, 3), "float32"))
    assert script(empty).startswith('R.data("constant", R.Tensor((0, 3), dtype="float32")')


# ---------------------------------------------------------------- depth and cost


def test_deep_expressions_are_printed() -> None:
    left: tir.Expr = X
    right: tir.Expr = X
    for _ in range(10_000):
        left = tir.Add(INT32, left, X)
        right = tir.Sub(INT32, X, right)
    assert script(left) == " + ".join(["x"] * 10_001) + "\n"
    assert script(right) == "x - (" * 9_999 + "x - x" + ")" * 9_999 + "\n"
    nested: relax.Expr = relax.Var("v")
    for _ in range(10_000):
        nested = relax.Call(tir.Op("relax.abs"), (relax.TupleGetItem(relax.Tuple((nested,)), 0),))
    assert script(nested) == "R.abs((" * 10_000 + "v" + ",)[0])" * 10_000 + "\n"


def test_deep_statements_are_printed() -> None:
    stmt: tir.Stmt = tir.Evaluate(X)
    for _ in range(2_000):
        stmt = tir.IfThenElse(P, (stmt,), None)
    text = script(stmt)
    assert text.count("if p:") == 2_000 and text.endswith(" " * 8_000 + "T.evaluate(x)\n")
    chain: tir.Stmt = tir.Evaluate(X)
    for _ in range(5_000):
        chain = tir.IfThenElse(P, (tir.Evaluate(Y),), (chain,))
    assert script(chain).count("\nelif p:\n") == 4_999
    scopes: tir.Stmt = tir.Evaluate(X)
    for _ in range(3_000):
        scopes = tir.AttrStmt(c.const(0), "key", c.const(1), (scopes,))
    assert script(scopes).count("\n") > 3_000


def test_many_equal_names() -> None:
    bindings = []
    x = relax.Var("x", tensor((), FLOAT32))
    last: relax.Var = x
    for _ in range(20_000):
        var = relax.DataflowVar("lv", x.struct_info)
        bindings.append(relax.VarBinding(var, last))
        last = var
    seq = relax.SeqExpr((relax.DataflowBlock(tuple(bindings)),), x)
    text = script(relax.Function((x,), seq, x.struct_info, True, Attrs(global_symbol="main")))
    assert "lv_19999: " in text


def test_printing_leaves_the_recursion_limit() -> None:
    import sys

    before = sys.getrecursionlimit()
    script(prim_func(3))
    assert sys.getrecursionlimit() == before


def test_an_offset_of_zero_is_said_where_a_factor_would_make_it_a_variable() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((32,), "float32")):
    V = T.decl_buffer((16,), "float32", data=A.data, elem_offset=0, offset_factor=16)
    V[0] = T.float32(1.0)
"""
    read = mlcc.parse(text)
    for dialect in ("mlcc", "tvm"):
        printed = mlcc.script(read, dialect=dialect)
        assert "elem_offset=0, offset_factor=16" in printed
        mlcc.assert_structural_equal(mlcc.parse(printed), read)


def test_what_tvms_operators_would_fold_is_written_as_nodes() -> None:
    read = mlcc.parse("""
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    A[0] = A[0] * T.float32(0.0)
    A[1] = T.float32(0.0) / A[1] + T.float32(-0.0) * A[2] * T.float32(2.0)
""")
    printed = mlcc.script(read, dialect="tvm")
    assert "A[0] = T.Mul(A[0], T.float32(0.0))" in printed
    assert "A[1] = T.Div(T.float32(0.0), A[1]) + T.Mul(T.float32(-0.0), A[2]) * T.float32(2.0)" in printed
    mlcc.assert_structural_equal(mlcc.parse(printed), read)
