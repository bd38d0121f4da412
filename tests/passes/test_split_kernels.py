"""`split-kernels`: functions of several products become one function for each, with the numbers that they gave."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import IRModule, tir
from mlcc.relax.queries import all_bindings, tir_callee


def attention(query: str, key: str, extra: str = "", bias: str = "", value: str = "") -> IRModule:
    """A call of attention; shapes are texts, letters in them are sizes that are not known."""
    name, given = ("attention_bias", f', bias: R.Tensor(({bias}), "float32")') if bias else ("attention", "")
    sizes = sorted({s for s in "bmnh" if f'"{s}"' in query + key})
    lines = "".join(f"            {s} = T.int64()\n" for s in sizes)
    return mlcc.parse(
        f"""
@I.ir_module
class Module:
    @R.function
    def main(q: R.Tensor(({query}), "float32"), k: R.Tensor(({key}), "float32"),
             v: R.Tensor(({value or key}), "float32"){given}):
{lines}
            with R.dataflow():
                y = R.nn.{name}(q, k, v{", bias" if bias else ""}{extra})
                R.output(y)
            return y
""".replace("\n            ", "\n        ")
    )


def split(module: IRModule) -> IRModule:
    return mlcc.run_passes(module, "lower-to-tir,split-kernels")


def called(module: IRModule) -> list[str]:
    return [tir_callee(b.value) or "" for b, _ in all_bindings(module["main"].body)]


CASES = [
    ("2, 5, 4, 3", "2, 7, 4, 3", "", "", ""),
    ("1, 1, 1, 1", "1, 1, 1, 1", "", "", ""),
    ("1, 5, 1, 7", "1, 3, 1, 7", "", "", ""),
    ("1, 13, 2, 8", "1, 13, 2, 8", ', causal_mask="TopLeft"', "", ""),
    ("1, 3, 2, 8", "1, 11, 2, 8", ', causal_mask="BottomRight", window_size=2', "", ""),
    ("2, 5, 4, 3", "2, 5, 2, 3", ", scale=0.5", "", "2, 5, 2, 6"),
    ("2, 5, 2, 3", "2, 7, 2, 3", "", "2, 1, 5, 7", ""),
]


@pytest.mark.parametrize(("query", "key", "extra", "bias", "value"), CASES)
def test_parts_give_the_numbers_of_the_whole(query: str, key: str, extra: str, bias: str, value: str) -> None:
    before = attention(query, key, extra, bias, value)
    rng = np.random.default_rng(0)
    shapes = [query, key, value or key, *([bias] if bias else [])]
    given = [rng.standard_normal([int(n) for n in s.split(",")], "float32") for s in shapes]
    after = split(before)
    assert len(called(after)) >= (4 if query[3] == "1" else 6)  # one query reads keys and values where they are
    expected = run_function(before, "main", given)
    np.testing.assert_allclose(run_function(after, "main", given), expected, 1e-5, 1e-6)


def test_each_product_is_a_function_and_what_lies_between_is_one() -> None:
    after = split(attention("2, 5, 4, 3", "2, 7, 4, 3"))
    assert called(after) == [
        "attention_reshape", "attention_reshape1", "attention_reshape1", "attention_batch_matmul_NT",
        "attention_softmax_norm", "attention_batch_matmul_NN", "attention_transpose",
    ]  # fmt: skip
    assert "attention" not in after
    assert [len(after[n].root.body) for n in ("attention_softmax_norm", "attention_batch_matmul_NN")] == [5, 1]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 5), (1, 17, 33)])
def test_sizes_that_are_not_known(sizes: tuple[int, int, int], native: mlcc.runtime.Executable) -> None:
    batch, queries, keys = sizes
    rng = np.random.default_rng(0)
    shapes = (batch, queries, 2, 16), *[(batch, keys, 2, 16)] * 2
    given = [rng.standard_normal(shape, "float32") for shape in shapes]
    before = attention('"b", "m", 2, 16', '"b", "n", 2, 16')
    expected = run_function(before, "main", given)
    np.testing.assert_allclose(run_function(split(before), "main", given), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(native["main"](*given), expected, 1e-5, 1e-6)


@pytest.fixture(scope="module")
def native() -> mlcc.runtime.Executable:
    module = attention('"b", "m", 2, 16', '"b", "n", 2, 16')
    return mlcc.load(mlcc.build(module, target="llvm{cpu=native}", opt_level=3))


CACHED = """
@R.function
def main(q: R.Tensor((1, "m", 2, 16), "float32"), past: R.Tensor((1, "p", 2, 16), "float32"),
         new: R.Tensor((1, "m", 2, 16), "float32")):
    m = T.int64()
    p = T.int64()
    with R.dataflow():
        k = R.concat((past, new), axis=1)
        y = R.nn.attention(q, k, k, causal_mask="BottomRight")
        R.output(y)
    return y
