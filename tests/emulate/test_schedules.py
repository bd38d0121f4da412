"""Generated GPU schedules, emulated with checks, against the interpreter: sizes of 1, primes, and what tiles do not
divide; blocks and threads bound, stages in shared and local memory, cooperative fetching, reductions across threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CompileError
from mlcc.interp.prim_func import run_prim_func
from mlcc.ir import tir
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

WINDOW = """
@T.prim_func
def main(A: T.Buffer(({n} + 2,), "float32"), B: T.Buffer(({n},), "float32")):
    for i in range({n}):
        with T.block("B"):
            v = T.axis.spatial({n}, i)
            B[v] = A[v] + A[v + 1] * T.float32(2) + A[v + 2]
"""
MATMUL = """
@T.prim_func
def main(A: T.Buffer(({n}, {k}), "{dtype}"), B: T.Buffer(({k}, {m}), "{dtype}"), C: T.Buffer(({n}, {m}), "{dtype}")):
    for i, j, k in T.grid({n}, {m}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{dtype}(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
ROWS = """
@T.prim_func
def main(A: T.Buffer(({n}, {m}), "float32"), C: T.Buffer(({n}, {m}), "float32")):
    B = T.alloc_buffer(({n},), "float32")
    for i, j in T.grid({n}, {m}):
        with T.block("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.min_value("float32")
            B[vi] = T.max(B[vi], A[vi, vj])
    for i, j in T.grid({n}, {m}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] - B[vi]
"""
SIZES = st.sampled_from([1, 2, 7, 16, 31, 33, 64])


def agree(sch: mlcc.Schedule, original: mlcc.IRModule, dtype: str = "float32") -> None:
    """The schedule computes what the function does, and its threads do nothing wrong."""
    func, scheduled = original["main"], sch.mod["main"]
    assert isinstance(func, tir.PrimFunc) and isinstance(scheduled, tir.PrimFunc)
    rng = np.random.default_rng(0)
    wanted: list[Any] = []
    for buffer in func.buffers:
        assert buffer is not None
        shape = tuple(tir.const_int(n) or 0 for n in buffer.shape)
        wanted.append((rng.random(shape) * 8).astype(dtype))
    got = [a.copy() for a in wanted]
    run_program(lower_gpu("main", scheduled), *got)
    run_prim_func(func, wanted)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def campaign(strategy: st.SearchStrategy[tuple[Any, ...]], case: Callable[..., None]) -> None:
    """Each case is refused or right, and several are right."""
    counts: Counter[str] = Counter()

    @settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(strategy)
    def run(options: tuple[Any, ...]) -> None:
        try:
            case(*options)
        except CompileError:
            counts["refused"] += 1
        else:
            counts["right"] += 1

    run()
    assert counts["right"] >= 3, counts


def fetch_cooperatively(sch: mlcc.Schedule, stage: Any, depth: int, threads: int, lanes: int) -> None:
    """All threads of a block bring a stage, which stands below so many loops."""
    own = sch.get_loops(stage)[depth:]
    fused = sch.fuse(*own) if own else sch.add_unit_loop(stage)
    factors = [None, threads, lanes] if lanes > 1 else [None, threads]
    parts = sch.split(fused, factors)
    sch.bind(parts[1], "threadIdx.x")
    if lanes > 1:
        sch.vectorize(parts[2])


def test_schedules_with_windows_keep_results() -> None:
    campaign(st.tuples(SIZES.map(lambda n: n * 5), st.sampled_from([8, 32, 48]), st.booleans(), st.booleans()), windows)


def windows(n: int, threads: int, shared: bool, together: bool) -> None:
    mod = mlcc.parse(WINDOW.format(n=n))
    sch = mlcc.Schedule(mod)
    block = sch.get_block("B", "main")
    outer, inner = sch.split(sch.get_loops(block)[0], [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if shared:
        stage = sch.cache_read(block, 0, "shared")
        sch.compute_at(stage, outer if together else inner)
        if together:
            fetch_cooperatively(sch, stage, 1, threads, 1)
    agree(sch, mod)


def test_schedules_of_products_keep_results() -> None:
    tiles, dtypes = st.sampled_from([(4, 2), (8, 1), (8, 4)]), st.sampled_from(["float32", "int32", "float64"])
    steps, lanes = st.sampled_from([4, 8]), st.sampled_from([1, 2, 4])
    campaign(st.tuples(SIZES, SIZES, SIZES, tiles, steps, lanes, dtypes), products)


def products(n: int, m: int, k: int, tile: tuple[int, int], step: int, lanes: int, dtype: str) -> None:
    mod = mlcc.parse(MATMUL.format(n=n, m=m, k=k, dtype=dtype))
    sch = mlcc.Schedule(mod)
    block = sch.get_block("C", "main")
    local = sch.cache_write(block, 0, "local")
    threads, each = tile
    i, j, kk = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, [None, threads, each])
    j0, j1, j2 = sch.split(j, [None, threads, each])
    k0, k1 = sch.split(kk, [None, step])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    thread = sch.fuse(i1, j1)
    sch.bind(thread, "threadIdx.x")
    for at in (0, 1):
        stage = sch.cache_read(block, at, "shared")
        sch.compute_at(stage, k0)
        fetch_cooperatively(sch, stage, 4, threads * threads, lanes)
    sch.decompose_reduction(block, k0)
    agree(sch, mod, dtype)


def test_reductions_across_threads_keep_results() -> None:
    threads = st.sampled_from([8, 32, 48, 64])
    campaign(st.tuples(SIZES, SIZES.map(lambda n: n * 3), threads, st.booleans()), reductions)


def reductions(n: int, m: int, threads: int, shared: bool) -> None:
    mod = mlcc.parse(ROWS.format(n=n, m=m))
    sch = mlcc.Schedule(mod)
    total, rest = sch.get_block("B", "main"), sch.get_block("C", "main")
    row, column = sch.get_loops(rest)
    _, lane = sch.split(column, [None, threads])
    sch.bind(row, "blockIdx.x")
    sch.bind(lane, "threadIdx.x")
    if shared:
        sch.set_scope(total, 0, "shared")
        sch.compute_at(total, row)
    else:
        sch.bind(sch.get_loops(total)[0], "blockIdx.x")
    _, lane = sch.split(sch.get_loops(total)[-1], [None, threads])
    sch.bind(lane, "threadIdx.x")
    agree(sch, mod)
