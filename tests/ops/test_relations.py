"""Covering, narrowing, contradicting struct infos, and what two have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.relax import StructInfo
from mlcc.ops.relations import SubtypeCheck, can_differ, check_subtype, common_supertype, evaluate, provably_equal

N, M = tir.Var("n", INT64), tir.Var("m", INT64)
OBJECT = relax.ObjectStructInfo()


def shape(*dims: object) -> relax.ShapeStructInfo:
    made = tuple(d if isinstance(d, tir.Expr) else construct.const(d, INT64) for d in dims)  # type: ignore[arg-type]
    return relax.ShapeStructInfo(made, len(made))


def tensor(*dims: object, dtype: str | None = "float32", device: str | None = None) -> relax.TensorStructInfo:
    info = shape(*dims)
    assert info.values is not None
    expr = relax.ShapeExpr(info.values, info)
    return relax.TensorStructInfo(expr, DType.of(dtype) if dtype else None, info.ndim, device)


def unknown(ndim: int = -1, dtype: str | None = None) -> relax.TensorStructInfo:
    return relax.TensorStructInfo(None, DType.of(dtype) if dtype else None, ndim)


def pair(*fields: StructInfo) -> relax.TupleStructInfo:
    return relax.TupleStructInfo(fields)


def prim(dtype: str, value: tir.Expr | None = None) -> relax.PrimStructInfo:
    return relax.PrimStructInfo(DType.of(dtype), value)


def function(params: tuple[StructInfo, ...] | None, ret: StructInfo, pure: bool = True) -> relax.FuncStructInfo:
    return relax.FuncStructInfo(params, ret, pure)


TWICE = construct.mul(N, construct.const(2, INT64))
C, NARROWS, NOT = SubtypeCheck.COVERS, SubtypeCheck.NARROWS, SubtypeCheck.CONTRADICTS


@pytest.mark.parametrize(
    ("said", "known", "want"),
    [
        (OBJECT, tensor(1), C), (tensor(1), OBJECT, NARROWS), (tensor(1), shape(1), NOT),
        (tensor(4), tensor(4), C), (unknown(1), tensor(4), C), (unknown(), tensor(4), C),
        (unknown(dtype="float32"), tensor(4), C), (unknown(dtype="int8"), tensor(4), NOT), (unknown(2), tensor(4), NOT),
        (tensor(4), unknown(1), NARROWS), (tensor(4), unknown(), NARROWS), (tensor(4), unknown(2), NOT),
        (tensor(4), tensor(4, dtype=None), NARROWS), (tensor(4, dtype=None), tensor(4), C), (tensor(5), tensor(4), NOT),
        (tensor(N), tensor(N), C), (tensor(N), tensor(M), NOT), (tensor(4), tensor(N), NOT),
        (tensor(construct.add(N, N)), tensor(TWICE), C), (tensor(construct.add(N, M)), tensor(construct.add(M, N)), C),
        (tensor(4, device="cuda:0:global"), tensor(4, device="llvm:0:global"), NOT),
        (tensor(4, device="cuda:0:global"), tensor(4), C),
        (prim("int64"), prim("int64", N), C), (prim("int64", N), prim("int64"), NARROWS),
        (prim("int8"), prim("bool"), NOT),
        (shape(N, 2), shape(N, 2), C), (relax.ShapeStructInfo(None, 2), shape(N, 2), C), (shape(N), shape(N, 2), NOT),
        (pair(unknown(), OBJECT), pair(tensor(4), tensor(4)), C), (pair(), pair(OBJECT), NOT),
        (pair(tensor(4), tensor(4)), pair(unknown(), tensor(5)), NOT),
        (function(None, OBJECT, False), function((tensor(4),), tensor(4)), C),
        (function((tensor(4),), tensor(4)), function(None, OBJECT, False), NARROWS),
        (function((OBJECT,), OBJECT), function((tensor(4),), tensor(4)), NARROWS),
        (function((tensor(4),), OBJECT), function((unknown(),), tensor(4)), C),
        (function((tensor(4),), OBJECT), function((tensor(4),), tensor(4), False), NARROWS),
        (function((), OBJECT), function((OBJECT,), OBJECT), NOT),
    ],
)  # fmt: skip
def test_subtypes_are_checked(said: StructInfo, known: StructInfo, want: SubtypeCheck) -> None:
    assert check_subtype(said, known) is want


INFOS = [
    OBJECT, tensor(4), tensor(N), tensor(N, dtype=None), unknown(), unknown(1), unknown(2, "int8"),
    tensor(4, dtype="int8"),
    shape(N, 2), relax.ShapeStructInfo(None, 2), prim("int64"), prim("int64", N), prim("bool"), pair(), pair(tensor(4)),
    pair(unknown()), pair(OBJECT, tensor(N)), function(None, OBJECT, False), function((tensor(4),), tensor(4)),
    function((unknown(),), tensor(4), False), tensor(TWICE), tensor(4, device="cuda:0:global"),
]  # fmt: skip


@given(st.sampled_from(INFOS), st.sampled_from(INFOS))
def test_common_struct_info_covers_both(a: StructInfo, b: StructInfo) -> None:
    both = common_supertype(a, b)
    assert check_subtype(both, a) is SubtypeCheck.COVERS and check_subtype(both, b) is SubtypeCheck.COVERS
    if check_subtype(a, b) is SubtypeCheck.COVERS and not isinstance(a, relax.FuncStructInfo):
        assert check_subtype(a, both) is SubtypeCheck.COVERS, "what covers the other is the least that covers both"


INTS = st.sampled_from([N, M]) | st.integers(-5, 40).map(lambda v: construct.const(v, INT64))


def binary(inner: st.SearchStrategy[tir.Expr]) -> st.SearchStrategy[tir.Expr]:
    nodes = st.sampled_from([tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.Div, tir.Mod])
    return st.builds(lambda node, a, b: node(INT64, a, b), nodes, inner, inner)


@given(st.recursive(INTS, binary, max_leaves=8), st.recursive(INTS, binary, max_leaves=8))
def test_no_dimension_is_both_same_and_different(a: tir.Expr, b: tir.Expr) -> None:
    assert not can_differ(a, a) and provably_equal(a, a)
    assert not (provably_equal(a, b) and can_differ(a, b))


def test_expressions_of_known_symbols_are_evaluated() -> None:
    chosen = construct.call(INT64, "if_then_else", construct.less(N, 3), N, construct.mul(N, M))
    assert evaluate(chosen, {N: 2, M: 5}) == 2 and evaluate(chosen, {N: 3, M: 5}) == 15
    assert evaluate(tir.FloorDiv(INT64, N, construct.const(0, INT64)), {N: 1}) is None
    assert evaluate(construct.const(1.5), {}) is None
