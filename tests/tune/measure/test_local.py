"""The local runner builds candidates, compares their results, and times them beside the baseline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.tune.contracts import Status
from mlcc.tune.measure.kernel_code import CompileOptions, build_kernel
from mlcc.tune.measure.local import LocalRunner
from tests.tune.measure.kernels import NATIVE, func_of, mm_relu, task_of, tiled


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(least=0.0002) as made:
        yield made


def test_candidates_are_measured_in_order(runner: LocalRunner) -> None:
    module = mm_relu()
    default = tiled(module, 4, 16)
    found = runner.measure(task_of(module), default, [func_of(module), tiled(module, 8, 16), default], 3)
    assert [o.status for o in found] == [Status.OK] * 3
    assert len(found[1].ratios) == len(found[1].seconds) == 3
    assert found[0].ratios[0] > 2 and len(found[0].ratios) < 3  # hopeless: no further rounds
    assert len({o.digest for o in found}) == 3


def test_many_samples_come_from_several_processes(runner: LocalRunner) -> None:
    module = mm_relu()
    default = tiled(module, 4, 16)
    (found,) = runner.measure(task_of(module), default, [default], 23)
    assert found.status is Status.OK and len(found.ratios) == len(found.seconds) == 23


def test_candidates_with_equal_code_are_measured_once(runner: LocalRunner) -> None:
    module = mm_relu()
    default = tiled(module, 4, 16)
    first, second = runner.measure(task_of(module), default, [tiled(module, 2, 16), tiled(module, 2, 16)], 2)
    assert first is second


def test_the_names_of_variables_do_not_count() -> None:
    text = mlcc.script(mlcc.IRModule.from_expr(tiled(mm_relu(), 2, 16)))
    renamed = text.replace("vi", "row").replace("k in", "kk in").replace(", k)", ", kk)")
    made = [build_kernel(func_of(mlcc.parse(t)), CompileOptions(NATIVE)) for t in (text, renamed)]
    assert made[0].digest == made[1].digest


WRONG = {
    "a constant": ("T.float32(0)\n            Y", "T.float32(1)\n            Y"),
    "a term that is left out": ("in T.grid(N, M, K):", "in T.grid(N, M, K - 1):"),
    "a row that is left out": ("in T.grid(N, M):", "in T.grid(N - 1, M):"),
    "NaN": ("T.max(Y[vi, vj], T.float32(0))", "Y[vi, vj] / T.float32(0)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_results_are_found(runner: LocalRunner, what: str) -> None:
    from tests.tune.measure.kernels import MM_RELU

    module = mm_relu()
    old, new = WRONG[what]
    assert old in MM_RELU
    text = MM_RELU.replace(old, new).replace("N", "32").replace("M", "48").replace("K", "40")
    (found,) = runner.measure(task_of(module), func_of(module), [func_of(mlcc.parse(text))], 2)
    assert found.status is Status.WRONG and "`C`" in found.why and not found.ratios


def test_a_baseline_that_cannot_be_built_is_an_error(runner: LocalRunner) -> None:
    module = mm_relu()
    text = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32")):\n    T.call_packed("f", A.data)'
    with pytest.raises(CompileError, match="E1142"):
        runner.measure(task_of(module), func_of(mlcc.parse(text)), [], 1)


def test_symbolic_sizes_are_those_of_the_task(runner: LocalRunner) -> None:
    text = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 16), "float32")
    C = T.match_buffer(c, (n, 16), "float32")
    for i, j in T.grid(n, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
"""
    module = mlcc.parse(text)
    func = func_of(module)
    with pytest.raises(CompileError, match="`n` has no value"):
        runner.measure(task_of(module), func, [func], 1)
    (found,) = runner.measure(task_of(module, sizes={"n": 33}), func, [func], 1)
    assert found.status is Status.OK


DENSE = """
@T.prim_func
def main(X: T.Buffer((16, 64), "float32"), W: T.Buffer((64, 96), "float32"), Y: T.Buffer((16, 96), "float32")):
    T.func_attr({"tir.noalias": True})
    for i, j, k in T.grid(16, 96, 64):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vk, vj]
"""


