"""loop_partition."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.nests import FROM_2, SYMBOLIC, elementwise, row_sums
from tests.schedule.tools import assert_same_results, refused, schedule


def test_parts_have_their_own_loops() -> None:
    sch = schedule(elementwise(8, 4))
    loops = sch.loop_partition(sch.get_loops("B")[0], factors=[2, None, 3])
    assert [sch.get(x).var.name for x in loops] == ["i0", "i1", "i2"]
    want = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    with T.block("root"):
        T.reads()
        T.writes()
        with T.block("B_i_common"):
            T.reads()
            T.writes()
            with T.block("B_i0_partition"):
                T.reads()
                T.writes()
                for i0, j in T.grid(2, 4):
                    with T.block("B_i0"):
                        vi, vj = T.axis.remap("SS", [i0, j])
                        T.reads(A[0:2, 0:4])
                        T.writes(B[0:2, 0:4])
                        B[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
            with T.block("B_i1_partition"):
                T.reads()
                T.writes()
                for i1 in range(2, 5):
                    for j in range(4):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((2, 5), i1)
                            vj = T.axis.spatial(4, j)
                            T.reads(A[2:5, 0:4])
                            T.writes(B[2:5, 0:4])
                            B[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
            with T.block("B_i2_partition"):
                T.reads()
                T.writes()
                for i2 in range(5, 8):
                    for j in range(4):
                        with T.block("B_i2"):
                            vi = T.axis.spatial((5, 8), i2)
                            vj = T.axis.spatial(4, j)
                            T.reads(A[5:8, 0:4])
                            T.writes(B[5:8, 0:4])
                            B[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
"""
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(want))


@pytest.mark.parametrize("factors", [[1], [3, 3], [None, 1], [1, None, 1], [6]])
@pytest.mark.parametrize("text", [elementwise(7, 4), row_sums(7, 4), FROM_2.replace("(2, 8)", "(1, 8)")])
def test_results_do_not_change(text: str, factors: list[int | None]) -> None:
    sch = schedule(text)
    sch.loop_partition(sch.get_loops("B")[0], factors=factors)
    assert_same_results(mlcc.parse(text), sch.mod)


def test_a_reduction_is_not_started_again() -> None:
    sch = schedule(row_sums(5, 7))
    with refused("E0629", "it is the reduce axis `vj` of block `B`, whose init would run again.*decompose_reduction"):
        sch.loop_partition(sch.get_loops("B")[1], factors=[2])
    block = sch.get_block("B")
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    sch.loop_partition(sch.get_loops(block)[1], factors=[2])
    assert_same_results(mlcc.parse(row_sums(5, 7)), sch.mod)


def test_factors_that_do_not_fit() -> None:
    sch = schedule(elementwise(8, 4))
    i, j = sch.get_loops("B")
    with refused("E0621", r"leave nothing of loop `i` for the last part: 4 \+ 4 = 8, but the extent is 8"):
        sch.loop_partition(i, factors=[4, 4])
    with refused("E0621", "must be positive"):
        sch.loop_partition(i, factors=[0, None])
    with refused("E0621", "would not divide loop"):
        sch.loop_partition(i, factors=[None])
    sch.annotate(j, "key", 1)
    with refused("E0620", "cannot partition loop `j`"):
        sch.loop_partition(j, factors=[1])
    sch = schedule(SYMBOLIC)
    with refused("E0629", "loop `i`: it has the extent `n`, not a number"):
        sch.loop_partition(sch.get_loops("B")[0], factors=[1])


WIDE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 12), "float32"), B: T.Buffer((16, 12), "float32")):
    for i, j in T.grid(16, 12):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[0:16, 0:12])
            T.writes(B[0:16, 0:12])
            B[vi, vj] = A[vi, vj] + T.float32(1)
"""

INSIDE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 12), "float32"), B: T.Buffer((16, 12), "float32")):
    for i, j in T.grid(16, 12):
        with T.sblock("outer"):
            T.reads(A[i, j])
            T.writes(B[i, j])
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] + T.float32(1)
"""


def _part(sch: mlcc.Schedule, name: str) -> list[str]:
    block = sch.get(sch.get_block(name))
    return [str(axis.dom) for axis in block.iter_vars] + [str(r) for r in (*block.reads, *block.writes)]


def test_a_region_that_is_wider_than_the_accesses_becomes_what_they_cover() -> None:
    sch = schedule(WIDE)
    sch.loop_partition(sch.get_loops("B")[1], factors=[5])
    assert _part(sch, "B_j0") == ["T.Range(0, 16)", "T.Range(0, 5)", "A[0:16, 0:5]", "B[0:16, 0:5]"]
    assert _part(sch, "B_j1") == ["T.Range(0, 16)", "T.Range(5, 12)", "A[0:16, 5:12]", "B[0:16, 5:12]"]
    sch.loop_partition(sch.get_loops("B_j1")[0], factors=[3])
    assert _part(sch, "B_j1_j10") == ["T.Range(0, 16)", "T.Range(5, 8)", "A[0:16, 5:8]", "B[0:16, 5:8]"]
    assert_same_results(mlcc.parse(WIDE), sch.mod)


@pytest.mark.parametrize(
    ("load", "region"),
    [
        ("A[vi, vj] + A[vi, 11 - vj]", "A[0:16, 0:12]"),
        ("A[vi, vj] + T.call_extern('float32', 'f', A.data)", "A[0:16, 0:12]"),
        ("A[vi, vj]", "A[0:16, 0:5]"),
    ],
)
def test_a_buffer_that_is_accessed_elsewhere_too_keeps_its_region(load: str, region: str) -> None:
    sch = schedule(WIDE.replace("A[vi, vj]", load))
    sch.loop_partition(sch.get_loops("B")[1], factors=[5])
    assert _part(sch, "B_j0")[2] == region


def test_the_axes_of_a_block_in_a_block_without_axes() -> None:
    sch = schedule(INSIDE)
    sch.loop_partition(sch.get_loops("outer")[0], factors=[3])
    assert _part(sch, "outer_i0") == ["A[i0, j]", "B[i0, j]"]
    assert _part(sch, "B_i0") == ["T.Range(0, 3)", "T.Range(0, 12)", "A[0:3, 0:12]", "B[0:3, 0:12]"]
    assert_same_results(mlcc.parse(INSIDE), sch.mod)


VIEWS = """@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for o in range(8):
        with T.block("C_o"):
            vo = T.axis.remap("S", [o])
            T.reads(A[vo * 8:vo * 8 + 8])
            T.writes(C[vo * 8:vo * 8 + 8])
            X = T.match_buffer(A[vo * 8:vo * 8 + 8], (8,), "float32", strides=["s"], offset_factor=1)
            Y = T.match_buffer(C[vo * 8:vo * 8 + 8], (8,), "float32", offset_factor=1)
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    Y[vi] = X[vi] + T.float32(1)
"""


@pytest.mark.parametrize("text", [VIEWS, VIEWS.replace('strides=["s"], ', "")])
def test_views_of_each_part_have_an_offset_of_their_own(text: str) -> None:
    import numpy as np

    sch = schedule(text)
    sch.loop_partition(sch.get_loops("C_o")[0], factors=[2, None])
    a, c = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    for target in ("llvm", "llvm{cpu=native}"):
        mlcc.load(mlcc.build(sch.mod, target, opt_level=1))["main"](a, c)
        assert np.array_equal(c, a + 1)
        c[:] = 0
