"""Tensor expressions become functions that compute what the expressions say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc import te
from mlcc.interp import run_prim_func
from mlcc.ir import construct, tir
from mlcc.te import statements as code

EXTENT = st.integers(0, 7)
SOME = st.integers(1, 7)


def run(func: tir.PrimFunc, *arrays: np.ndarray, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    out = np.zeros(shape, dtype)
    run_prim_func(func, [*arrays, out])
    return out


def draw(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    values = np.random.default_rng(seed).integers(-9, 10, shape)
    return values.astype(dtype)


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    assert a.shape[1] == b.shape[0]
    k = te.reduce_axis((0, a.shape[1]), name="k")
    made: te.Tensor = te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return made


@settings(max_examples=25, deadline=None)
@given(SOME, SOME, SOME, st.sampled_from(["float32", "float64", "int32", "int8"]))
def test_matmul_and_relu_match_numpy(n: int, m: int, p: int, dtype: str) -> None:
    a, b = te.placeholder((n, m), dtype, name="A"), te.placeholder((m, p), dtype, name="B")
    c = te.compute((n, p), lambda *i: te.max(matmul(a, b)(*i), 0), name="D")
    x, y = draw(n, n, m, dtype=dtype), draw(p, m, p, dtype=dtype)
    got = run(te.create_prim_func([a, b, c]), x, y, shape=(n, p), dtype=dtype)
    np.testing.assert_array_equal(got, np.maximum((x @ y).astype(dtype), 0))


@settings(max_examples=25, deadline=None)
@given(st.lists(SOME, min_size=1, max_size=4), st.data())
def test_reductions_over_any_axes_match_numpy(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True).map(sorted))
    name = data.draw(st.sampled_from(["sum", "max", "min"]))
    a = te.placeholder(tuple(shape), "float64", name="A")
    reduced = {d: te.reduce_axis((0, shape[d])) for d in axes}
    kept = [d for d in range(len(shape)) if d not in reduced]

    def element(*i: Any) -> Any:
        at = dict(zip(kept, i, strict=True)) | reduced
        return getattr(te, name)(a(*(at[d] for d in range(len(shape)))), axis=list(reduced.values()))

    out = te.compute([shape[d] for d in kept], element, name="B")
    x = draw(1, *shape, dtype="float64")
    got = run(te.create_prim_func([a, out]), x, shape=tuple(shape[d] for d in kept), dtype="float64")
    np.testing.assert_array_equal(got, getattr(np, name)(x, axis=tuple(axes)))


@settings(max_examples=25, deadline=None)
@given(EXTENT, SOME)
def test_symbolic_extents_become_parameters(n: int, m: int) -> None:
    rows, columns = te.var("n", "int64"), te.var("m", "int64")
    a = te.placeholder((rows, columns), name="A")
    out = te.compute((columns, rows), lambda i, j: a[j, i] * 2.0, name="B")
    x = draw(n, n, m)
    np.testing.assert_array_equal(run(te.create_prim_func([a, out]), x, shape=(m, n)), x.T * 2)


def test_ranges_that_depend_on_the_place() -> None:
    a = te.placeholder((6, 6), name="A")

    def element(i: te.Axis) -> te.Scalar:
        k = te.reduce_axis((i // 2, i + 1), "k")
        made: te.Scalar = te.sum(a[i, k], axis=k)
        return made

    x = draw(4, 6, 6)
    got = run(te.create_prim_func([a, te.compute((6,), element, name="B")]), x, shape=(6,))
    np.testing.assert_array_equal(got, [x[i, i // 2 : i + 1].sum() for i in range(6)])


def test_several_results_of_one_reduction() -> None:
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])), lambda s, t: (te.const(0, s), te.min_value(t)), name="both"
    )
    total, most = te.compute((4,), lambda i: both((a[i, k], a[i, k]), axis=k), name="T")
    x = draw(3, 4, 6)
    sums, tops = np.zeros(4, "float32"), np.zeros(4, "float32")
    run_prim_func(te.create_prim_func([a, total, most]), [x, sums, tops])
    np.testing.assert_array_equal(sums, x.sum(1))
    np.testing.assert_array_equal(tops, x.max(1))


def test_reductions_under_a_condition_and_from_a_start() -> None:
    a, s = te.placeholder((4, 6), name="A"), te.placeholder((4,), name="S")
    k = te.reduce_axis((0, 6), "k")
    x, begin = draw(3, 4, 6), draw(4, 4)
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=a[i, k] > 0), name="T")
    np.testing.assert_allclose(run(te.create_prim_func([a, total]), x, shape=(4,)), np.where(x > 0, x, 0).sum(1))
    most = te.compute((4,), lambda i: te.max(a[i, k], axis=k, where=te.all(k > 1, k < 4)), name="T")
    np.testing.assert_array_equal(run(te.create_prim_func([a, most]), x, shape=(4,)), x[:, 2:4].max(1))
    more = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=s[i]), name="T")
    np.testing.assert_allclose(run(te.create_prim_func([a, s, more]), x, begin, shape=(4,)), begin + x.sum(1))


def test_the_text_of_a_function() -> None:
    a, b = te.placeholder((4, 5), name="A"), te.placeholder((5, 6), name="B")
    func = te.create_prim_func([a, b, matmul(a, b)])
    text = """
