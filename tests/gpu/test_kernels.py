"""Kernels from bound loops anywhere: equal to the interpreter, thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceProgram
from tests.gpu.simulate import run_program
from tests.lower import lower_gpu


def lowered(text: str, name: str = "f") -> tuple[tir.PrimFunc, DeviceProgram]:
    func = mlcc.parse(text)[name]
    assert isinstance(func, tir.PrimFunc)
    return func, lower_gpu(name, func)


def check(text: str, *shapes: tuple[int, ...], kernels: int = 1, dtype: str = "float32") -> DeviceProgram:
    """Runs `f` by the interpreter and by the simulator, on arrays of these shapes."""
    func, program = lowered(text)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    wanted = [a.copy() for a in arrays]
    run_prim_func(func, wanted)
    run_program(program, arrays)
    for mine, theirs in zip(arrays, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert len(program.kernels) == kernels
    return program


def shared(program: DeviceProgram) -> dict[str, int]:
    """Elements of the allocations on the chip."""
    return {
        n.buffer.name: tir.const_int(n.buffer.shape[0]) or 0
        for kernel in program.kernels
        for s in kernel.body
        for n in walk(s)
        if isinstance(n, tir.AllocBuffer)
    }


def extents(program: DeviceProgram, kernel: int = 0) -> dict[str, int | None]:
    return {tag: tir.const_int(e) for tag, e in program.kernels[kernel].extents.items()}


def refused(text: str, code: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        lowered(text)
    assert [d.code for d in caught.value.diagnostics] == [code]
    return caught.value


def test_nests_are_kernels_with_global_memory_between() -> None:
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    C = T.alloc_buffer((n,), "float32")
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for t in T.thread_binding(1, thread="threadIdx.x"):
            C[i] = A[i] * T.float32(2)
    for k in range(3):
        for i in T.thread_binding(n, thread="threadIdx.x"):
            B[i] = C[n - 1 - i] + B[i]
"""
    for size in (0, 1, 37):
        check(text, (size,), (size,), kernels=2)


def test_sibling_loops_of_one_axis_take_the_largest_launch() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 96), "float32"), B: T.Buffer((4, 50), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        S = T.alloc_buffer((96,), "float32", scope="shared")
        for t in T.thread_binding(96, thread="threadIdx.x"):
            S[t] = A[b, t]
        for t in T.thread_binding(50, thread="threadIdx.x"):
            B[b, t] = S[t] + T.float32(1)
"""
    assert extents(check(text, (4, 96), (4, 50))) == {"blockIdx.x": 4, "threadIdx.x": 96}


def test_an_extent_may_depend_on_loops_inside_the_kernel() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for b in T.thread_binding(8, thread="blockIdx.x"):
        for t in T.thread_binding(b + 1, thread="threadIdx.x"):
            B[b, t] = A[b, t]
"""
    assert extents(check(text, (8, 8), (8, 8))) == {"blockIdx.x": 8, "threadIdx.x": 8}


def test_what_stands_beside_loops_over_threads_is_done_once() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4,), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            A[b, t] = A[b, t] + T.float32(1)
        B[b] = B[b] + T.float32(1)
"""
    check(text, (4, 32), (4,))


def test_memory_on_the_chip_outlives_no_kernel() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for t in T.thread_binding(32, thread="threadIdx.x"):
        S[t] = A[t]
    for t in T.thread_binding(32, thread="threadIdx.x"):
        B[t] = S[t]
"""
    assert len(refused(text, "E0723").diagnostics[0].related) == 2


PRIVATE = """
@T.prim_func
def f(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 64), "float32")):
    for k in range(2):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            S = T.alloc_buffer((64,), "float32", scope="local")
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for j in range(2):
                    if k >= 0:
                        S[{written}] = A[b, {written}]
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for j in range(2):
                    B[b, {read}] = T.Select(j < 2, S[{read}], S[0])
"""


@pytest.mark.parametrize("element", ["t * 2 + j", "j * 32 + t", "63 - t - 32 * j"])
def test_a_thread_reads_what_it_wrote_into_memory_of_its_own(element: str) -> None:
    check(PRIVATE.format(written=element, read=element), (4, 64), (4, 64))


@pytest.mark.parametrize(
    ("written", "read"),
    [("t * 2 + j", "j * 32 + t"), ("t * 2 + j", "63 - t * 2 - j"), ("j * 32 + t", "j * 32 + (t + 3) % 32")],
)
def test_a_thread_cannot_read_memory_of_another(written: str, read: str) -> None:
    found = refused(PRIVATE.format(written=written, read=read), "E0727").diagnostics[0]
    assert found.primary.span is not None and found.related[0].span is not None


def test_memory_of_one_thread_that_threads_fill_together() -> None:
    """As a stage that is cached in `local` where it should be in `shared`."""
    text = """
@T.prim_func
def f(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4, 32), "float32")):
    S = T.alloc_buffer((32,), "float32", scope="local")
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            S[t] = A[b, t]
        for j in range(32):
            B[b, j] = S[j]
"""
    refused(text, "E0727")
    check(text.replace("local", "shared"), (4, 32), (4, 32))