"""


@pytest.mark.parametrize("sizes", [(1, 0), (1, 1), (1, 31), (2, 5), (33, 7), (13, 100)])
def test_keys_of_a_sum_of_sizes(sizes: tuple[int, int]) -> None:
    """The length of the cache is a number that the function takes; its parts take it as well."""
    new, past = sizes
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((1, n, 2, 16), "float32") for n in (new, past, new)]
    before = mlcc.parse(CACHED)
    after = split(before)
    assert [name for name in called(after) if name.endswith(("batch_matmul_NT", "batch_matmul_NN"))]
    expected = run_function(before, "main", given)
    np.testing.assert_allclose(run_function(after, "main", given), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(cached()["main"](*given), expected, 1e-5, 1e-6)


@functools.cache
def cached() -> mlcc.runtime.Executable:
    return mlcc.load(mlcc.build(mlcc.parse(CACHED), target="llvm{cpu=native}"))


def test_the_softmax_between_products_of_unknown_lengths_runs_row_by_row() -> None:
    scheduled = mlcc.run_passes(mlcc.parse(CACHED), "O2", target="llvm{cpu=native}")
    softmax = next(f for name, f in scheduled.functions.items() if name.endswith("softmax_norm"))
    assert isinstance(softmax, tir.PrimFunc) and softmax.root is not None
    assert len(softmax.root.body) == 1  # one nest over rows


TWICE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def twice(A: T.Buffer((5, 5), "float32"), X: T.Buffer((5, 3), "float32"), C: T.Buffer((5, 3), "float32")):
        Y, Z = T.alloc_buffer((5, 3)), T.alloc_buffer((5, 3))
        for i, j, k in T.grid(5, 3, 5):
            with T.block("first"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] += A[vi, vk] * X[vk, vj]
        for i, j, k in T.grid(5, 3, 5):
            with T.block("second"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] += A[vi, vk] * Y[vk, vj]
        for i, j in T.grid(5, 3):
            with T.block("sum"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = Z[vi, vj] + Y[vi, vj] * X[vi, vj]

    @R.function
    def main(a: R.Tensor((5, 5), "float32"), x: R.Tensor((5, 3), "float32")) -> R.Tensor((5, 3), "float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.twice, (a, x), out_sinfo=R.Tensor((5, 3), "float32"))
            R.output(y)
        return y
"""


def test_a_result_that_is_read_on_both_sides_of_a_product() -> None:
    before = mlcc.parse(TWICE)
    after = mlcc.run_passes(before, "split-kernels")
    assert called(after) == ["twice_first", "twice_first", "twice_sum"]  # equal ones are shared
    a, x = (np.random.default_rng(0).standard_normal(s, "float32") for s in ((5, 5), (5, 3)))
    expected = a @ (a @ x) + (a @ x) * x
    np.testing.assert_allclose(run_function(after, "main", [a, x]), expected, 1e-4, 1e-5)


def test_what_somebody_has_scheduled_stays() -> None:
    text = TWICE.replace("for i, j in T.grid(5, 3):", "for i in T.parallel(5):\n          for j in range(3):")
    before = mlcc.parse(text)
    mlcc.assert_structural_equal(mlcc.run_passes(before, "split-kernels"), before)


def test_one_product_alone_stays() -> None:
    alone = mlcc.parse(
        """
@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor((5, 5), "float32"), x: R.Tensor((5, 3), "float32")) -> R.Tensor((5, 3), "float32"):
        y = R.nn.relu(R.matmul(a, x))
        return y
"""
    )
    lowered = mlcc.run_passes(alone, "normalize,lower-to-tir,fuse,fuse-tir")
    mlcc.assert_structural_equal(mlcc.run_passes(lowered, "split-kernels"), lowered)


@pytest.mark.parametrize("key", ["1, 70, 4, 32", '1, "n", 4, 32', "2, 70, 4, 32"])
def test_one_query_reads_keys_where_they_are(key: str) -> None:
    """A cache of keys and values is not copied for products that read each element once."""
    batch = key[0]
    before = attention(f"{batch}, 1, 4, 32", key)
    after = split(before)
    names = called(after)
    assert not [n for n in names if n.startswith("attention_reshape1")]
    data = [(int(batch), n, 4, 32) for n in (1, 70, 70)]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, "float32") for shape in data]
    expected = run_function(before, "main", given)
    np.testing.assert_allclose(run_function(after, "main", given), expected, rtol=1e-5, atol=1e-6)
    made = mlcc.load(mlcc.build(before, "llvm{cpu=native}", 3))["main"](*given)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_several_queries_read_copies() -> None:
    assert [n for n in called(split(attention("1, 5, 4, 32", "1, 70, 4, 32"))) if n.startswith("attention_reshape1")]
