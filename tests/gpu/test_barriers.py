"""Barriers are where threads hand values on, and nowhere else; the simulator finds races and parted barriers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceProgram
from mlcc.passes.gpu.divergence import is_barrier
from tests.gpu.simulate import Memory, Race, run_kernel, run_program
from tests.gpu.test_kernels import WINDOW, check, lowered, refused, shared


def barriers(program: DeviceProgram) -> int:
    return sum(is_barrier(n) for k in program.kernels for s in k.body for n in walk(s) if isinstance(n, tir.Stmt))


def body(code: str, size: int = 64) -> str:
    lines = "\n".join("    " + line for line in code.strip("\n").splitlines())
    return f"""
@T.prim_func
def f(A: T.Buffer((8, {size}), "float32"), B: T.Buffer((8, {size}), "float32")):
    tx = T.launch_thread("threadIdx.x", {size})
    S = T.alloc_buffer((2, {size}), "float32", scope="shared")
{lines}
"""


CASES = {
    "what a thread wrote itself": (0, "S[0, tx] = A[0, tx]\nB[0, tx] = S[0, tx] + T.float32(1)"),
    "another one's": (1, "S[0, tx] = A[0, tx]\nB[0, tx] = S[0, 63 - tx]"),
    "one by hand is enough": (1, 'S[0, tx] = A[0, tx]\nT.tvm_storage_sync("shared")\nB[0, tx] = S[0, 63 - tx]'),
    "other rows": (0, "S[0, tx] = A[0, tx]\nS[1, 63 - tx] = A[1, tx]\nB[0, tx] = S[0, tx] + S[1, 63 - tx]"),
    "other halves": (
        0, "if tx < 32:\n    S[0, tx] = A[0, tx]\nif tx >= 32:\n    S[0, tx] = A[1, tx]\nB[0, tx] = S[0, tx]",
    ),
    "vectors of its own": (
        0,
        "if tx < 16:\n    for v in T.vectorized(4):\n        S[0, tx * 4 + v] = A[0, tx * 4 + v]\n"
        "    for v in T.vectorized(4):\n        B[0, tx * 4 + v] = S[0, tx * 4 + v]",
    ),
    "quotient and remainder": (
        0,
        "S[tx // 32, tx % 32] = A[0, tx]\nB[0, tx] = S[tx // 32, tx % 32]",
    ),
    "from one iteration to the next": (
        2, "for k in range(8):\n    S[0, tx] = A[k, tx]\n    B[k, tx] = S[0, 63 - tx]",
    ),
    "each iteration its own": (0, "for k in range(8):\n    S[0, tx] = A[k, tx]\n    B[k, tx] = S[0, tx]"),
    "versions in turn": (
        1, "for k in range(8):\n    S[k % 2, tx] = A[k, tx]\n    B[k, tx] = S[k % 2, 63 - tx]",
    ),
    "one version is read while the next one is written": (
        1,
        "S[0, tx] = A[0, tx]\nfor k in range(7):\n    T.tvm_storage_sync('shared')\n"
        "    B[k, tx] = S[k % 2, 63 - tx]\n    S[(k + 1) % 2, tx] = A[k + 1, tx]",
    ),
    "versions that come round again": (
        2,
        "S[0, tx] = A[0, tx]\nfor k in range(7):\n    T.tvm_storage_sync('shared')\n"
        "    B[k, tx] = S[k % 2, 63 - tx]\n    S[(k + 2) % 2, tx] = A[k + 1, tx]",
    ),
    "one thread alone": (
        0, "if tx == 0:\n    S[0, 0] = A[0, 0]\n    S[0, 1] = S[0, 0] + A[0, 1]\n    B[0, 0] = S[0, 1]",
    ),
    "what one thread wrote for all": (1, "if tx == 0:\n    S[0, 0] = A[0, 0]\nB[0, tx] = S[0, 0]"),
    "through global memory": (1, "B[0, tx] = A[0, tx]\nB[1, tx] = B[0, 63 - tx]"),
    "in a condition for all": (
        1, "if A[7, 0] < T.float32(100):\n    S[0, tx] = A[0, tx]\n    B[0, tx] = S[0, 63 - tx]",
    ),
    "a condition is drawn in": (
        1, "if tx < 32:\n    S[0, tx] = A[0, tx]\n    B[0, tx] = S[0, 31 - tx]",
    ),
    "out of loops too": (
        2, "if tx < 32:\n    for k in range(8):\n        S[0, tx] = A[k, tx]\n        B[k, tx] = S[0, 31 - tx]",
    ),
    "loops of other lengths": (
        2,
        "for k in range(tx // 32 + 1):\n    S[0, tx] = A[k, tx]\n    B[k, tx] = S[0, tx // 32 * 32 + 31 - tx % 32]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_barriers_are_inserted_where_needed(name: str) -> None:
    """The simulator refuses what is missing; the interpreter runs threads one by one, so that it is no judge."""
    count, code = CASES[name]
    program = lowered(body(code))[1]
    arrays = [np.random.default_rng(0).random((8, 64), np.float32) for _ in range(2)]
    run_program(program, arrays)
    assert barriers(program) == count


def test_the_simulator_finds_what_is_missing() -> None:
    """A judge that never complains is none."""
    text = body("S[0, tx] = A[0, tx]\nB[0, tx] = S[0, 63 - tx]")
    (kernel,) = lowered(text)[1].kernels
    bare = dataclasses.replace(kernel, body=tuple(s for s in kernel.body if not is_barrier(s)))
    arrays = [Memory(name, np.zeros(512, np.float32), True) for name in "AB"]
    arrays[0].data += np.arange(512)
    with pytest.raises(Race):
        run_kernel(bare, arrays)


def test_cooperative_fetching_gets_its_barrier() -> None:
    program = check(WINDOW.replace('                T.tvm_storage_sync("shared")\n', ""), (1027,), (1024,))
    assert barriers(program) == 1


def test_loops_that_do_not_take_all_threads_meet_at_barriers() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 96), "float32"), B: T.Buffer((4, 48), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        S = T.alloc_buffer((96,), "float32", scope="shared")
        for t in T.thread_binding(96, thread="threadIdx.x"):
            S[t] = A[b, t]
        for t in T.thread_binding(48, thread="threadIdx.x"):
            B[b, t] = S[t] + S[95 - t]
            T.tvm_storage_sync("shared")
            S[t] = A[b + 2, t]
            B[b + 2, t] = S[47 - t]
"""
    assert barriers(check(text, (4, 96), (4, 48))) == 3