def test_memory_of_one_thread_of_sizes_that_are_not_known() -> None:
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (4, n), "float32")
    B = T.match_buffer(b, (4, n), "float32")
    for b in T.thread_binding(4, thread="blockIdx.x"):
        S = T.alloc_buffer((n,), "float32", scope="local")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for k in range(T.ceildiv(n, T.int64(32))):
                if k * T.int64(32) + t < n:
                    S[k * T.int64(32) + t] = A[b, k * T.int64(32) + t]
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for k in range(T.ceildiv(n, T.int64(32))):
                if k * T.int64(32) + t < n:
                    B[b, k * T.int64(32) + t] = S[{read}]
"""
    refused(text.format(read="n - T.int64(1) - k * T.int64(32) - t"), "E0727")
    lowered(text.format(read="k * T.int64(32) + t"))


def test_hosts_do_not_compute_and_extents_are_not_data() -> None:
    head = '@T.prim_func\ndef f(A: T.Buffer((32,), "float32"), I: T.Buffer((1,), "int32")):\n'
    refused(head + "    A[0] = T.float32(1)\n", "E0720")
    body = '    for t in T.thread_binding(I[0], thread="threadIdx.x"):\n        A[t] = T.float32(1)\n'
    refused(head + body, "E0722")
    refused(head + body.replace("I[0]", "4").replace("threadIdx.x", "threadIdx.w"), "E0721")


def test_a_loop_bound_again_is_shared_out_among_the_same_threads() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for u in T.thread_binding(64, thread="threadIdx.x"):
            S[u] = A[u]
        B[t] = S[t] + T.float32(1)
"""
    check(text, (64,), (64,))
    refused(text.replace("u in T.thread_binding(64", "u in T.thread_binding(32"), "E0725")
    refused(text.replace("S[u] = A[u]", "S[u] = A[t]"), "E0725")


def test_a_thread_has_what_is_allocated_inside() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
    for b in T.thread_binding(8, thread="threadIdx.x"):
        L = T.alloc_buffer((16,), "float32")
        for i in range(16):
            L[i] = A[b, i] * T.float32(2)
        for i in range(16):
            B[b, i] = L[15 - i]
"""
    program = check(text, (8, 16), (8, 16))
    assert {n.buffer.scope for s in program.kernels[0].body for n in walk(s) if isinstance(n, tir.AllocBuffer)} == {
        "local"
    }


WINDOW = """
@T.prim_func
def f(A: T.Buffer((1027,), "float32"), B: T.Buffer((1024,), "float32")):
    with T.block("root"):
        A_shared = T.alloc_buffer((1027,), scope="shared")
        for i_0 in T.thread_binding(8, thread="blockIdx.x"):
            for i_1 in T.thread_binding(128, thread="threadIdx.x"):
                for ax0_0 in range(2):
                    for ax0_1 in T.thread_binding(128, thread="threadIdx.x"):
                        with T.block("A_shared"):
                            v0 = T.axis.spatial(1027, i_0 * 128 + (ax0_0 * 128 + ax0_1))
                            T.where(ax0_0 * 128 + ax0_1 < 130)
                            A_shared[v0] = A[v0]
                T.tvm_storage_sync("shared")
                with T.block("C"):
                    vi = T.axis.spatial(1024, i_0 * 128 + i_1)
                    B[vi] = A_shared[vi] + A_shared[vi + 1] + A_shared[vi + 2]
"""


def test_shared_memory_is_what_a_block_uses() -> None:
    assert shared(check(WINDOW, (1027,), (1024,))) == {"A_shared": 130}


def test_a_small_temporary_of_one_thread_leaves_global_memory() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((64, 4), "float32"), B: T.Buffer((64, 4), "float32")):
    C = T.alloc_buffer((64, 4), "float32")
    for t in T.thread_binding(64, thread="threadIdx.x"):
        for j in range(4):
            C[t, j] = A[t, j] + T.float32(1)
        for j in range(4):
            B[t, j] = C[t, 3 - j]
"""
    program = check(text, (64, 4), (64, 4))
    assert shared(program) == {"C": 4}
    assert not any(isinstance(s, tir.AllocBuffer) for s in program.func.body)


def test_temporaries_of_unknown_size_are_a_part_for_each_thread() -> None:
    """Local memory has no place for them: they lie in global memory."""
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding((n + 3) // 4, thread="threadIdx.x"):
            with T.block("turned"):
                v = T.axis.spatial(n, i * ((n + 3) // 4) + t)
                T.where(i * ((n + 3) // 4) + t < n)
                K = T.alloc_buffer((m,), "float32")
                for j in range(m):
                    K[m - 1 - j] = A[v, j]
                B[v] = 0.0
                for j in range(m):
                    B[v] = B[v] * 2.0 + K[j]
"""
    a = np.random.default_rng(0).integers(0, 9, (30, 7)).astype("float32")
    b = np.zeros(30, "float32")
    exe = mlcc.load(mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}"), emulate=True)
    exe["f"](a, b)
    assert np.array_equal(b, a @ 2 ** np.arange(7, dtype="float32"))
