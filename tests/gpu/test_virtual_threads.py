"""Virtual threads: their work stands in the code of one thread, and computes what it did."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu.views import resolve_views
from mlcc.passes.gpu.virtual_threads import inject_virtual_threads
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.flatten import flatten_buffers
from mlcc.passes.lowering.realize import realize_blocks
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

MATMUL = """
@T.prim_func
def f(A: T.Buffer(({n}, {k}), "float32"), B: T.Buffer(({k}, {m}), "float32"), C: T.Buffer(({n}, {m}), "float32")):
    for i, j, k in T.grid({n}, {m}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

TILED = """
block = sch.get_block("C", "f")
i, j, k = sch.get_loops(block)
iv, it, ii = sch.split(i, [{vi}, {t}, None])
jv, jt, jj = sch.split(j, [{vj}, {t}, None])
ko, ki = sch.split(k, [None, {kt}])
sch.reorder(iv, jv, it, jt, ko, ki, ii, jj)
sch.bind(iv, "vthread.y")
sch.bind(jv, "vthread.x")
sch.bind(it, "threadIdx.y")
sch.bind(jt, "threadIdx.x")
local = sch.cache_write(block, 0, "local")
sch.reverse_compute_at(local, jt)
shared = sch.cache_read(block, 0, "shared")
sch.compute_at(shared, ko)
"""


def lowered(text: str) -> tuple[tir.PrimFunc, tir.PrimFunc]:
    """The function as flat loop code, with and without virtual threads."""
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    flat = resolve_views(flatten_buffers(compact_buffers(realize_blocks(func)), {}))
    return flat, inject_virtual_threads(flat)


def virtual(func: tir.PrimFunc) -> list[object]:
    return [n for n in walk(func) if isinstance(n, tir.For) and (n.thread or "").startswith("vthread")]


@pytest.mark.parametrize(
    ("vi", "vj", "t", "ii"), [(2, 2, 2, 2), (1, 3, 2, 1), (4, 1, 1, 3), (5, 2, 3, 1), (17, 1, 2, 1)]
)
def test_a_tiled_product_computes_the_same(vi: int, vj: int, t: int, ii: int) -> None:
    n, m, k = vi * t * ii, vj * t * ii, 8
    mod = mlcc.apply_schedule(mlcc.parse(MATMUL.format(n=n, m=m, k=k)), TILED.format(vi=vi, vj=vj, t=t, kt=4))
    func = mod["f"]
    assert isinstance(func, tir.PrimFunc)
    flat = resolve_views(flatten_buffers(compact_buffers(realize_blocks(func)), {}))
    made = inject_virtual_threads(flat)
    assert virtual(flat) and not virtual(made)
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    got = np.zeros((n, m), np.float32)
    run_prim_func(made, [a, b, got])
    np.testing.assert_allclose(got, a @ b, rtol=1e-5)


SHARED = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((4, 16), "float32")):
    for v in T.thread_binding(4, thread="vthread.x"):
        with T.block("outer"):
            vv = T.axis.spatial(4, v)
            S = T.alloc_buffer((16,), "float32", scope="shared")
            L = T.alloc_buffer((1,), "float32", scope="local")
            for t in T.thread_binding(16, thread="threadIdx.x"):
                with T.block("load"):
                    vt = T.axis.spatial(16, t)
                    S[vt] = A[vt]
            for t in T.thread_binding(16, thread="threadIdx.x"):
                with T.block("own"):
                    vt = T.axis.spatial(16, t)
                    L[0] = S[15 - vt] * T.Cast("float32", vv)
                    B[vv, vt] = L[0]
"""


def test_what_is_equal_for_all_is_done_once_and_what_differs_has_its_own_memory() -> None:
    flat, made = lowered(SHARED)
    sizes = {s.buffer.name: tir.const_int(s.buffer.shape[0]) for s in walk(made) if isinstance(s, tir.AllocBuffer)}
    assert sizes == {"S": 16, "L": 4}
    stores = [s.buffer.name for s in walk(made) if isinstance(s, tir.BufferStore)]
    assert stores == ["S", *["L"] * 4, *["B"] * 4]
    a = np.arange(64, dtype=np.float32)
    got = np.zeros((4, 16), np.float32)
    run_prim_func(made, [a, got])
    np.testing.assert_array_equal(got, a[15::-1][:16] * np.arange(4, dtype=np.float32)[:, None])


BRANCHES = """
@T.prim_func
def f(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32"), n: T.int32):
    for v in T.thread_binding(4, thread="vthread"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("b"):
                vv, vt = T.axis.remap("SS", [v, t])
                T.reads(A[0:32])
                T.writes(B[0:32])
                B[vv * 8 + vt] = 0
                if vv * 8 + vt < n:
                    for i in range(vv + 1):
                        B[vv * 8 + vt] = B[vv * 8 + vt] + A[i * 8 + vt]
                if n < 20:
                    B[vv * 8 + vt] = B[vv * 8 + vt] * 2
"""


@pytest.mark.parametrize("n", [0, 13, 32])
def test_conditions_and_loops_that_differ_are_each_threads_own(n: int) -> None:
    flat, made = lowered(BRANCHES)
    a = np.arange(32, dtype=np.int32)
    want, got = np.zeros(32, np.int32), np.zeros(32, np.int32)
    run_prim_func(flat, [a, want, n])
    run_prim_func(made, [a, got, n])
    np.testing.assert_array_equal(got, want)
    conditions = [s for s in walk(made) if isinstance(s, tir.IfThenElse)]
    assert len(conditions) == 5  # one for each, and one that is the same for all


SCOPED = """
@T.prim_func
def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    tx = T.launch_thread("threadIdx.x", 16)
    vx = T.env_thread("vthread.x")
    with T.launch_thread(vx, 2):
        x: T.float32 = A[vx * 16 + tx]
        B[vx * 16 + tx] = x * x
"""


def test_launch_scopes_of_virtual_threads_have_names_of_their_own() -> None:
    _, made = lowered(SCOPED)
    binds = [s.var for s in walk(made) if isinstance(s, tir.Bind)]
    assert len(binds) == len(set(binds)) == 2
    a = np.arange(32, dtype=np.float32)
    got = np.zeros(32, np.float32)
    run_prim_func(made, [a, got])
    np.testing.assert_array_equal(got, a * a)


@pytest.mark.parametrize("blocks", [False, True])
def test_kernels_are_launched_once_and_threads_do_not_race(blocks: bool) -> None:
    script = TILED.format(vi=2, vj=3, t=2, kt=4)
    if blocks:
        script = script.replace("sch.split(i, [2,", "sch.split(i, [2, 1,").replace("iv, it, ii =", "ib, iv, it, ii =")
        script = script.replace("reorder(iv", "reorder(ib, iv").replace(
            '"vthread.y")', '"vthread.y")\nsch.bind(ib, "blockIdx.x")'
        )
    mod = mlcc.apply_schedule(mlcc.parse(MATMUL.format(n=16, m=12, k=8)), script)
    func = mod["f"]
    assert isinstance(func, tir.PrimFunc)
    made = lower_gpu("f", func)
    assert len(made.kernels) == 1 and isinstance(made.func.body[-1], tir.Evaluate)
    assert [p.dtype.is_handle for p in made.kernels[0].params] == [True] * 3
    rng = np.random.default_rng(0)
    a, b = rng.random((16, 8), np.float32), rng.random((8, 12), np.float32)
    got = np.zeros((16, 12), np.float32)
    run_program(made, a, b, got)
    np.testing.assert_allclose(got, a @ b, rtol=1e-5)
