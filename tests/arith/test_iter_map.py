"""Iteration maps against running the loops: values, coverage, independence, spelling, reasons."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import (
    IterMap,
    NotAffine,
    detect_iter_map,
    is_affine,
    iter_map_simplify,
    normalize_to_expr,
    normalize_to_iter_sum,
)
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64
from mlcc.ir.tir import TRUE, Expr, Range
from tests.arith.exprs import value
from tests.arith.iter_maps import Iters, conjunction, evaluated, mixes, points

CASES = settings(max_examples=300, deadline=None)
I, J, K, N = (tir.Var(name, INT32) for name in "ijkn")


def loops(**extents: int | Expr) -> Iters:
    names = {"i": I, "j": J, "k": K, "n": N}
    return {names[name]: Range(c.const(0), c.as_expr(extent)) for name, extent in extents.items()}


def sizes(found: IterMap) -> list[int]:
    """How many values each index has."""
    return [math.prod(a.extent.value for a in index.args) for index in found.indices]  # type: ignore[attr-defined]


@CASES
@given(mixes(), st.sampled_from(["bijective", "surjective", "none"]), st.booleans())
def test_indices_are_the_bindings(case: tuple[list[Expr], Iters, list[Expr]], level: str, trivial: bool) -> None:
    """Every index has the value of its binding in every iteration."""
    bindings, iters, conditions = case
    predicate = conjunction(conditions)
    found = detect_iter_map(bindings, iters, predicate, level, None, trivial)  # type: ignore[arg-type]
    for index, binding in zip(found.indices, bindings if found else (), strict=True):
        spelled = normalize_to_expr(index)
        for at in points(iters, predicate):
            assert evaluated(index, at) == value(binding, at) == value(spelled, at)


@CASES
@given(mixes(), st.booleans())
def test_bijective_maps_are(case: tuple[list[Expr], Iters, list[Expr]], trivial: bool) -> None:
    """Every iteration has values of its own, and without conditions every tuple of values has an iteration."""
    bindings, iters, conditions = case
    predicate = conjunction(conditions)
    found = detect_iter_map(bindings, iters, predicate, "bijective", None, trivial)
    if not found:
        assert found.reason
        return
    seen = [tuple(value(b, at) for b in bindings) for at in points(iters, predicate)]
    assert len(seen) == len(set(seen))
    if not conditions:
        assert len(seen) == math.prod(sizes(found))


@CASES
@given(mixes())
def test_surjective_maps_cover(case: tuple[list[Expr], Iters, list[Expr]]) -> None:
    """Every tuple of values of the box is taken."""
    bindings, iters, _ = case
    found = detect_iter_map(bindings, iters, TRUE, "surjective")
    if not found:
        return
    seen = {tuple(value(b, at) for b in bindings) for at in points(iters)}
    assert len(seen) == math.prod(sizes(found))
    for k, size in enumerate(sizes(found)):
        assert len({values[k] for values in seen}) == size


@CASES
@given(mixes(), st.sampled_from(["bijective", "surjective", "none"]), st.booleans())
def test_simplified_bindings_are_equal(case: tuple[list[Expr], Iters, list[Expr]], level: str, trivial: bool) -> None:
    bindings, iters, conditions = case
    predicate = conjunction(conditions)
    made = iter_map_simplify(bindings, iters, predicate, level, None, trivial)  # type: ignore[arg-type]
    for at in points(iters, predicate):
        assert [value(m, at) for m in made] == [value(b, at) for b in bindings]


@CASES
@given(mixes())
def test_padding_never_holds_in_an_iteration(case: tuple[list[Expr], Iters, list[Expr]]) -> None:
    bindings, iters, conditions = case
    predicate = conjunction(conditions)
    found = detect_iter_map(bindings, iters, predicate, "none")
    if found:
        assert not any(value(found.padding_predicate, at) for at in points(iters, predicate))


def test_bindings_of_a_tiled_matmul_are_detected() -> None:
    names = [tir.Var(f"l{k}", INT32) for k in range(6)]
    iters = {v: Range(c.const(0), c.const(e)) for v, e in zip(names, [8, 4, 16, 4, 2, 8], strict=True)}
    i0, j0, k0, i1, j1, k1 = names
    bindings = [c.add(c.mul(a, n), b) for a, b, n in ((i0, i1, 4), (j0, j1, 2), (k0, k1, 8))]
    found = detect_iter_map(bindings, iters, level="bijective")
    assert sizes(found) == [32, 8, 128]
    assert [str(normalize_to_expr(i)) for i in found.indices] == ["l0 * 4 + l3", "l1 * 2 + l4", "l2 * 8 + l5"]


def test_loops_fused_and_split_again_cancel() -> None:
    """i * 4 + j, divided by 4, is i."""
    fused = c.add(c.mul(I, 4), J)
    made = iter_map_simplify([c.floordiv(fused, 4), c.floormod(fused, 4)], loops(i=8, j=4))
    assert [*map(str, made)] == ["i", "j"] or [*map(str, made)] == ["(i * 4 + j) // 4", "(i * 4 + j) % 4"]
    through = c.add(c.mul(c.floordiv(I, 4), 4), c.floormod(I, 4))
    assert [*map(str, iter_map_simplify([through], loops(i=32)))] == ["i"]


def test_maps_over_symbolic_extents_are_detected() -> None:
    inner = c.add(c.mul(I, 4), J)
    blocks = c.floordiv(c.add(N, 3), 4)
    found = detect_iter_map([inner], {**loops(i=blocks, j=4)}, c.less(inner, N), "bijective")
    assert found
    (digit,) = found.indices[0].args
    assert digit.extent is N
    iters = loops(i=c.mul(N, 16))
    assert is_affine([c.floordiv(I, 16), c.floormod(I, 16)], iters)
    assert is_affine([c.floordiv(I, N), c.floormod(I, N)], iters)
    assert not is_affine([c.floordiv(I, 7)], loops(i=N))


def test_int64_loops_keep_their_dtype() -> None:
    i, j = tir.Var("i", INT64), tir.Var("j", INT64)
    iters = {v: Range(c.const(0, INT64), c.const(8, INT64)) for v in (i, j)}
    made = iter_map_simplify([c.add(c.mul(i, 8), j)], iters, level="bijective")
    assert str(made[0]) == "i * T.int64(8) + j"
    assert made[0].dtype == INT64


@pytest.mark.parametrize(
    ("bindings", "iters", "predicate", "reason"),
    [
        ([c.mul(I, J)], loops(i=4, j=4), TRUE, "`i * j` multiplies loops by one another"),
        ([c.floordiv(4, c.add(I, 1))], loops(i=4), TRUE, "`4 // (i + 1)` divides by a loop"),
        ([c.minimum(I, 3)], loops(i=4), TRUE, "`T.min(i, 3)` is neither a sum"),
        ([c.add(c.mul(I, 3), J)], loops(i=4, j=2), TRUE, "the scales of its terms do not fit"),
        ([I, I], loops(i=4), TRUE, "the parts of `i` that are used overlap or leave a gap"),
        ([I], loops(i=4, j=4), TRUE, "`j` is not used"),
        ([c.floordiv(I, 4)], loops(i=16), TRUE, "the parts of `i` that are used overlap or leave a gap"),
        ([I], loops(i=4), c.equal(I, 2), "the predicate `i == 2` is not a conjunction of bounds"),
        ([c.floormod(c.floormod(I, 8), 3)], loops(i=16), TRUE, "a remainder that 3 does not divide"),
    ],
)  # fmt: skip
def test_rejected_maps_say_why(bindings: list[Expr], iters: Iters, predicate: Expr, reason: str) -> None:
    found = detect_iter_map(bindings, iters, predicate, "bijective")
    assert not found and not found.indices
    assert reason in found.reason


def test_loops_in_terms_of_loops_are_refused() -> None:
    found = detect_iter_map([I], {I: Range(c.const(0), J), J: Range(c.const(0), c.const(4))})
    assert "depends on another loop" in found.reason


def test_constraints_nest_or_are_apart() -> None:
    """Bounds that partly overlap describe no mixed radix."""
    whole = c.add(c.add(c.add(c.mul(I, 30), c.mul(J, 15)), c.mul(K, 3)), N)
    iters = loops(i=4, j=2, k=5, n=3)
    high, low = c.add(c.mul(I, 2), J), c.add(c.mul(K, 3), N)
    assert detect_iter_map([whole], iters, c.logical_and(c.less(high, 3), c.less(low, 5)), "bijective").reason
    assert detect_iter_map([high, low], iters, c.logical_and(c.less(high, 3), c.less(low, 5)), "bijective")
    crossing = c.add(c.mul(J, 5), K)
    assert "overlap without one containing the other" in detect_iter_map(
        [whole], iters, c.logical_and(c.less(high, 3), c.less(crossing, 5)), "bijective"
    ).reason or not detect_iter_map([whole], iters, c.logical_and(c.less(high, 3), c.less(crossing, 5)))


def test_lower_bounds_move_the_start() -> None:
    value_ = c.add(c.mul(I, 4), J)
    found = detect_iter_map([value_], loops(i=4, j=4), c.logical_and(c.less_equal(2, value_), c.less(value_, 9)))
    assert sizes(found) == [7]
    assert tir.const_int(Analyzer().simplify(found.indices[0].base)) == 2


def test_a_sum_is_sorted_by_scale() -> None:
    made = normalize_to_iter_sum(c.add(c.add(J, c.mul(K, N)), c.mul(I, 8)), loops(i=4, j=4, k=4))
    assert [str(a.scale) for a in made.args] == ["8", "n", "1"]
    with pytest.raises(NotAffine):
        normalize_to_iter_sum(c.mul(I, J), loops(i=4, j=4))