def test_no_barrier_where_threads_part() -> None:
    found = refused(body('if tx < 32:\n    T.tvm_storage_sync("shared")\nB[0, tx] = A[0, tx]'), "E0726").diagnostics[0]
    assert found.primary.span is not None and found.related[0].span is not None
    code = "while A[0, tx] < B[0, tx]:\n    S[0, tx] = A[0, 0]\n    B[0, tx] = S[0, 63 - tx]"
    found = refused(body(code), "E0726").diagnostics[0]
    assert len(found.related) == 2 and "`S`" in found.message


BLOCKING = """
def fetch(sch, block, nthread, read_idx, read_loc):
    cache = sch.cache_read(block=block, read_buffer_index=read_idx, storage_scope="shared")
    sch.compute_at(block=cache, loop=read_loc)
    inner0, inner1 = sch.get_loops(block=cache)[-2:]
    inner = sch.fuse(inner0, inner1)
    _, tx, vec = sch.split(loop=inner, factors=[None, nthread, 4])
    sch.vectorize(vec)
    sch.bind(tx, "threadIdx.x")

def schedule(sch):
    block_C = sch.get_block("C")
    C_local = sch.cache_write(block_C, 0, "local")
    i, j, k = sch.get_loops(block=block_C)
    i0, i1, i2 = sch.split(loop=i, factors=[None, 4, 4])
    j0, j1, j2 = sch.split(loop=j, factors=[None, 4, 4])
    k0, k1 = sch.split(loop=k, factors=[None, 4])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(C_local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    tx = sch.fuse(i1, j1)
    sch.bind(tx, "threadIdx.x")
    fetch(sch, block_C, 16, 0, k0)
    fetch(sch, block_C, 16, 1, k0)
    sch.decompose_reduction(block_C, k0)
"""


def test_products_by_tiles_in_shared_memory() -> None:
    n = 16
    text = f"""
@T.prim_func
def main(A: T.Buffer(({n}, {n}), "float32"), B: T.Buffer(({n}, {n}), "float32"), C: T.Buffer(({n}, {n}), "float32")):
    for i, j, k in T.grid({n}, {n}, {n}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    module = mlcc.apply_schedule(mlcc.parse(text), BLOCKING)
    scheduled = mlcc.script(module["main"]).replace("def main(", "def f(")
    program = check(scheduled, (n, n), (n, n), (n, n))
    assert barriers(program) == 2
    assert shared(program) == {"C_local": 16, "A_shared": 64, "B_shared": 64}


def test_indices_of_64_bits_in_memory_of_32() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for y in T.thread_binding(T.int64(8), thread="threadIdx.y"):
        for x in T.thread_binding(T.int64(4), thread="threadIdx.x"):
            for i in range(T.int64(2)):
                for v in range(T.int64(4)):
                    B[i * T.int64(8) + y, x * T.int64(4) + v] = A[i * T.int64(8) + y, x * T.int64(4) + v]
"""
    assert barriers(check(text, (16, 16), (16, 16))) == 0
