"""The local runner builds candidates, compares their results, and times them beside the baseline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.tune.contracts import Status
from mlcc.tune.measure.kernel_code import Recipe, build_kernel
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
    made = [build_kernel(func_of(mlcc.parse(t)), Recipe(NATIVE)) for t in (text, renamed)]
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
