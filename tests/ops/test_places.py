"""Gathers, scatters, sorts, scans and sums by index: interpreted and compiled, against NumPy, over many sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext
from tests.ops.cases import Case, Const, Mine, S, T


class Runs:
    """A call as a module: by its reference, lowered and interpreted, and compiled."""

    def __init__(self, case: Case) -> None:
        self.module = Mine().module(case)
        self.lowered = LowerToTir().run(self.module, PassContext())
        assert len(self.lowered) == 2, "the operator was not lowered"
        self.compiled = mlcc.load(mlcc.build(self.module))["main"]

    def check(self, *inputs: np.ndarray, exact: bool = True) -> list[np.ndarray]:
        """What the reference gives, after the others gave the same."""
        wanted = _listed(run_function(self.module, "main", inputs))
        for got in (run_function(self.lowered, "main", inputs), self.compiled(*inputs)):
            for a, b in zip(_listed(got), wanted, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=0 if exact else 2e-5, atol=0 if exact else 2e-5)
        return wanted


def _listed(value: Any) -> list[np.ndarray]:
    return list(value) if isinstance(value, tuple) else [value]


@functools.cache
def runs(name: str) -> Runs:
    return Runs(CASES[name])


def sizes(*also: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 2, 3, 5, 7, *also])


def some(draw: Any, *shape: int, dtype: str = "float32", few: bool = False) -> np.ndarray:
    """Random elements; `few` different ones, so that equal ones meet."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if few or not dtype.startswith("float"):
        return rng.integers(-3 if not dtype.startswith("u") else 0, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def places(draw: Any, bound: int, *shape: int, dtype: str = "int64", negative: bool = False) -> np.ndarray:
    """Random indices below a bound (none if it is 0: then the shape must be empty)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(-bound if negative else 0, max(bound, 1), shape).astype(dtype)


MATRIX, INDEX = T(("n", "m")), T(("k", "m"), "int64")
CASES = {
    "gather 0": Case("gather_elements", (MATRIX, INDEX, 0)),
    "gather -1": Case("gather_elements", (MATRIX, T(("n", "k"), "int32"), -1)),
    "gather_nd": Case("gather_nd", (T(("n", "m", 3)), T(("k", 2), "int64"))),
    "gather_nd batch": Case("gather_nd", (T(("n", "m", 3)), T(("n", "k", 1), "int64")), {"batch_dims": 1}),
    "index_tensor": Case("index_tensor", (T(("n", "m", 3)), [T(("k", 1), "int64"), T((2,), "int32")])),
    "reverse_sequence": Case("reverse_sequence", (T(("n", "m", 3)), T(("n",), "int32"))),
    "reverse_sequence 0": Case(
        "reverse_sequence", (MATRIX, T(("m",), "int64")), {"seq_axis": 0, "batch_axis": -1}
    ),
    **{f"scatter {r}": Case("scatter_elements", (MATRIX, INDEX, T(("k", "m")), 0, r))
       for r in ("update", "add", "mul", "min", "max", "mean")},
    "scatter -1": Case(
        "scatter_elements", (T(("n", "m"), "int32"), T(("n", "k"), "int32"), T(("n", "k"), "int32"), -1, "mean")
    ),
    "scatter small": Case("scatter_elements", (T((4, "m", 5)), T((2, "k", 3), "int64"), T((2, "k", 3)), 1, "add")),
    **{f"scatter_nd {r}": Case("scatter_nd", (MATRIX, T(("k", 1), "int64"), T(("k", "m")), r))
       for r in ("update", "add", "mul", "min", "max")},
    "scatter_nd 2": Case("scatter_nd", (MATRIX, T(("k", 2), "int32"), T(("k",)), "add")),
    "index_put": Case("index_put", (MATRIX, (T(("k",), "int64"), T(("k",), "int32")), T(("k",)))),
    "index_put add": Case("index_put", (MATRIX, (T(("k",), "int64"), T(("k",), "int64")), T(("k",)), True)),
    "meshgrid ij": Case("meshgrid", ([T(("n",)), T(("m",)), T((2,))],)),
    "meshgrid xy": Case("meshgrid", ([T(("n",)), T(("m",))],), {"indexing": "xy"}),
    "collapse": Case("collapse_sum_to", (T((2, "n", "m")), (S("n"), 1))),
    "collapse like": Case("collapse_sum_like", (T((2, "n", "m")), T(("n", "m")))),
    "bucketize": Case("bucketize", (MATRIX, T(("k",)))),
    "bucketize right": Case("bucketize", (T(("n", "m"), "int32"), T(("k",), "int32"), True, True)),
    "multinomial": Case("multinomial_from_uniform", (MATRIX, T(("k", 1)), T(("k", 1), "int64"))),
}  # fmt: skip
N, M, K = sizes(), sizes(4), sizes(4)


@settings(max_examples=25, deadline=None)
@given(N, M, K, st.data())
def test_gather_elements_matches_numpy(n: int, m: int, k: int, data: st.DataObject) -> None:
    x = some(data.draw, n, m)
    runs("gather 0").check(x, places(data.draw, n, k if n else 0, m))
    runs("gather -1").check(x, places(data.draw, m, n, k if m else 0, dtype="int32"))


@settings(max_examples=25, deadline=None)
@given(N, M, K, st.data())
def test_gather_nd_matches_numpy(n: int, m: int, k: int, data: st.DataObject) -> None:
    x, k = some(data.draw, n, m, 3), k if n and m else 0
    where = np.stack([places(data.draw, n, k), places(data.draw, m, k)], -1)
    np.testing.assert_array_equal(runs("gather_nd").check(x, where)[0], x[where[:, 0], where[:, 1]])
    batch = places(data.draw, m, n, k, 1)
    got = runs("gather_nd batch").check(x, batch)[0]
    np.testing.assert_array_equal(got, x[np.arange(n)[:, None], batch[..., 0]])
    runs("index_tensor").check(
        x, where[:, :1].copy(), places(data.draw, m, 2 if m else 2, dtype="int32")
    ) if k else None


@settings(max_examples=25, deadline=None)
@given(N, M, st.data())
def test_reverse_sequence_matches_numpy(n: int, m: int, data: st.DataObject) -> None:
    x, lengths = some(data.draw, n, m, 3), places(data.draw, m + 3, n, dtype="int32")
    got = runs("reverse_sequence").check(x, lengths)[0]
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(got[row, :length], x[row, :length][::-1])
        np.testing.assert_array_equal(got[row, length:], x[row, length:])
    runs("reverse_sequence 0").check(x[:, :, 0].copy(), places(data.draw, n + 2, m))


@settings(max_examples=40, deadline=None)
@given(N, M, K, st.sampled_from(["update", "add", "mul", "min", "max", "mean"]), st.data())
def test_scatter_elements_matches_numpy(n: int, m: int, k: int, how: str, data: st.DataObject) -> None:
    k = k if n else 0
    x, where = some(data.draw, n, m), places(data.draw, n, k, m, negative=True)
    got = runs(f"scatter {how}").check(x, where, some(data.draw, k, m), exact=how not in ("mul", "mean", "add"))[0]
    if how == "update" and k == 0:
        np.testing.assert_array_equal(got, x)


@settings(max_examples=20, deadline=None)
@given(N, M, K, st.data())
def test_scatter_along_other_axes_matches_numpy(n: int, m: int, k: int, data: st.DataObject) -> None:
    k = k if m else 0
    x, where = some(data.draw, n, m, dtype="int32"), places(data.draw, m, n, k, dtype="int32")
    runs("scatter -1").check(x, where, some(data.draw, n, k, dtype="int32"))
    x, where = some(data.draw, 4, m, 5), places(data.draw, m, 2, k, 3)
    runs("scatter small").check(x, where, some(data.draw, 2, k, 3), exact=False)


@settings(max_examples=40, deadline=None)
@given(N, M, K, st.sampled_from(["update", "add", "mul", "min", "max"]), st.data())
def test_scatter_nd_matches_numpy(n: int, m: int, k: int, how: str, data: st.DataObject) -> None:
    k = k if n and m else 0
    x, rows = some(data.draw, n, m), places(data.draw, n, k, 1, negative=True)
    runs(f"scatter_nd {how}").check(x, rows, some(data.draw, k, m), exact=how not in ("mul", "add"))
    where = np.stack([places(data.draw, n, k), places(data.draw, m, k)], -1).astype("int32")
    runs("scatter_nd 2").check(x, where, some(data.draw, k), exact=False)


@settings(max_examples=20, deadline=None)
@given(N, M, K, st.data())
def test_index_put_matches_numpy(n: int, m: int, k: int, data: st.DataObject) -> None:
    k = k if n and m else 0
    x, rows = some(data.draw, n, m), places(data.draw, n, k, negative=True)
    runs("index_put").check(x, rows, places(data.draw, m, k, dtype="int32"), some(data.draw, k))
    runs("index_put add").check(x, rows, places(data.draw, m, k), some(data.draw, k), exact=False)


@settings(max_examples=20, deadline=None)
@given(N, M, st.data())
def test_meshgrid_and_collapse_match_numpy(n: int, m: int, data: st.DataObject) -> None:
    a, b = some(data.draw, n), some(data.draw, m)
    runs("meshgrid ij").check(a, b, some(data.draw, 2))
    runs("meshgrid xy").check(a, b)
    x = some(data.draw, 2, n, m)
    if m != 0:
        runs("collapse").check(x, exact=False)
    runs("collapse like").check(x, some(data.draw, n, m), exact=False)


@settings(max_examples=30, deadline=None)
@given(N, M, K, st.data())
def test_bucketize_matches_numpy(n: int, m: int, k: int, data: st.DataObject) -> None:
    edges = np.sort(some(data.draw, k, few=True))
    runs("bucketize").check(some(data.draw, n, m, few=True), edges)
    runs("bucketize right").check(some(data.draw, n, m, dtype="int32"), edges.astype("int32"))


@settings(max_examples=20, deadline=None)
@given(sizes(), st.sampled_from([1, 2, 7, 30]), sizes(4), st.data())
def test_multinomial_matches_its_reference(n: int, m: int, k: int, data: st.DataObject) -> None:
    k = k if n else 0
    weights = np.abs(some(data.draw, n, m)) + np.float32(0.01)
    prob = (weights / weights.sum(1, keepdims=True)).astype("float32")
    sample = np.random.default_rng(k).random((k, 1)).astype("float32")
    runs("multinomial").check(prob, sample, places(data.draw, n, k, 1))


# ---------------------------------------------------------------- sorts

SORTS = {
    **{f"sort {d} {t}": Case("sort", (T(("n", "m"), t), -1, d)) for d in (False, True)
       for t in ("float32", "int8", "uint8", "bool")},
    **{f"argsort {d}": Case("argsort", (T(("n", "m")), 0, d, "int64")) for d in (False, True)},
    **{f"topk {k} {b}": Case("topk", (T(("n", "m")), k), {"largest": b}) for k in (0, 3, 20) for b in (False, True)},
    "topk values": Case("topk", (T(("n", "m"), "float16"), 2, 0, "values")),
    "topk indices": Case("topk", (T(("n", "m"), "int64"), 2, 0, "indices", False, "int64")),
    "median": Case("median", (T(("n", "m")), 1)),
    "median keep": Case("median", (T(("n", "m"), "int32"), 0, True)),
    "median two": Case("median", (T((2, "n", "m")), (0, -1))),
    "median none": Case("median", (T(("n", "m")), ())),
    "median all": Case("median", (T(("n", "m")),)),
    "median all keep": Case("median", (T(("n", "m")), None, True)),
    **{f"{s} {a} {x}": Case(s, (T(("n", "m")), a, None, x))
       for s in ("cumsum", "cumprod") for a in (None, 0, -1) for x in (False, True)},
    "cumsum wide": Case("cumsum", (T(("n", "m"), "int8"), 1, "int32")),
    "cumsum bool": Case("cumsum", (T(("n", "m"), "bool"), 1)),
    "cumprod float": Case("cumprod", (T(("n", "m"), "int32"), 0, "float32")),
}  # fmt: skip
CASES |= SORTS
LONG = sizes(8, 9, 16, 17, 40, 63, 64, 65)


@settings(max_examples=40, deadline=None)
@given(sizes(), LONG, st.booleans(), st.booleans(), st.data())
def test_sort_matches_numpy(n: int, m: int, descending: bool, few: bool, data: st.DataObject) -> None:
    x = some(data.draw, n, m, few=few)
    got = runs(f"sort {descending} float32").check(x)[0]
    np.testing.assert_array_equal(got, np.sort(x, -1)[:, ::-1] if descending else np.sort(x, -1))
    order = runs(f"argsort {descending}").check(np.ascontiguousarray(x.T))[0]
    np.testing.assert_array_equal(np.take_along_axis(x.T, order, 0), got.T)
    dtype = data.draw(st.sampled_from(["int8", "uint8", "bool"]))
    runs(f"sort {descending} {dtype}").check(some(data.draw, n, m, dtype="int8").astype(dtype))


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_above_all(descending: bool) -> None:
    x = np.array([[np.nan, 1, np.inf, -np.inf, np.nan, 0, -0.0, 3]] * 2, "float32")
    got = runs(f"sort {descending} float32").check(x)[0]
    assert np.isnan(got[0, :2] if descending else got[0, -2:]).all()
    order = runs(f"argsort {descending}").check(np.ascontiguousarray(x.T))[0][:, 0]
    assert list(order) == ([0, 4, 2, 7, 1, 5, 6, 3] if descending else [3, 5, 6, 1, 7, 2, 0, 4])
    [values, where] = runs(f"topk 3 {descending}").check(x)
    assert np.isnan(values[0, :2]).all() == descending
    assert list(where[0]) == ([0, 4, 2] if descending else [3, 5, 6])


@settings(max_examples=40, deadline=None)
@given(sizes(), LONG, st.sampled_from([0, 3, 20]), st.booleans(), st.booleans(), st.data())
def test_topk_matches_numpy(n: int, m: int, k: int, largest: bool, few: bool, data: st.DataObject) -> None:
    x = some(data.draw, n, m, few=few)
    if k == 0:
        runs(f"topk 0 {largest}").check(x)
        return
    values, where = runs(f"topk {k} {largest}").check(x)
    there = min(k, m)
    np.testing.assert_array_equal(np.take_along_axis(x, where[:, :there].astype("int64"), 1), values[:, :there])
    assert (where[:, there:] == -1).all() and not values[:, there:].any()
    runs("topk values").check(x.astype("float16"))
    runs("topk indices").check(some(data.draw, n, m, dtype="int64"))


@settings(max_examples=25, deadline=None)
@given(sizes(), LONG, st.data())
def test_median_matches_numpy(n: int, m: int, data: st.DataObject) -> None:
    x = some(data.draw, n, m)
    for name in ("median", "median all", "median all keep"):
        runs(name).check(x)
    np.testing.assert_array_equal(runs("median none").check(x)[0], x)
    both = some(data.draw, 2, n, m)
    got = runs("median two").check(both)[0]
    if m:
        np.testing.assert_array_equal(got, np.sort(np.swapaxes(both, 0, 1).reshape(n, 2 * m), -1)[:, m - 1])
    runs("median keep").check(some(data.draw, n, m, dtype="int32"))


@settings(max_examples=40, deadline=None)
@given(N, M, st.sampled_from(["cumsum", "cumprod"]), st.sampled_from([None, 0, -1]), st.booleans(), st.data())
def test_scans_match_numpy(n: int, m: int, name: str, axis: int | None, exclusive: bool, data: st.DataObject) -> None:
    x = some(data.draw, n, m)
    got = runs(f"{name} {axis} {exclusive}").check(x, exact=False)[0]
    if not exclusive:
        np.testing.assert_allclose(got, getattr(np, name)(x, axis), rtol=1e-5, atol=1e-5)
    runs("cumsum wide").check(some(data.draw, n, m, dtype="int8"))
    runs("cumsum bool").check(some(data.draw, n, m, dtype="int8") > 1)
    runs("cumprod float").check(some(data.draw, n, m, dtype="int32"))


# ---------------------------------------------------------------- one shape each

FIXED: list[tuple[Case, Callable[..., Any] | None]] = [
    *((Case("einsum", ([T(s) for s in shapes], text)), lambda *x, t=text: np.einsum(t, *x)) for text, *shapes in [
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 0), (0, 4)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("ba", (2, 3)),
        ("ij->", (2, 3)), ("ij,kl->ijkl", (2, 3), (1, 5)), ("bij,bjk,bkl->bil", (2, 3, 4), (2, 4, 5), (2, 5, 1)),
        ("...j,jk->...k", (2, 3, 4), (4, 5)), ("...ij,...jk", (2, 1, 3, 4), (5, 4, 2)), ("...->...", (2, 3)),
        ("i...->...", (2, 3)), ("ij,jk->ik", (2, 1), (3, 4)), ("i,i,i->i", (3,), (1,), (3,)), ("iji->j", (2, 3, 2)),
    ]),
    (Case("einsum", ([T((2, 3, 4)), T((2, 3, 4))], "b...,b...->b")), lambda x, y: (x * y).sum((1, 2))),
    (Case("einsum", ([T((2, 3), "int32"), T((3,), "int32")], "ij,j")), lambda x, y: x @ y),
    (Case("index_put", (T((8, 3)), (T((2, 1), "uint8"), T((2,), "uint8")), T((2, 2)))), None),
    (Case("index_tensor", (T((8, 3)), [T((), "uint8")])), None),
    (Case("slice_scatter", (T((8, 3)), T((3, 3)), 1, 7, 2)), None),
    (Case("slice_scatter", (T((2, 8)), T((2, 8)), 0, 8, 1, -1)), lambda x, y: y),
    (Case("slice_scatter", (T((2, 8)), T((2, 0)), 3, 3, 1, 1)), lambda x, y: x),
    (Case("hamming_window", (10, True, 0.5, 0.25, "float32")), lambda: 0.5 - 0.25 * np.cos(np.arange(10) * np.pi / 5)),
    (Case("hamming_window", (11, False, 0.54, 0.46, "float64")), lambda: np.hamming(11)),
    (Case("hamming_window", (1, True, 0.54, 0.46, "float16")), lambda: np.ones(1)),
    (Case("layout_transform", (T((8, 4)), lambda i, j: (j, i // 4, i % 4))),
     lambda x: x.reshape(2, 4, 4).transpose(2, 0, 1)),
    (Case("layout_transform", (T((7, 4)), lambda i, j: (i // 4, j, i % 4)), {"pad_value": 2.0}),
     lambda x: np.pad(x, ((0, 1), (0, 0)), constant_values=2).reshape(2, 4, 4).transpose(0, 2, 1)),
    (Case("layout_transform", (T((3, 4), "int32"), lambda i, j: (i * 4 + j,))), np.ravel),
    (Case("collapse_sum_to", (T((2, 3)), (2, 3))), lambda x: x),
    (Case("collapse_sum_to", (T((0, 3)), (1, 3))), lambda x: np.zeros((1, 3))),
    (Case("meshgrid", ([T((3,))],), {"indexing": "xy"}), lambda x: x),
    (Case("bucketize", (T(()), Const([-1.0, 0.0, 2.0], "float32"))), None),
    (Case("cumsum", (T((2, 3), "float16"), 1)), None),
    (Case("sort", (T((40,), "float16"), 0)), np.sort),
    (Case("topk", (T((3, 4)), 9)), None),
    (Case("gather_nd", (T((2, 3)), T((4, 0), "int64"))), lambda x, i: np.broadcast_to(x, (4, 2, 3))),
    (Case("scatter_nd", (T((2, 3)), T((2, 2), "uint8"), T((2,)), "max")), None),
]  # fmt: skip


@pytest.mark.parametrize(("case", "means"), FIXED, ids=lambda v: str(v) if isinstance(v, Case) else "")
def test_calls_of_fixed_sizes_match_numpy(case: Case, means: Callable[..., Any] | None) -> None:
    rng = np.random.default_rng(3)
    inputs = []
    for arg in case.args:
        for part in arg if isinstance(arg, (tuple, list)) else (arg,):
            if isinstance(part, T):
                low, high = (0, 2) if part.dtype in ("uint8", "int64") else (-4, 5)
                inputs.append(rng.integers(low, high, part.shape).astype(part.dtype))
    got = Runs(case).check(*inputs, exact=False)[0]
    if means is not None:
        np.testing.assert_allclose(got, means(*inputs), rtol=1e-3 if got.dtype == np.float16 else 1e-5, atol=1e-6)


# ---------------------------------------------------------------- what depends on the data


def test_results_as_long_as_the_data_say() -> None:
    x = np.array([[3, 0, 3], [1, 0, 3]], "int32")
    module = Mine().module(Case("nonzero", (T((2, 3), "int32"),)))
    np.testing.assert_array_equal(run_function(module, "main", [x]), np.stack(np.nonzero(x)))
    np.testing.assert_array_equal(mlcc.load(mlcc.build(module))["main"](x), np.stack(np.nonzero(x)))
    module = Mine().module(Case("unique", (T((2, 3), "int32"), False, True, True, True)))
    values, first, back, counts = run_function(module, "main", [x])
    assert [v.tolist() for v in (values, first, back, counts)] == [[3, 0, 1], [0, 1, 3], [0, 1, 0, 2, 1, 0], [3, 2, 1]]
    module = Mine().module(Case("unique", (T((2, 3), "int32"), True, False, False, False, 1)))
    np.testing.assert_array_equal(run_function(module, "main", [x]), [[0, 3, 3], [0, 1, 3]])
    np.testing.assert_array_equal(mlcc.load(mlcc.build(module))["main"](x), [[0, 3, 3], [0, 1, 3]])
    module = Mine().module(Case("dynamic_strided_slice", (T((2, 3), "int32"), *[T((2,), "int64")] * 3)))
    at = [np.array(v, "int64") for v in ([0, -1], [2, -9], [1, -2])]
    np.testing.assert_array_equal(run_function(module, "main", [x, *at]), x[:, ::-2])
    np.testing.assert_array_equal(mlcc.load(mlcc.build(module))["main"](x, *at), x[:, ::-2])


@pytest.mark.parametrize(
    ("case", "code", "says"),
    [
        (Case("gather_elements", (T((2, 3)), T((2,), "int64"))), "E0445", "the data have 2 dimensions, the indices 1"),
        (Case("gather_nd", (T((2, 3)), T((5, 3), "int64"))), "E0445", "index 3 dimensions, but the data have 2"),
        (Case("index_tensor", (T((5,)), [T((2,))])), "E0444", "index tensor 0 must be integers, not float32"),
        (Case("scatter_elements", (T((2,)), T((1,), "int8"), T((1,)), 0, "sub")), "E0442", "it is `sub`"),
        (Case("scatter_nd", (T((2, 3)), T((4, 1), "int64"), T((4, 2)))), "E0445", "must have shape (4, 3), they have"),
        (Case("slice_scatter", (T((8, 3)), T((2, 3)), 1, 7, 2)), "E0445", "must have shape (3, 3), it has (2, 3)"),
        (Case("index_put", (T((8, 3)), (T((2,), "int64"),), T((2,)))), "E0445", "values of shape (2,) do not"),
        (Case("topk", (T((2, 3)), 2, 0, "all")), "E0442", "`ret_type` must be both, values or indices"),
        (Case("sort", (T((2, 3)), 2)), "E0446", "axis 2 is out of range"),
        (Case("meshgrid", ([T((2, 3))],)), "E0445", "tensor 0 must be a vector"),
        (Case("einsum", ([T((2, 3))], "ij->ik")), "E0442", "`k` of the result `ik` does not occur in an operand"),
        (Case("einsum", ([T((2, 3))], "i.j->i")), "E0442", "`i.j` is not a subscript"),
        (Case("einsum", ([T((2, 3)), T((4, 5))], "ij,jk")), "E0445", "`j` has the extents 3 and 4"),
        (Case("collapse_sum_to", (T((2, 3)), (2, 2))), "E0445", "(2, 3) does not come from broadcasting (2, 2)"),
        (Case("hamming_window", (0, True, 0.5, 0.5, "float32")), "E0442", "must be positive, it is 0"),
        (Case("layout_transform", (T((7,)), lambda i, j: (i, j))), "E0442", "takes 2 indices, but there are 1"),
        (Case("layout_transform", (T((7,)), lambda i: (i * i,))), "E0442", "the index map cannot be inverted"),
        (Case("multinomial_from_uniform", (T((2, 5)), T((3, 2)), T((3, 1), "int64"))), "E0445", "shape (n, 1)"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_calls_are_refused(case: Case, code: str, says: str) -> None:
    with pytest.raises(CompileError) as caught:
        LowerToTir().run(Mine().module(case), PassContext())
    assert caught.value.diagnostics[0].code == code
    assert says in str(caught.value)
