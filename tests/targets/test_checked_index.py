"""`T.checked_index`: the same place, and the same error, in the interpreter, on a CPU and on an emulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_prim_func
from tests.runtime.guarded import guarded

N, M = 37, 5

SERIAL = """
    for i, j in T.grid(37, 5):
        B[i, j] = A[T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
PARALLEL = """
    for i in T.parallel(37):
        for j in range(5):
            B[i, j] = A[T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
VECTORS = """
    for j in range(5):
        for i in T.vectorized(37):
            B[i, j] = A[T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
MASKED = """
    for j in range(5):
        for i in T.vectorized(64):
            if i < 37 and j >= 0:
                B[i, j] = A[T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
STORES = """
    for i, j in T.grid(37, 5):
        B[i, j] = T.float32(-1)
    for i in T.vectorized(37):
        B[i, T.checked_index(T.if_then_else(J[i] > 0, 0, 1), T.int64(5), "x", 1, False)] = T.float32(-1)
    for i, j in T.grid(37, 5):
        B[T.checked_index(i, T.int64(37), "x", 0, False), j] = A[
            T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
UNCHOSEN = """
    for i, j in T.grid(37, 5):
        B[i, j] = T.Select(J[i] > 0, A[T.checked_index(I[i] + 1000, T.int64({n}), "x", 0, True), j], T.if_then_else(
            J[i] > 0, A[T.checked_index(I[i] - 1000, T.int64({n}), "y", 0, True), j],
            A[T.checked_index(I[i], T.int64({n}), "`R.take` in line 3", 0, {end}), j]))
"""
BODIES = {
    "serial": SERIAL, "parallel": PARALLEL, "vectors": VECTORS, "masked": MASKED, "stores": STORES,
    "unchosen": UNCHOSEN,
}  # fmt: skip
ON_GPU = """
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            if b * 32 + t < 37:
                for j in {loop}(5):
                    B[b * 32 + t, j] = A[
                        T.checked_index(I[b * 32 + t], T.int64({n}), "`R.take` in line 3", 0, {end}), j]
"""
DTYPES = ("int8", "int32", "int64", "uint8", "uint64")


def text(body: str, dtype: str, n: int, from_end: bool) -> str:
    head = f"""
@T.prim_func
def main(A: T.Buffer(({n}, 5), "float32"), I: T.Buffer((37,), "{dtype}"), J: T.Buffer((37,), "int32"),
         B: T.Buffer((37, 5), "float32")):
    T.func_attr({{"tir.noalias": True}})
"""
    return head + body.replace("{n}", str(n)).replace("{end}", str(from_end))


def bad_values(dtype: str, n: int, from_end: bool) -> list[int]:
    info = np.iinfo(dtype)
    found = [n, n + 1, int(info.max), -n - 1, int(info.min), *([] if from_end else [-1])]
    inside = range(-n if from_end and info.min < 0 else 0, n)
    return sorted({v for v in found if info.min <= v <= info.max and v not in inside})


def runs(source: str, targets: tuple[str, ...]) -> list[Callable[..., None]]:
    module = mlcc.parse(source)
    assert str(mlcc.parse(module.script())) == str(module)
    made: list[Callable[..., None]] = [lambda *args: run_prim_func(module["main"], args)]
    for target in targets:
        artifact = mlcc.build(module, target=target, pipeline="")
        exe = mlcc.load(artifact, emulate=True) if target.startswith("cuda") else mlcc.load(artifact)
        made.append(exe["main"])
    return made


def check(made: list[Callable[..., None]], dtype: str, n: int, from_end: bool, values: list[int]) -> None:
    rng = np.random.default_rng(len(values))
    a = guarded(rng.normal(size=(n, M)).astype(np.float32))
    j = np.zeros(N, np.int32)
    least = -n if from_end and np.iinfo(dtype).min < 0 else 0
    for bad in [None, *values]:
        index = rng.integers(least, n, N).astype(dtype) if n else np.zeros(N, dtype)
        at = int(rng.integers(N))
        if bad is not None:
            index[at] = bad
        for run in made:
            out = guarded(np.zeros((N, M), np.float32))
            if bad is None and n:
                run(a.array, index, j, out.array)
                np.testing.assert_array_equal(out.array, a.array[index])
            else:
                shown = int(index[at]) if n else 0
                wanted = f"`R.take` in line 3: index {shown} is outside dimension 0, which has {n}"
                with pytest.raises(CallError, match="E0818") as caught:
                    run(a.array, index, j, out.array)
                assert wanted in str(caught.value)
            out.check()
            a.check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("body", BODIES)
def test_cpu_matches_the_interpreter(body: str, dtype: str) -> None:
    for from_end in (True, False):
        made = runs(text(BODIES[body], dtype, 10, from_end), ("llvm", "llvm{cpu=native}"))
        check(made, dtype, 10, from_end, bad_values(dtype, 10, from_end))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loop", ["range", "T.vectorized"])
def test_emulated_gpu_matches_the_interpreter(loop: str, dtype: str) -> None:
    for from_end in (True, False):
        made = runs(text(ON_GPU.replace("{loop}", loop), dtype, 10, from_end), ("cuda{arch=sm_80}",))
        check(made, dtype, 10, from_end, bad_values(dtype, 10, from_end))


@pytest.mark.parametrize("body", ["serial", "parallel", "vectors"])
def test_empty_dimensions_have_no_index(body: str) -> None:
    check(runs(text(BODIES[body], "int32", 0, True), ("llvm",)), "int32", 0, True, [])


def test_empty_dimensions_have_no_index_on_a_gpu() -> None:
    made = runs(text(ON_GPU.replace("{loop}", "range"), "int32", 0, True), ("cuda{arch=sm_80}",))
    check(made, "int32", 0, True, [])


@pytest.mark.parametrize("language", ["cuda-c", "metal"])
def test_sources_check_the_index(language: str) -> None:
    module = mlcc.parse(text(ON_GPU.replace("{loop}", "range"), "int32", 10, True))
    source: Any = mlcc.build(module, target="cuda{arch=sm_80}", pipeline="").emit(language)
    assert "checked_from_end(" in source.decode() and "const int* error" not in source.decode()