def packed_panels(module: mlcc.IRModule) -> tir.PrimFunc:
    """`DENSE`, whose weights are copied into panels of 32 columns first."""
    sch = mlcc.Schedule(module)
    block = sch.get_block("Y")
    copy = sch.cache_read(block, 1, "global")
    sch.transform_layout(block, ("read", 1), lambda k, j: [j // 32, k, j % 32])
    i, j, k = sch.get_loops(block)
    across, lanes = sch.split(j, [None, 32])
    sch.reorder(i, across, k, lanes)
    sch.vectorize(lanes)
    sch.decompose_reduction(block, k)
    assert copy is not None
    return func_of(sch.mod)


def test_what_packs_constants_is_not_measured(runner: LocalRunner) -> None:
    """Weights that are constants are packed once, as a build does it: by a function of its own."""
    module = mlcc.parse(DENSE)
    func = packed_panels(module)
    whole, apart = (build_kernel(func, CompileOptions(NATIVE, known=frozenset(known))) for known in ((), (1,)))
    assert whole.prepare is None and not whole.panels
    assert apart.prepare is not None and apart.panels == (64 * 96 * 4,)
    for constants in (frozenset[int](), frozenset({1})):
        found = runner.measure(task_of(module, constants=constants), func_of(module), [func], 2)
        assert [o.status for o in found] == [Status.OK]


INDICES = """
@T.prim_func
def main(T0: T.Buffer((50, 8), "float32"), I: T.Buffer((20,), "int64"), Y: T.Buffer((20, 8), "float32")):
    for i, j in T.grid(20, 8):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T0[I[vi], vj]
"""
IN_PLACE = """
@T.prim_func
def main(X: T.Buffer((64,), "float32"), N: T.Buffer((64,), "int8")):
    for i in range(64):
        with T.block("X"):
            vi = T.axis.spatial(64, i)
            X[vi] = T.log(X[vi]) * T.float32(2)
    for i in range(64):
        with T.block("N"):
            vi = T.axis.spatial(64, i)
            N[vi] = N[vi] + T.int8(1)
"""
HALF = """
@T.prim_func
def main(X: T.Buffer((8, 300), "float16"), Y: T.Buffer((8,), "float16"), Z: T.Buffer((8,), "bool"), s: T.float32):
    for i, k in T.grid(8, 300):
        with T.block("Y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = T.float16(0)
            Y[vi] = Y[vi] + X[vi, vk]
    for i in range(8):
        with T.block("Z"):
            vi = T.axis.spatial(8, i)
            Z[vi] = T.Cast("float32", Y[vi]) < s
"""


@pytest.mark.parametrize("text", [INDICES, IN_PLACE, HALF], ids=["indices", "in place", "half"])
def test_arguments_suit_the_kernel(runner: LocalRunner, text: str) -> None:
    """Indices lie inside, logarithms are of positive numbers, dtypes are any."""
    module = mlcc.parse(text)
    func = func_of(module)
    (found,) = runner.measure(task_of(module), func, [func], 2)
    assert found.status is Status.OK, found.why


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_cold_caches_are_measured(threads: int) -> None:
    module = mm_relu(256, 64, 64)
    sch = mlcc.Schedule(module)
    sch.parallel(sch.get_loops(sch.get_block("Y"))[0])
    with LocalRunner(jobs=2, cold=True) as cold:
        found = cold.measure(task_of(module, threads), func_of(module), [func_of(sch.mod), tiled(module, 4, 64)], 2)
    assert [o.status for o in found] == [Status.OK] * 2


def test_processes_give_way_to_new_ones() -> None:
    module = mm_relu()
    default = tiled(module, 4, 16)
    with LocalRunner(uses=3) as short:
        for rows in (1, 2, 8):
            (found,) = short.measure(task_of(module), default, [tiled(module, rows, 16)], 2)
            assert found.status is Status.OK, found.why
        assert short._zygote.started > 1 and short._builders[0].started > 1
