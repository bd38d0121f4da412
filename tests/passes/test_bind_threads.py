"""Threads for functions that nobody bound: all of it ends in kernels, and computes what it did."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.bind_threads import bind_function
from mlcc.verify import check
from tests.lower import lower_gpu

FACTS = GpuFacts.of("cuda")

TWO_NESTS = """
@T.prim_func
def f(A: T.Buffer((10, 30), "float32"), B: T.Buffer((10,), "float32")):
    C = T.alloc_buffer((10, 30), "float32")
    for i, j in T.grid(10, 30):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, k in T.grid(10, 30):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] += C[vi, vk]
"""

SHARED_TEMPORARY = """
@T.prim_func
def f(A: T.Buffer((10, 30), "float32"), B: T.Buffer((10, 30), "float32")):
    C = T.alloc_buffer((30,), "float32")
    for i in range(10):
        for j in range(30):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vj])
                C[vj] = A[vi, vj] + T.float32(1)
        for j in range(30):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = C[29 - vj]
"""

LOOP_CODE = """
@T.prim_func
def f(A: T.Buffer((10, 30), "float32"), B: T.Buffer((10, 30), "float32")):
    for i in T.parallel(10):
        for j in range(30):
            if j % 2 == 0:
                B[i, j] = A[i, j]
            else:
                B[i, j] = A[i, j] + T.float32(1)
"""

SCALAR = """
@T.prim_func
def f(A: T.Buffer((), "float32"), B: T.Buffer((), "float32")):
    with T.block("B"):
        T.reads(A[()])
        T.writes(B[()])
        B[()] = A[()] + T.float32(1)
"""

NAMES = """
@T.prim_func
def f(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
    for i in range(10):
        C[i] = A[i]
    s: T.float32 = A[3] + C[4]
    n: T.int32 = 4
    for i in range(10):
        B[i] = A[i] * s
    for i in range(n):
        C[i] = B[i] - s
"""


def bound(text: str) -> tuple[tir.PrimFunc, tir.PrimFunc]:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    made = bind_function(func, "f", FACTS)
    check(mlcc.IRModule({"f": made}))
    return func, made


def axes(func: tir.PrimFunc) -> list[tuple[str, int | None]]:
    return [(n.thread, tir.const_int(n.extent)) for n in walk(func) if isinstance(n, tir.For) and n.thread]  # type: ignore[misc]


@pytest.mark.parametrize("text", [TWO_NESTS, SHARED_TEMPORARY, LOOP_CODE, SCALAR, NAMES])
def test_results_do_not_change(text: str) -> None:
    func, made = bound(text)
    rng = np.random.default_rng(0)
    shapes = [tuple(tir.const_int(d) or 0 for d in b.shape) for b in func.buffers if b is not None]
    args = [rng.standard_normal(s).astype("float32") for s in shapes]
    have, want = ([a.copy() for a in args] for _ in range(2))
    run_prim_func(made, have)
    run_prim_func(func, want)
    for one, other in zip(have, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert lower_gpu("f", made).kernels


def test_loops_that_own_their_results_are_shared_out() -> None:
    _, made = bound(TWO_NESTS)
    assert axes(made) == [("blockIdx.x", 10), ("threadIdx.x", 32), ("blockIdx.x", 1), ("threadIdx.x", 32)]


def test_a_temporary_that_iterations_use_again_is_for_one_thread() -> None:
    _, made = bound(SHARED_TEMPORARY)
    assert axes(made) == [("threadIdx.x", 1)]


def test_shared_memory_of_an_iteration_is_not_that_of_all() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((16, 5), "float32"), B: T.Buffer((16, 5), "float32")):
    for o in range(16):
        with T.block("row"):
            vo = T.axis.spatial(16, o)
            T.reads(A[vo, 0:5])
            T.writes(B[vo, 0:5])
            S = T.alloc_buffer((5,), "float32", scope="shared")
            for j in range(5):
                S[j] = A[vo, j] + T.float32(1)
            for j in range(5):
                B[vo, j] = S[4 - j]
"""
    _, made = bound(text)
    assert axes(made) == [("threadIdx.x", 1)]
    _, made = bound(text.replace("shared", "local"))
    assert axes(made) != [("threadIdx.x", 1)]


def test_what_is_bound_stays() -> None:
    _, made = bound(TWO_NESTS)
    assert bind_function(made, "f", FACTS) is made


def test_sizes_that_are_not_known() -> None:
    text = TWO_NESTS.replace(
        'A: T.Buffer((10, 30), "float32"), B: T.Buffer((10,), "float32")):',
        'a: T.handle, B: T.Buffer((10,), "float32")):\n    n = T.int32()\n'
        '    A = T.match_buffer(a, (10, n), "float32")',
    ).replace("(10, 30)", "(10, n)")
    _, made = bound(text.replace("T.grid(10, 30)", "T.grid(10, n)"))
    shared_out = ["blockIdx.x", "threadIdx.x"]
    nothing = ["threadIdx.x"]  # the sum's init where n is 0
    assert [axis for axis, _ in axes(made)] == [*shared_out, *nothing, *shared_out]


@pytest.mark.parametrize("level", [0, 2])
def test_a_sum_over_nothing_is_zero(level: int) -> None:
    text = """
@R.function
def main(x: R.Tensor((5, "n"), "int32")):
    return R.sum(x, axis=1)
"""
    sums = mlcc.load(mlcc.build(mlcc.parse(text), "cuda{arch=sm_90}", opt_level=level), emulate=True)["main"]
    for n in (0, 1, 40):
        np.testing.assert_array_equal(sums(np.ones((5, n), "int32")), np.full(5, n, "int32"))
