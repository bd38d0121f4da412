"""loop_partition."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.nests import FROM_2, SYMBOLIC, elementwise, row_sums
from tests.schedule.tools import assert_same_results, refused, schedule


def test_the_parts() -> None:
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
def test_results_stay(text: str, factors: list[int | None]) -> None:
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
    with refused("E0621", r"leave nothing of loop `i` for the last part: 4 \+ 4 = 8, and the extent is 8"):
        sch.loop_partition(i, factors=[4, 4])
    with refused("E0621", "must be positive"):
        sch.loop_partition(i, factors=[0, None])
    with refused("E0621", "in one part"):
        sch.loop_partition(i, factors=[None])
    sch.annotate(j, "key", 1)
    with refused("E0620", "cannot partition loop `j`"):
        sch.loop_partition(j, factors=[1])
    sch = schedule(SYMBOLIC)
    with refused("E0629", "loop `i`: it has the extent `n`, not a number"):
        sch.loop_partition(sch.get_loops("B")[0], factors=[1])
