"""Lowered operators, run by the interpreter, give what their NumPy references say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.machine.target import Target
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext
from tests.ops import numbers
from tests.ops.cases import Case, Mine, T


def check(case: Case, target: str = "llvm") -> None:
    """The call by its reference, and lowered to TensorIR: the same numbers."""
    side = Mine()
    module = side.module(case)
    inputs = numbers.arrays(case, side.params)
    wanted = _listed(run_function(module, "main", inputs))
    lowered = LowerToTir().run(module, PassContext(Target.parse(target)))
    assert len(lowered) == 2, "the operator was not lowered"
    got = _listed(run_function(lowered, "main", inputs))
    exact = not any(np.issubdtype(w.dtype, np.floating) for w in wanted)
    half = any(a.dtype == np.float16 for a in (*inputs, *wanted))
    tolerance = 0 if exact else 4e-3 if half else 2e-5
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _listed(value: Any) -> list[np.ndarray]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("case", numbers.CASES, ids=str)
def test_lowered_calls_match_numpy(case: Case) -> None:
    check(case)


SORTS = ("sort(3x40, -1, True)", "argsort(40x3:int32, 0, False)", "topk(3x40, 20, 1)", "median(4x5, -1, True)")


@pytest.mark.parametrize("case", [c for c in numbers.CASES if str(c) in SORTS], ids=str)
def test_lowered_calls_for_gpus_match_numpy(case: Case) -> None:
    check(case, "cuda")


EXTENT = st.integers(1, 5)
SHAPE = st.lists(EXTENT, max_size=4).map(tuple)


@st.composite
def broadcast_pair(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(SHAPE)
    sides = []
    for _ in range(2):
        kept = shape[draw(st.integers(0, len(shape))) :]
        sides.append(tuple(1 if draw(st.booleans()) else d for d in kept))
    return sides[0], sides[1]


@settings(max_examples=40, deadline=None)
@given(broadcast_pair(), st.sampled_from(["add", "subtract", "multiply", "maximum", "less", "floor_divide"]),
       st.sampled_from(["float32", "int32", "int64"]))  # fmt: skip
def test_broadcasting_matches_numpy(shapes: tuple[tuple[int, ...], tuple[int, ...]], name: str, dtype: str) -> None:
    check(Case(name, (T(shapes[0], dtype), T(shapes[1], dtype))))


@settings(max_examples=30, deadline=None)
@given(st.lists(EXTENT, max_size=2), EXTENT, EXTENT, EXTENT, st.data())
def test_matmul_of_all_ranks_matches_numpy(batch: list[int], n: int, k: int, m: int, data: st.DataObject) -> None:
    left: tuple[int, ...] = data.draw(st.sampled_from([(k,), (n, k), (*batch, n, k)]))
    right: tuple[int, ...] = data.draw(st.sampled_from([(k,), (k, m), (*batch, k, m), (1, k, m)]))
    check(Case("matmul", (T(left), T(right))))


@settings(max_examples=30, deadline=None)
@given(st.lists(EXTENT, min_size=1, max_size=4), st.data())
def test_reductions_match_numpy(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.none() | st.lists(st.sampled_from(range(-len(shape), len(shape))), min_size=1, max_size=1))
    name = data.draw(st.sampled_from(["sum", "prod", "max", "mean", "variance"]))
    check(Case(name, (T(tuple(shape)), axes), {"keepdims": data.draw(st.booleans())}))


@settings(max_examples=30, deadline=None)
@given(st.lists(EXTENT, min_size=1, max_size=4), st.data())
def test_movements_of_elements_match_numpy(shape: list[int], data: st.DataObject) -> None:
    x, ndim = T(tuple(shape)), len(shape)
    axis = data.draw(st.integers(-ndim, ndim - 1))
    cases = [
        Case("permute_dims", (x, data.draw(st.permutations(range(ndim))))),
        Case("flip", (x, axis)),
        Case("repeat", (x, data.draw(st.integers(1, 3)), axis)),
        Case("reshape", (x, (-1, shape[axis]))),
        Case("concat", ([x, x], axis)),
        Case("split", (x, data.draw(st.integers(1, shape[axis])), axis)),
        Case("expand_dims", (x, axis)),
    ]
    case = data.draw(st.sampled_from(cases))
    try:
        check(case)
    except CompileError as problem:  # a division that leaves a negative last part
        assert case.name == "split" and "parts" in str(problem)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(-12, 12), st.integers(-12, 12), st.integers(-3, 3).filter(bool))
def test_slices_are_pythons(extent: int, begin: int, end: int, stride: int) -> None:
    case = Case("strided_slice", (T((extent, 2)), [0], [begin], [end], [stride]))
    check(case)
    side = Mine()
    module = side.module(case)
    [x] = numbers.arrays(case, side.params)
    got = run_function(module, "main", [x])
    stop = end
    if stride < 0 and end < -extent:
        stop = None  # type: ignore[assignment]
    np.testing.assert_array_equal(got, x[begin:stop:stride])


@pytest.mark.parametrize(
    "case",
    [
        Case("sum", (T((3, 0)), 1)),
        Case("prod", (T((0,)),)),
        Case("sum", (T((0, 3)), 1)),
        Case("matmul", (T((3, 0)), T((0, 2)))),
        Case("matmul", (T((0, 3)), T((3, 2)))),
        Case("concat", ([T((0, 3)), T((2, 3))], 0)),
        Case("reshape", (T((0, 3)), (3, 0))),
        Case("add", (T((0,)), T((1,)))),
    ],
    ids=str,
)
def test_empty_tensors_are_lowered(case: Case) -> None:
    check(case)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "case",
    [
        *(Case(n, (T((8,)), T((8,)))) for n in ("maximum", "minimum", "less", "equal", "add")),
        *(
            Case(n, (T((8,)),))
            for n in ("nn.relu", "sign", "isnan", "isinf", "isfinite", "abs", "round", "nn.leakyrelu")
        ),
        Case("clip", (T((8,)), -1.0, 1.0)),
        Case("astype", (T((8,)), "int32")),
        Case("astype", (T((8,)), "uint8")),
        Case("astype", (T((8,)), "int64")),
        Case("astype", (T((8,)), "bool")),
    ],
    ids=str,
)
def test_special_values_match_numpy(case: Case) -> None:
    side = Mine()
    module = side.module(case)
    special = np.array([NAN, INF, -INF, -0.0, 2.5, 1e30, -1e30, 300.7], "float32")
    inputs = [special, special[::-1].copy()][: len(side.params)]
    wanted = run_function(module, "main", inputs)
    got = run_function(LowerToTir().run(module, PassContext()), "main", inputs)
    np.testing.assert_array_equal(got, wanted)


def test_shifts_beyond_the_width_match_numpy() -> None:
    for name in ("left_shift", "right_shift"):
        module = Mine().module(Case(name, (T((5,), "int32"), T((5,), "int32"))))
        inputs = [np.array([1, -1, -8, 7, 5], "int32"), np.array([31, 32, 40, -1, 0], "int32")]
        wanted = run_function(module, "main", inputs)
        np.testing.assert_array_equal(run_function(LowerToTir().run(module, PassContext()), "main", inputs), wanted)