@T.prim_func
def main(A: T.Buffer((4, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((4, 6), "float32")):
    T.func_attr({"tir.noalias": T.bool(True)})
    for i, j, k in T.grid(4, 6, 5):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    mlcc.assert_structural_equal(func, mlcc.parse(text)["main"])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_one_dtype_for_all_indices(dtype: str) -> None:
    a, at = te.placeholder((6, 3), name="A"), te.placeholder((4,), "int32", name="I")
    out = te.compute((4, 3), lambda i, j: a[at[i], j], name="B")
    func = te.create_prim_func([a, at, out], index_dtype_override=dtype)
    assert {str(d.dtype) for b in func.buffers if b is not None for d in b.shape} == {dtype}
    x, index = draw(5, 6, 3), np.array([5, 0, 2, 2], "int32")
    np.testing.assert_array_equal(run(func, x, index, shape=(4, 3)), x[index])


def test_shapes_are_expressions_and_numbers() -> None:
    a = te.placeholder((3, 4), "float16", name="A")
    assert [int(d) for d in a.shape] == [3, 4]
    assert str(a.dtype) == "float16"
    n = te.var("n")
    b = te.placeholder((n, n * 2), name="B")
    assert b.shape[0] == b.shape[0]
    assert b.shape[1] == n + n
    assert b.shape[0] != b.shape[1]
    with pytest.raises(TypeError, match="not a constant"):
        int(b.shape[0])


A = te.placeholder((4, 4), name="A")
K = te.reduce_axis((0, 4), "k")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: te.compute((4,), lambda i: te.sum(A[i, K], axis=K) + 1.0), "a reduction must be a whole compute"),
        (lambda: te.compute((4,), lambda i, j: A[i, j]), "takes 2 indices, but the shape has 1"),
        (lambda: te.compute((4,), lambda i: A(i)), "has 2 dimensions, but 1 indices"),
        (lambda: te.compute((4,), lambda i: A[i]), "has 2 dimensions, but 1 indices"),
        (lambda: te.compute((4,), lambda i: A), "a scalar, not the tensor `A`"),
        (lambda: te.compute((4,), lambda i: None), "returns nothing"),
        (lambda: te.compute((4,), lambda i: te.sum(A[i, 0], axis=i)), "`i` is an axis of the result"),
        (lambda: te.create_prim_func([te.compute((4,), lambda i: A[i, 0])]), "`A` is read but is not among"),
        (lambda: te.create_prim_func([A, 3]), "tensors or variables"),
        (lambda: te.var("n") / 2, "needs floats"),
        (lambda: ~te.var("x", "float32"), "~ needs integers"),
        (lambda: te.power(te.var("n"), 2), "power needs floats"),
        (lambda: te.placeholder((te.var("x", "float32"),)), "a shape needs integers"),
        (lambda: bool(te.var("n") < 3), "not known here"),
    ],
)
def test_wrong_expressions_are_refused(make: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says.replace("(", r"\(")):
        make()


# ---------------------------------------------------------------- tensors made by statements


def test_extern_makes_several_tensors_by_statements() -> None:
    """Running sums and their number, from an input that is computed and lives in the function."""
    n = te.var("n", "int64")
    given = te.placeholder((n,), "float32", "A")
    doubled = te.compute((n,), lambda i: given[i] * 2.0, "B")
    total = code.scratch("total", (1,), "float32")

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> object:
        source, sums, count = (code.BufferElements(b) for b in (*ins, *outs))
        step = code.loop(n, lambda i: [total.set(total[0] + source[i], 0), sums.set(total[0], i)])
        return total.set(0.0, 0), step, count.set(n, 0)

    sums, count = te.extern([(n,), (1,)], [doubled], body, "sums", ["float32", "int32"], scratch=[total.buffer])
    func = te.create_prim_func([given, sums, count], "int64")
    x, out, number = np.arange(5, dtype="float32"), np.zeros(5, "float32"), np.zeros(1, "int32")
    run_prim_func(func, [x, out, number])
    np.testing.assert_array_equal(out, np.cumsum(x * 2))
    assert number[0] == 5
    again = mlcc.parse(mlcc.script(func))["main"]
    mlcc.assert_structural_equal(again.without_attr("global_symbol"), func.without_attr("global_symbol"))


def test_extern_of_one_expression_is_evaluated() -> None:
    given = te.placeholder((4,), "float32", "A")
    out = te.extern((4,), [given], lambda i, o: construct.call("int32", "call_packed", "f", i[0].data, o[0].data), "f")
    text = mlcc.script(te.create_prim_func([given, out]))
    assert 'T.block("f")' in text and "T.reads(A[0:4])" in text and "T.writes(f[0:4])" in text
