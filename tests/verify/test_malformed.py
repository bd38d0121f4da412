"""Trees that no text gives, as a faulty pass could build them: each is found, with its code."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mlcc.errors import CompileError, Severity
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, FLOAT32, INT32, INT64, DType
from mlcc.ir.node import EMPTY
from mlcc.verify import check, verify
from tests.generate.functions import prim_func
from tests.generate.graphs import module as graph_module

A = c.make_buffer("A", (8,), "float32")
B = c.make_buffer("B", (8, 8), "float32")
I = tir.Var("i", INT32)
F = tir.Var("f", FLOAT32)
ZERO = c.const(0)
ONE = c.const(1.0, "float32")


def func(*body: tir.Stmt, params: tuple[tir.Var, ...] | None = None) -> tir.PrimFunc:
    """A function of the buffers A and B and the scalar f."""
    params = params or tuple(tir.Var(n, DType.of("handle")) for n in "ab")
    return tir.PrimFunc((*params, F), (A, B, None), EMPTY, body)


def loop(*body: tir.Stmt, var: tir.Var = I, extent: int = 8, **more: object) -> tir.For:
    kind = more.pop("kind", tir.ForKind.SERIAL)
    return tir.For(var, c.const(0, var.dtype), c.const(extent, var.dtype), kind, body, **more)  # type: ignore[arg-type]


def store(value: tir.Expr, *indices: tir.Expr, buffer: tir.Buffer = A) -> tir.BufferStore:
    return tir.BufferStore(buffer, value, indices or (I,))


def block(*body: tir.Stmt, values: tuple[tir.Expr, ...] = (I,), extent: int = 8) -> tir.BlockRealize:
    axis = tir.IterVar(tir.Var("vi", INT32), tir.Range(ZERO, c.const(extent)), tir.IterKind.SPATIAL)
    whole = tir.BufferRegion(A, (tir.Range(ZERO, c.const(8)),))
    return tir.BlockRealize(values, tir.TRUE, tir.Block("b", (axis,), (), (whole,), body))


def evaluate(value: tir.Expr) -> tir.Evaluate:
    return tir.Evaluate(value)


FOUR = tir.Broadcast(DType.of("int32x4"), ZERO, 4)
BAD_EXPRESSIONS: dict[str, tuple[str, tir.Expr]] = {
    "operands of two dtypes": ("E0337", tir.Add(FLOAT32, ONE, c.const(1))),
    "result of another dtype": ("E0337", tir.Add(INT64, ZERO, ZERO)),
    "comparison that is no bool": ("E0337", tir.LT(INT32, ZERO, ZERO)),
    "and of integers": ("E0337", tir.And(INT32, ZERO, ZERO)),
    "not of an integer": ("E0337", tir.Not(BOOL, ZERO)),
    "select by an integer": ("E0342", tir.Select(FLOAT32, ZERO, ONE, ONE)),
    "select between dtypes": ("E0337", tir.Select(FLOAT32, tir.TRUE, ONE, ZERO)),
    "if_then_else by an integer": ("E0342", tir.Call(FLOAT32, tir.Op("tir.if_then_else"), (ZERO, ONE, ONE))),
    "if_then_else without a side": ("E0345", tir.Call(FLOAT32, tir.Op("tir.if_then_else"), (tir.TRUE, ONE))),
    "cast to another number of lanes": ("E0337", tir.Cast(DType.of("int32x4"), ONE)),
    "ramp of floats": ("E0337", tir.Ramp(DType.of("float32x4"), ONE, ONE, 4)),
    "ramp of other lanes": ("E0337", tir.Ramp(DType.of("int32x8"), ZERO, ZERO, 4)),
    "broadcast of a vector": ("E0337", tir.Broadcast(DType.of("int32x4"), FOUR, 4)),
    "shuffle out of the vectors": ("E0337", tir.Shuffle(INT32, (FOUR,), (c.const(4),))),
    "constant too large": ("E0348", tir.IntImm(DType.of("int8"), 200)),
    "negative unsigned": ("E0348", tir.IntImm(DType.of("uint8"), -1)),
    "integer of float dtype": ("E0337", tir.IntImm(FLOAT32, 1)),
    "intrinsic with too many arguments": ("E0345", tir.Call(FLOAT32, tir.Op("tir.exp"), (ONE, ONE))),
    "intrinsic of another dtype": ("E0337", tir.Call(INT32, tir.Op("tir.exp"), (ONE,))),
    "intrinsic of two dtypes": ("E0337", tir.Call(FLOAT32, tir.Op("tir.pow"), (ONE, ZERO))),
    "extern without a name": ("E0345", tir.Call(FLOAT32, tir.Op("tir.call_extern"), (ONE,))),
    "too few indices": ("E0339", tir.BufferLoad(FLOAT32, B, (ZERO,))),
    "index that is a float": ("E0337", tir.BufferLoad(FLOAT32, A, (ONE,))),
    "load of another dtype": ("E0337", tir.BufferLoad(INT32, A, (ZERO,))),
    "vector index that is not the last": ("E0337", tir.BufferLoad(FLOAT32, B, (FOUR, ZERO))),
    "unbound variable": ("E0331", tir.Var("k", INT32)),
    "let of another dtype": ("E0337", tir.Let(INT32, tir.Var("x", INT32), ONE, ZERO)),
    "reduction": ("E0349", tir.Reduce(FLOAT32, tir.CommReducer((), (), (), ()), (), (), (), tir.TRUE, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_EXPRESSIONS)
def test_malformed_expressions_are_found(name: str) -> None:
    code, expr = BAD_EXPRESSIONS[name]
    assert [d.code for d in verify(func(evaluate(expr)))] == [code]


K = tir.Var("k", INT32)
OTHER = c.make_buffer("other", (8,), "float32")
DOUBLE = block(store(ONE, ZERO), values=(ZERO,), extent=1)
BAD_STATEMENTS: dict[str, tuple[str, Callable[[], tir.PrimFunc]]] = {
    "loop of another dtype": ("E0337", lambda: func(tir.For(I, ZERO, c.const(8, INT64), tir.ForKind.SERIAL, ()))),
    "loop over floats": ("E0337", lambda: func(loop(var=tir.Var("x", FLOAT32)))),
    "loop after its loop": ("E0331", lambda: func(loop(store(ONE)), store(ONE))),
    "one variable for two loops": ("E0333", lambda: func(loop(loop(store(ONE))))),
    "one variable for loops in turn": ("E0333", lambda: func(loop(store(ONE)), loop(store(ONE)))),
    "bound twice": ("E0333", lambda: func(tir.Bind(K, ZERO), tir.Bind(K, ZERO))),
    "bound after its body": ("E0331", lambda: func(loop(tir.Bind(K, ZERO), evaluate(K)), evaluate(K))),
    "bound to another dtype": ("E0337", lambda: func(tir.Bind(K, ONE))),
    "stored value of another dtype": ("E0338", lambda: func(store(ZERO, ZERO))),
    "stored with too few indices": ("E0339", lambda: func(store(ONE, ZERO, buffer=B))),
    "undeclared buffer": ("E0332", lambda: func(store(ONE, ZERO, buffer=OTHER))),
    "buffer allocated in a body that ended": (
        "E0332", lambda: func(loop(tir.AllocBuffer(OTHER), store(ONE, buffer=OTHER)), store(ONE, ZERO, buffer=OTHER)),
    ),
    "buffer declared twice": ("E0333", lambda: func(tir.AllocBuffer(OTHER), tir.AllocBuffer(OTHER))),
    "condition that is an integer": ("E0342", lambda: func(tir.IfThenElse(ZERO, (store(ONE, ZERO),)))),
    "condition that is a vector": (
        "E0342", lambda: func(tir.While(tir.Broadcast(DType.of("boolx4"), tir.TRUE, 4), ())),
    ),
    "assertion of a number": ("E0342", lambda: func(tir.AssertStmt(ONE, "", ("no",)))),
    "break outside a loop": ("E0347", lambda: func(tir.Break())),
    "continue in a block of a loop": ("E0347", lambda: func(loop(block(tir.Continue())))),
    "block without realize": ("E0349", lambda: func(DOUBLE.block)),
    "block at two places": ("E0333", lambda: func(loop(DOUBLE), loop(DOUBLE, var=K))),
    "bindings of another number": ("E0336", lambda: func(block(store(ONE, ZERO), values=()))),
    "axis bound to a float": ("E0337", lambda: func(block(store(ONE, ZERO), values=(F,)))),
    "predicate that is no bool": (
        "E0342", lambda: func(tir.BlockRealize((), ZERO, tir.Block("b", (), (), (), (store(ONE, ZERO),)))),
    ),
    "bound loop without a thread": ("E0343", lambda: func(loop(kind=tir.ForKind.THREAD_BINDING))),
    "thread of a serial loop": ("E0343", lambda: func(loop(thread="threadIdx.x"))),
    "step of zero": ("E0343", lambda: func(loop(step=ZERO))),
    "parameter that is no handle": ("E0346", lambda: func(params=(K, tir.Var("b", DType.of("handle"))))),
    "parameter listed twice": ("E0346", lambda: func(params=(p := tir.Var("a", DType.of("handle")), p))),
    "strides of another number": (
        "E0350", lambda: func(tir.AllocBuffer(c.make_buffer("S", (4, 4), strides=(4,)))),
    ),
    "negative size": ("E0350", lambda: func(tir.AllocBuffer(c.make_buffer("S", (-1,))))),
    "size that is a float": ("E0350", lambda: func(tir.AllocBuffer(c.make_buffer("S", (ONE,))))),
    "size that nothing binds": ("E0331", lambda: func(tir.AllocBuffer(c.make_buffer("S", (tir.Var("n", INT32),))))),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_STATEMENTS)
def test_malformed_statements_are_found(name: str) -> None:
    code, make = BAD_STATEMENTS[name]
    found = [d.code for d in verify(make())]
    assert code in found and set(found) == {code}


def info(*dims: int | tir.Expr, dtype: str = "float32") -> relax.TensorStructInfo:
    made = tuple(c.as_expr(d, INT64) for d in dims)
    return relax.TensorStructInfo(
        relax.ShapeExpr(made, relax.ShapeStructInfo(made, len(made))), DType.of(dtype), len(made)
    )


X = relax.Var("x", info(4))


def graph(
    *bindings: relax.Binding, result: relax.Expr = X, flow: bool = False, ret: relax.StructInfo | None = None
) -> relax.Function:
    block_type = relax.DataflowBlock if flow else relax.BindingBlock
    body = relax.SeqExpr((block_type(bindings),), result, result.struct_info)
    return relax.Function((X,), body, ret)


def bind(name: str, value: relax.Expr, kind: type[relax.Var] = relax.Var) -> relax.VarBinding:
    return relax.VarBinding(kind(name, value.struct_info), value)


N = tir.Var("n", INT64)
TWO = relax.Tuple((X, X), relax.TupleStructInfo((X.struct_info, X.struct_info)))  # type: ignore[arg-type]
TWICE = bind("y", X)
BAD_GRAPHS: dict[str, tuple[str, relax.Function]] = {
    "unbound variable": ("E0480", graph(result=relax.Var("z", info(4)))),
    "used before it is bound": ("E0480", graph(bind("a", TWICE.var), TWICE)),
    "bound twice": ("E0484", graph(TWICE, TWICE)),
    "dataflow variable in a plain block": ("E0494", graph(bind("y", X, relax.DataflowVar))),
    "tuple index": ("E0490", graph(bind("y", relax.TupleGetItem(TWO, 2, info(4))))),
    "element of a tensor": ("E0490", graph(bind("y", relax.TupleGetItem(X, 0, info(4))))),
    "condition of floats": (
        "E0491", graph(bind("y", relax.If(X, relax.SeqExpr((), X, info(4)), relax.SeqExpr((), X, info(4)), info(4)))),
    ),
    "unbound size": ("E0493", graph(bind("y", relax.ShapeExpr((N,), relax.ShapeStructInfo((N,), 1))))),
    "match_cast that cannot hold": ("E0492", graph(relax.MatchCast(relax.Var("y", info(5)), X, info(5)))),
    "value of another size": ("E0496", graph(relax.VarBinding(relax.Var("y", info(5)), X))),
    "result of another dtype": ("E0495", graph(ret=info(4, dtype="float16"))),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_malformed_graphs_are_found(name: str) -> None:
    code, made = BAD_GRAPHS[name]
    assert {d.code for d in verify(made)} == {code}


def test_match_cast_binds_sizes() -> None:
    cast = relax.MatchCast(relax.Var("y", info(N)), X, info(N))
    assert not verify(graph(cast, bind("s", relax.ShapeExpr((N,), relax.ShapeStructInfo((N,), 1)))))


def test_branches_have_their_own_variables() -> None:
    inside = bind("y", X)
    flag = relax.Var("flag", info(dtype="bool"))
    branch = relax.SeqExpr((relax.BindingBlock((inside,)),), inside.var, info(4))
    choice = relax.If(flag, branch, relax.SeqExpr((), X, info(4)), info(4))
    made = relax.Function((X, flag), relax.SeqExpr((relax.BindingBlock((bind("z", choice),)),), inside.var, info(4)))
    assert [d.code for d in verify(made)] == ["E0480"]


def test_all_violations_are_listed() -> None:
    bad = func(evaluate(tir.Add(FLOAT32, ONE, ZERO)), store(ZERO, ZERO), tir.Break())
    assert [d.code for d in verify(bad)] == ["E0337", "E0338", "E0347"]
    with pytest.raises(CompileError) as caught:
        check(bad)
    assert len(caught.value.diagnostics) == 3


@pytest.mark.parametrize("seed", range(60))
def test_generated_functions_are_well_formed(seed: int) -> None:
    assert not [d for d in verify(prim_func(seed)) if d.severity is Severity.ERROR]


@pytest.mark.parametrize("seed", range(30))
def test_generated_graphs_are_well_formed(seed: int) -> None:
    assert not [d for d in verify(graph_module(seed)) if d.severity is Severity.ERROR]


def test_shared_expressions_are_looked_at_once() -> None:
    """x + x, doubled forty times over: a tree of 2**40 leaves, a graph of forty nodes."""
    value: tir.Expr = F
    for _ in range(40):
        value = tir.Add(FLOAT32, value, value)
    start = time.process_time()
    assert not verify(func(evaluate(value)))
    assert time.process_time() - start < 1


def test_deep_expressions_are_verified() -> None:
    value: tir.Expr = F
    for _ in range(20_000):
        value = tir.Add(FLOAT32, value, F)
    assert not verify(func(evaluate(value)))
