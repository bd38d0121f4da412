"""decompose_reduction."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import walk
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


@pytest.mark.parametrize("at", [0, 1, 2])
def test_every_loop_of_a_matmul_keeps_results(at: int) -> None:
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


def test_init_below_a_reduction_loop_keeps_results() -> None:
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


def test_one_accumulator_for_all_keeps_results() -> None:
    sch = schedule(ONE_PLACE)
    with refused("E0663", "`S` does not have a separate element for each value of axis `vi`"):
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


ROWS = """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (T.int64(4), n))
    B = T.match_buffer(b, (T.int64(4),))
    for i, k in T.grid(T.int64(4), n):
        with T.sblock("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""


def _partial_sums(text: str, lanes: int) -> tuple[mlcc.Schedule, tir.BlockRealize]:
    """`text` after rfactor over `lanes` partial sums, and the init of these."""
    sch = schedule(text)
    _, inner = sch.split(sch.get_loops("B")[1], [None, lanes])
    partial = sch.rfactor(inner, factor_axis=0)
    i, outer, lane = sch.get_loops(partial)
    sch.reorder(i, lane, outer)
    init = sch.get(sch.decompose_reduction(partial, outer))
    return sch, next(r for r in walk(sch.mod["main"].body) if isinstance(r, tir.BlockRealize) and r.block is init)


@pytest.mark.parametrize("n", [1, 5, 16, 40])
def test_a_condition_on_reduction_and_other_loops(n: int) -> None:
    """The init runs for all partial sums, also for those without a term: nothing else is in their buffer."""
    sch, realize = _partial_sums(ROWS, 16)
    assert tir.const_int(realize.predicate) == 1
    a = np.random.default_rng(n).standard_normal((4, n)).astype("float32")
    b = np.full(4, np.nan, "float32")
    mlcc.load(mlcc.build(sch.mod))["main"](a, b)
    np.testing.assert_allclose(b, a.sum(axis=1), rtol=1e-5, atol=1e-5)


def test_a_condition_that_always_holds_in_the_first_round() -> None:
    fixed = ROWS.replace("    n = T.int64()\n", "").replace(" n)", " T.int64(40))")
    sch, realize = _partial_sums(fixed, 16)
    assert tir.const_int(realize.predicate) == 1
    assert_same_results(mlcc.parse(fixed), sch.mod)


@pytest.mark.parametrize("n", [1, 5, 16, 40])
def test_partial_sums_without_a_term_are_combined_at_another_place(n: int) -> None:
    """The new loops of the combination run over all partial sums."""
    sch, _ = _partial_sums(ROWS, 16)
    sch.reverse_compute_at("B", sch.get_loops("B_rf_update")[0])
    a = np.random.default_rng(n).standard_normal((4, n)).astype("float32")
    b = np.full(4, np.nan, "float32")
    run_prim_func(sch.mod["main"], [a, b])
    np.testing.assert_allclose(b, a.sum(axis=1), rtol=1e-5, atol=1e-5)
