"""Emulated kernels: what threads do on their own, at barriers and in warps, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlcc.errors import CallError
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import walk
from mlcc.targets.emulate import run_program
from tests.emulate.kernels import FULL, program, rand, run


def test_a_barrier_separates_writes_from_reads() -> None:
    a, b = rand(1024), np.zeros(1024, "float32")
    run(
        """
@T.prim_func
def reverse(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    bx = T.launch_thread("blockIdx.x", 8)
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((128,), "float32", scope="shared")
    S[tx] = A[bx * 128 + tx]
    T.tvm_storage_sync("shared")
    B[bx * 128 + tx] = S[127 - tx]
""", a, b)  # fmt: skip
    assert np.array_equal(b.reshape(8, 128), a.reshape(8, 128)[:, ::-1])


def test_values_and_local_memory_live_across_barriers() -> None:
    """In a loop, with blocks of three axes: a bound value, a local array and a pure value of the thread."""
    a, b = rand(4, 24), np.zeros((4, 24), "float32")
    run(
        """
@T.prim_func
def f(A: T.Buffer((4, 24), "float32"), B: T.Buffer((4, 24), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tz = T.launch_thread("threadIdx.z", 2)
    ty = T.launch_thread("threadIdx.y", 3)
    tx = T.launch_thread("threadIdx.x", 4)
    S = T.alloc_buffer((24,), "float32", scope="shared")
    L = T.alloc_buffer((3,), "float32", scope="local")
    me: T.int32 = tz * 12 + ty * 4 + tx
    mine: T.float32 = A[bx, me]
    for i in range(3):
        L[i] = T.float32(0)
    for k in range(3):
        S[me] = mine + T.Cast("float32", k)
        T.tvm_storage_sync("shared")
        L[k] = S[(me + 1) % 24]
        T.tvm_storage_sync("shared")
    B[bx, me] = L[0] + L[1] * T.float32(10) + L[2] * T.float32(100)
""", a, b)  # fmt: skip
    turned = np.roll(a, -1, axis=1)
    assert np.allclose(b, turned + (turned + 1) * 10 + (turned + 2) * 100, rtol=1e-5)


@pytest.mark.parametrize("threads", [64, 40, 7])
@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("kind", ["tvm_warp_shuffle", "_up", "_down", "_xor"])
def test_shuffles_match_numpy(kind: str, width: int, threads: int) -> None:
    """Out of range of the segment, the warp or the block a thread has its own value."""
    name = kind if kind[0] == "t" else f"tvm_warp_shuffle{kind}"
    a = np.arange(threads, dtype="int32") + 100
    b = np.zeros(threads, "int32")
    run(
        f"""
@T.prim_func
def f(A: T.Buffer(({threads},), "int32"), B: T.Buffer(({threads},), "int32")):
    tx = T.launch_thread("threadIdx.x", {threads})
    B[tx] = T.{name}({FULL}, A[tx], 5, {width}, 32)
""", a, b)  # fmt: skip
    expected = []
    for t in range(threads):
        lane, first = t % 32, t - t % 32
        low = lane // width * width
        source = {
            "tvm_warp_shuffle": low + 5 % width, "_up": lane - 5, "_down": lane + 5, "_xor": lane ^ 5,
        }[kind]  # fmt: skip
        inside = {"_up": source >= low, "_down": source < low + width}.get(kind, source < low + width)
        inside = inside and first + source < threads
        expected.append(100 + (first + source if inside else t))
    assert b.tolist() == expected


def test_warps_part_at_shuffles() -> None:
    """The second stage of a reduction runs in the first warp only; the mask of its active lanes says so."""
    a, b, m = rand(96), np.zeros(1, "float32"), np.zeros(96, "uint32")
    run(
        f"""
@T.prim_func
def f(A: T.Buffer((96,), "float32"), B: T.Buffer((1,), "float32"), M: T.Buffer((96,), "uint32")):
    tx = T.launch_thread("threadIdx.x", 96)
    S = T.alloc_buffer((3,), "float32", scope="shared")
    r = T.alloc_buffer((1,), "float32", scope="local")
    r[0] = A[tx]
    for k in range(5):
        r[0] = r[0] + T.tvm_warp_shuffle_down({FULL}, r[0], T.shift_right(16, k), 32, 32)
    if tx % 32 == 0:
        S[tx // 32] = r[0]
    T.tvm_storage_sync("shared")
    M[tx] = T.uint32(0)
    if tx < 3:
        r[0] = S[tx]
        mask: T.uint32 = T.tvm_warp_activemask()
        M[tx] = mask
        r[0] = r[0] + T.tvm_warp_shuffle_down(mask, r[0], 1, 4, 32) + T.tvm_warp_shuffle_down(mask, r[0], 2, 4, 32)
    if tx == 0:
        B[0] = r[0]
""", a, b, m)  # fmt: skip
    assert np.allclose(b[0], a.sum(), rtol=1e-5)
    assert m.tolist() == [7] * 3 + [0] * 93


def test_loops_that_threads_leave_one_by_one() -> None:
    """A serial loop whose bounds differ between warps, and a while loop, around shuffles."""
    b, w = np.zeros(64, "int32"), np.zeros(64, "int32")
    run(
        f"""
@T.prim_func
def f(B: T.Buffer((64,), "int32"), W: T.Buffer((64,), "int32")):
    tx = T.launch_thread("threadIdx.x", 64)
    B[tx] = 0
    W[tx] = 0
    for k in range(tx // 32 + 1, tx // 32 * 3 + 3):
        B[tx] = B[tx] + T.tvm_warp_shuffle({FULL}, tx * k, 1, 32, 32)
    while W[tx] < tx // 32 * 10 + 5:
        W[tx] = W[tx] + T.tvm_warp_shuffle({FULL}, tx // 32 + 1, 0, 32, 32)
""", b, w)  # fmt: skip
    assert b.tolist() == [1 + 2] * 32 + [33 * (2 + 3 + 4 + 5)] * 32
    assert w.tolist() == [5] * 32 + [16] * 32


@pytest.mark.parametrize("n", [1, 31, 257])
def test_symbolic_sizes_match_numpy(n: int) -> None:
    a, b = rand(n), np.zeros(n, "float32")
    run(
        """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):
        for j in T.thread_binding(32, thread="threadIdx.x"):
            if i * 32 + j < n:
                B[i * 32 + j] = A[i * 32 + j] + T.float32(1)
""", a, b)  # fmt: skip
    assert np.array_equal(b, a + np.float32(1))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint64", "bool"])
def test_every_dtype_survives_a_barrier(dtype: str) -> None:
    """Through shared memory, a shuffle and a value that lives across a barrier."""
    a = rand(32, dtype="float32") * 100
    a = (a > 50) if dtype == "bool" else a.astype(dtype)
    b = np.zeros_like(a)
    run(
        f"""
@T.prim_func
def f(A: T.Buffer((32,), "{dtype}"), B: T.Buffer((32,), "{dtype}")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.alloc_buffer((32,), "{dtype}", scope="shared")
    mine: T.{dtype} = A[tx]
    S[tx] = mine
    T.tvm_storage_sync("shared")
    other: T.{dtype} = T.tvm_warp_shuffle_xor({FULL}, S[31 - tx], 1, 32, 32)
    T.tvm_storage_sync("shared")
    B[tx] = T.if_then_else(tx < 16, other, mine)
""", a, b)  # fmt: skip
    expected = a.copy()
    expected[:16] = a[31 - (np.arange(16) ^ 1)]
    assert np.array_equal(b, expected)


def test_atomics_and_dynamic_shared_memory() -> None:
    counts = np.zeros(4, "int32")
    values = np.arange(4096, dtype="int32")
    run(
        """
@T.prim_func
def f(A: T.Buffer((4096,), "int32"), C: T.Buffer((4,), "int32")):
    bx = T.launch_thread("blockIdx.x", 32)
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((4,), "int32", scope="shared.dyn")
    if tx < 4:
        S[tx] = 0
    T.tvm_storage_sync("shared")
    T.evaluate(T.atomic_add(T.address_of(S[A[bx * 128 + tx] % 3]), 1))
    T.tvm_storage_sync("shared")
    if tx < 4:
        T.evaluate(T.atomic_add(T.address_of(C[tx]), S[tx]))
""", values, counts)  # fmt: skip
    assert counts.tolist() == [*np.bincount(values % 3), 0]


def test_threads_leave_loops_and_the_kernel() -> None:
    """`break`, `continue` and a return under conditions, in loops and around shuffles."""
    b = np.zeros((3, 64), "int32")
    run(
        """
@T.prim_func
def f(B: T.Buffer((3, 64), "int32")):
    tx = T.launch_thread("threadIdx.x", 64)
    for i in range(3):
        B[i, tx] = 0
    for k in range(8):
        if k == 2:
            continue
        if tx // 32 + 4 == k:
            B[1, tx] = k
            break
        if tx % 32 == 7:
            continue
        B[0, tx] = B[0, tx] + T.tvm_warp_shuffle(T.tvm_warp_activemask(), k, 0, 32, 32)
    for i in range(tx // 64 + 1, 3):
        for j in range(2):
            if tx >= 40:
                if j == 1:
                    T.thread_return()
            B[2, tx] = B[2, tx] + T.tvm_warp_shuffle(T.tvm_warp_activemask(), 10, 0, 32, 32)
    B[2, tx] = B[2, tx] + 1
""", b)  # fmt: skip
    t = np.arange(64)
    sums = np.where(t < 32, 0 + 1 + 3, 0 + 1 + 3 + 4)
    assert np.array_equal(b[0], np.where(t % 32 == 7, 0, sums))
    assert np.array_equal(b[1], t // 32 + 4)
    assert np.array_equal(b[2], np.where(t >= 40, 10, 41))


def test_more_local_memory_than_a_stack_has() -> None:
    """Within a region and across regions, with and without checks."""
    text = """
@T.prim_func
def f(A: T.Buffer((40, 8192), "float32"), B: T.Buffer((40,), "float32")):
    tx = T.launch_thread("threadIdx.x", 40)
    L = T.alloc_buffer((8192,), "float32", scope="local")
    M = T.alloc_buffer((8192,), "float32", scope="local")
    for k in range(8192):
        L[k] = A[tx, k]
    T.tvm_storage_sync("shared")
    for k in range(8192):
        M[8191 - k] = L[k]
    B[tx] = M[8191] + M[0]
"""
    a = rand(40, 8192)
    for check in (True, False):
        b = np.zeros(40, "float32")
        run_program(program(text), a, b, check=check)
        assert np.array_equal(b, a[:, 0] + a[:, -1])


@pytest.mark.parametrize("check", [True, False])
def test_a_failed_assertion_stops_its_thread(check: bool) -> None:
    """Its message is what the call raises; what it kept from happening is no finding."""
    text = """
@T.prim_func
def f(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
    tx = T.launch_thread("threadIdx.x", 64)
    for k in range(2):
        T.Assert(A[tx] < 64, "an index beyond the end")
        B[A[tx]] = k + 1
"""
    a, b = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    made = program(text)
    (kernel,) = made.kernels
    if not kernel.asserts:  # the number of each goes to a parameter
        found = [n for s in kernel.body for n in walk(s) if isinstance(n, tir.AssertStmt)]
        word = tir.Var("error", DType.of("handle"))
        asserts = tuple((n.kind, "".join(n.message)) for n in found)
        kernel = replace(kernel, params=(*kernel.params, word), buffers=(*kernel.buffers, None), asserts=asserts)
        made = replace(made, kernels=(kernel,))
    run_program(made, a, b, check=check)
    assert b.tolist() == [2] * 64
    a[7], b[:] = 1 << 30, 0
    with pytest.raises(CallError, match="an index beyond the end"):
        run_program(made, a, b, check=check)
    assert b.tolist() == [2] * 7 + [0] + [2] * 56


@pytest.mark.parametrize(("m", "n"), [(3, 1), (2, 37), (0, 5)])
@pytest.mark.parametrize("check", [True, False])
def test_launches_run_their_number_of_threads(check: bool, m: int, n: int) -> None:
    """With shared memory and values across a barrier for that many, and no blocks at all."""
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    m = T.int32()
    n = T.int32()
    A = T.match_buffer(a, (m, n), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    bx = T.launch_thread("blockIdx.x", m)
    tx = T.launch_thread("threadIdx.x", n)
    S = T.alloc_buffer((n,), "float32", scope="shared.dyn")
    x: T.float32 = A[bx, tx]
    S[tx] = x
    T.tvm_storage_sync("shared")
    B[bx, tx] = S[n - 1 - tx] + x
"""
    a, b = rand(m, n), np.zeros((m, n), "float32")
    run_program(program(text), a, b, check=check)
    assert np.array_equal(b, a[:, ::-1] + a)
