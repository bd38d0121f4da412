"""Reductions over threads, of any number of them, by shuffles and in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from tests.gpu.simulate import run_program
from tests.gpu.test_kernels import check, lowered, refused
from tests.lower import lower_gpu

SUM = """
@T.prim_func
def f(A: T.Buffer((3, {n}), "{dtype}"), B: T.Buffer((3,), "{dtype}")):
    for i in T.thread_binding(3, thread="{place}"):
        for k0 in range({rounds}):
            for k1 in T.thread_binding({threads}, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(3, i)
                    vk = T.axis.reduce({n}, k0 * {threads} + k1)
                    T.where(k0 * {threads} + k1 < {n})
                    with T.init():
                        B[vi] = T.{dtype}(0)
                    B[vi] = B[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("threads", [1, 2, 7, 32, 33, 64, 96, 256])
@pytest.mark.parametrize("place", ["blockIdx.x", "threadIdx.y"])
def test_sums_over_threads_match(threads: int, place: str) -> None:
    if place == "threadIdx.y" and threads not in (7, 32, 64):
        pytest.skip("a share of them")
    n = threads * 2 - threads // 3
    text = SUM.format(n=n, threads=threads, rounds=2, place=place, dtype="float32")
    check(text, (3, n), (3,))


@pytest.mark.parametrize("dtype", ["int32", "float64", "int8", "uint16", "int64", "float16"])
def test_sums_of_every_dtype_match(dtype: str) -> None:
    text = SUM.format(n=60, threads=32, rounds=2, place="blockIdx.x", dtype=dtype)
    check(text, (3, 60), (3,), dtype=dtype)
    made = mlcc.script(mlcc.run_passes(mlcc.parse(text), "lower", target="cuda"))
    assert "shuffle" in made and '"shared"' not in made  # of any width, without memory


def test_metal_shuffles_wide_values_by_halves() -> None:
    text = SUM.format(n=60, threads=32, rounds=2, place="blockIdx.x", dtype="int64")
    made = mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}", pipeline="").emit("metal").decode()
    assert "as_type<long>(simd_shuffle_down(as_type<uint2>(" in made


def test_argmax_over_threads_matches() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 70), "float32"), I: T.Buffer((4,), "int32"), V: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for k0 in range(2):
            for k1 in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("best"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(70, k0 * 64 + k1)
                    T.where(k0 * 64 + k1 < 70)
                    with T.init():
                        I[vi] = -1
                        V[vi] = T.min_value("float32")
                    v_i: T.int32 = T.Select(V[vi] >= A[vi, vk], I[vi], vk)
                    v_v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
                    I[vi] = v_i
                    V[vi] = v_v
"""
    program = lowered(text)[1]
    values = np.random.default_rng(0).permutation(280).reshape(4, 70).astype(np.float32)
    arrays = [values, np.zeros(4, np.int32), np.zeros(4, np.float32)]
    run_program(program, arrays)
    np.testing.assert_array_equal(arrays[1], values.argmax(1))
    np.testing.assert_array_equal(arrays[2], values.max(1))


def test_the_result_is_there_for_all_threads() -> None:
    """Softmax: what threads reduced together, all of them read; other loops have more threads."""
    text = """
@T.prim_func
def f(A: T.Buffer((2, 128), "float32"), B: T.Buffer((2, 128), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((2,), "float32", scope="shared")
        for i in T.thread_binding(2, thread="blockIdx.x"):
            for k in range(2):
                for t in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("S"):
                        vi = T.axis.spatial(2, i)
                        vk = T.axis.reduce(128, k * 64 + t)
                        with T.init():
                            S[vi] = T.float32(0)
                        S[vi] = S[vi] + A[vi, vk]
            for t in T.thread_binding(128, thread="threadIdx.x"):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, t])
                    B[vi, vj] = A[vi, vj] * S[vi]
"""
    check(text, (2, 128), (2, 128))


def test_unknown_combiners_are_refused() -> None:
    text = SUM.format(n=64, threads=32, rounds=2, place="blockIdx.x", dtype="float32")
    assert refused(text.replace("B[vi] + A[vi, vk]", "B[vi] - A[vi, vk]"), "E0728").diagnostics[0].related


def test_statements_between_threads_and_block_are_refused() -> None:
    """Another statement in these loops: each thread would go on from the sum of another, in no order."""
    text = """
@T.prim_func
def f(A: T.Buffer((2, 64), "float32"), B: T.Buffer((2,), "float32")):
    S = T.alloc_buffer((2, 64), "float32", scope="shared")
    for i in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for j in range(2):
                with T.block("S"):
                    vi = T.axis.spatial(2, i)
                    vj = T.axis.spatial(64, t * 2 + j)
                    S[vi, vj] = A[vi, vj]
            for j in range(2):
                with T.block("B"):
                    vi = T.axis.spatial(2, i)
                    vk = T.axis.reduce(64, t * 2 + j)
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + S[vi, vk]
"""
    assert refused(text, "E0728").diagnostics[0].related
    decomposed = text.replace("                    with T.init():\n                        B[vi] = T.float32(0)\n", "")
    refused(decomposed, "E0728")


def test_reductions_written_by_hand_match() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    R = T.alloc_buffer((1,), "float32", scope="local")
    with T.attr(
        T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))
    ):
        T.tvm_thread_allreduce(T.uint32(1), A[tx], A[tx] > T.float32(8), R.data, tx)
    B[tx] = R[0]
"""
    arrays = [np.arange(64, dtype=np.float32), np.zeros(64, np.float32)]
    run_program(lowered(text)[1], arrays)
    np.testing.assert_array_equal(arrays[1], np.full(64, sum(range(9, 64)), np.float32))


def test_notes_name_loops_that_no_text_has() -> None:
    """What a schedule made has no place; the note says what it is."""
    text = """
@T.prim_func
def f(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.thread_binding(64, thread="blockIdx.x"):
        for k in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("b"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(5)
                B[vi] = B[vi] + A[vi, vk]
"""
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)

    def bare(node: Any) -> Any:
        return replace(node, span=None) if isinstance(node, tir.For) else node

    with pytest.raises(CompileError, match="E0728") as caught:
        lower_gpu("f", replace(func, body=tuple(rewrite_bottom_up(s, bare) for s in func.body)))
    (note,) = caught.value.diagnostics[0].related
    assert (
        note.span is None and 'over these threads: `for k in T.thread_binding(32, thread="threadIdx.x"):`' in note.text
    )
