"""decompose_reduction."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


@pytest.mark.parametrize("at", [0, 1, 2])
def test_at_every_loop_of_a_matmul(at: int) -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    init = sch.decompose_reduction(block, sch.get_loops(block)[at])
    assert (sch.get(init).name, sch.get(block).name) == ("C_init", "C_update")
    assert len(sch.get_loops(init)) == 2
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_the_module_that_comes_out() -> None:
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[1])
    want = """
@T.prim_func
def main(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    for i in range(32):
        for j_init in range(16):
            with T.block("C_init"):
                vi, vj = T.axis.remap("SS", [i, j_init])
                T.reads()
                T.writes(C[vi, vj])
                C[vi, vj] = T.float32(0)
        for j, k in T.grid(16, 24):
            with T.block("C_update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(want))


def test_below_a_reduction_loop() -> None:
    sch = schedule(MATMUL.replace("for i, j, k in T.grid(32, 16, 24)", "for k, i, j in T.grid(24, 32, 16)"))
    with refused("E0662", "would run again for every `k`.*decompose at `k`"):
        sch.decompose_reduction("C", sch.get_loops("C")[1])
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_a_loop_elsewhere_and_a_block_that_is_no_reduction() -> None:
    sch = schedule(CHAIN)
    with refused("E0661", "not around block `C`.*the loops around the block: `i`, `j`"):
        sch.decompose_reduction("C", sch.get_loops("B")[0])
    with refused("E0656", "`C` is not a reduction: it has no init"):
        sch.decompose_reduction("C", sch.get_loops("C")[0])


def test_a_loop_that_repeats_the_reduction() -> None:
    text = MATMUL.replace("for i, j, k in T.grid(32, 16, 24)", "for r, i, j, k in T.grid(3, 32, 16, 24)")
    sch = schedule(text)
    with refused("E0663", "`r` repeats block `C`"):
        sch.decompose_reduction("C", sch.get_loops("C")[0])
    sch.decompose_reduction("C", sch.get_loops("C")[1])
    assert_same_results(mlcc.parse(text), sch.mod)


ONE_PLACE = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((1,))
    for i in range(8):
        for k in range(6):
            with T.block("S"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[0] = T.float32(0)
                S[0] = S[0] + A[vi, vk]
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = S[0]
"""


def test_one_accumulator_for_all() -> None:
    sch = schedule(ONE_PLACE)
    with refused("E0663", "`S` has no place of its own for each value of axis `vi`"):
        sch.decompose_reduction("S", sch.get_loops("S")[0])
    sch.decompose_reduction("S", sch.get_loops("S")[1])
    assert_same_results(mlcc.parse(ONE_PLACE), sch.mod)


BIAS = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), bias: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = bias[vi]
            C[vi] = C[vi] + A[vi, vk]
"""


def test_an_init_that_reads() -> None:
    sch = schedule(BIAS)
    init = sch.decompose_reduction("C", sch.get_loops("C")[1])
    assert [r.buffer.name for r in sch.get(init).reads] == ["bias"]
    assert_same_results(mlcc.parse(BIAS), sch.mod)
    mlcc.build(sch.mod)
