"""split."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mlcc
from mlcc.interp.prim_func import run_prim_func
from tests.schedule.nests import FROM_2, SYMBOLIC, elementwise, row_sums
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule


def test_a_factor_that_does_not_divide() -> None:
    sch = schedule(elementwise(10, 4))
    outer, inner = sch.split(sch.get_loops("B")[0], factors=[None, 4])
    assert [loop.var.name for loop in map(sch.get, sch.get_loops("B"))] == ["i_0", "i_1", "j"]
    assert (sch.get(outer).extent.value, sch.get(inner).extent.value) == (3, 4)
    want = """
@T.prim_func
def main(A: T.Buffer((10, 4), "float32"), B: T.Buffer((10, 4), "float32")):
    for i_0, i_1, j in T.grid(3, 4, 4):
        with T.block("B"):
            vi = T.axis.spatial(10, i_0 * 4 + i_1)
            vj = T.axis.spatial(4, j)
            T.where(i_0 * 4 + i_1 < 10)
            B[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
"""
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(want))


def test_predicates_are_combined() -> None:
    sch = schedule(elementwise(10, 7))
    sch.split(sch.get_loops("B")[0], factors=[None, 4])
    sch.split(sch.get_loops("B")[2], factors=[2, None])
    assert "T.where(i_0 * 4 + i_1 < 10 and j_0 * 4 + j_1 < 7)" in sch.mod.script()


@pytest.mark.parametrize("preserve", [True, False])
def test_unit_loops_are_kept_on_demand(preserve: bool) -> None:
    sch = schedule(elementwise(4, 4))
    sch.split(sch.get_loops("B")[0], factors=[1, None], preserve_unit_iters=preserve)
    assert ("i_0 * 4 + i_1" in sch.mod.script()) == preserve


@pytest.mark.parametrize("extent", [0, 1, 2, 7, 12, 13])
def test_results_do_not_change(extent: int) -> None:
    text = elementwise(extent, 3)
    for factors in itertools.chain([[None, 4], [4, None], [2, None, 3], [None], [16], [4, 4]]):
        sch = schedule(text)
        sch.split(sch.get_loops("B")[0], factors=factors)
        assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("axis", [0, 1])
def test_split_reductions_keep_results(axis: int) -> None:
    text = row_sums(5, 7)
    sch = schedule(text)
    sch.split(sch.get_loops("B")[axis], factors=[None, 3])
    assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("n", [0, 1, 3, 8, 11])
def test_symbolic_extents_are_split(n: int) -> None:
    sch = schedule(SYMBOLIC)
    sch.split(sch.get_loops("B")[0], factors=[None, 4])
    assert "for i_0, i_1 in T.grid((n + 3) // 4, 4)" in sch.mod.script()
    a, b = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    run_prim_func(sch.mod["main"], [a, b])
    np.testing.assert_array_equal(b, a + 1)


def test_no_predicate_where_a_symbolic_extent_is_a_multiple() -> None:
    text = (
        SYMBOLIC.replace("(n,)", "(n * 4,)").replace("range(n)", "range(n * 4)").replace("spatial(n", "spatial(n * 4")
    )
    sch = schedule(text)
    sch.split(sch.get_loops("B")[0], factors=[None, 4])
    assert "T.where" not in sch.mod.script()
    assert "T.grid(n, 4)" in sch.mod.script()


def test_factors_that_do_not_fit() -> None:
    sch = schedule(MATMUL)
    loop = sch.get_loops("C")[0]
    with refused("E0621", r"do not reach the extent of loop `i`: 4 \* 7 = 28, less than 32.*factors=\[None, 7\]"):
        sch.split(loop, factors=[4, 7])
    with refused("E0621", "2 factors for loop `i` are None"):
        sch.split(loop, factors=[None, None])
    with refused("E0621", "factor 1 for loop `i` must be positive, not 0"):
        sch.split(loop, factors=[None, 0])
    with refused("E0621", "use None for a factor"):
        sch.split(loop, factors=[-1, 4])
    with refused("E0621", "there are no factors"):
        sch.split(loop, factors=[])
    sch = schedule(SYMBOLIC)
    with refused("E0621", r"reaches the extent `n` of loop `i`.*factors=\[None, 8\]"):
        sch.split(sch.get_loops("B")[0], factors=[8, 8])


def test_disable_predication_adds_no_condition() -> None:
    sch = schedule(SYMBOLIC)
    sch.split(sch.get_loops("B")[0], factors=[None, 4], disable_predication=True)
    assert "T.where" not in sch.mod.script()
    sch = schedule(elementwise(10))
    with refused("E0621", "exceed the extent 10 of loop `i`"):
        sch.split(sch.get_loops("B")[0], factors=[None, 4], disable_predication=True)
    sch.split(sch.get_loops("B")[0], factors=[None, 5], disable_predication=True)


def test_loops_that_cannot_be_split() -> None:
    sch = schedule(elementwise(8, 4))
    i, j = sch.get_loops("B")
    sch.annotate(i, "pragma", 1)
    with refused("E0620", 'cannot split loop `i`: it is annotated with "pragma".*unannotate'):
        sch.split(i, factors=[None, 2])
    sch.bind(j, "threadIdx.x")
    with refused("E0620", "it is bound to `threadIdx.x`"):
        sch.split(j, factors=[None, 2])
    sch = schedule(FROM_2)
    with refused("E0639", "starts at 2"):
        sch.split(sch.get_loops("B")[0], factors=[None, 2])


def test_handles_of_split_loops_are_replaced() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    made = sch.split(i, factors=[None, 4])
    assert sch.get_loops(block)[:2] != made  # new handles of the same loops
    assert [sch.get(x) for x in sch.get_loops(block)] == [sch.get(x) for x in (*made, j, k)]
    with refused("E0611", "`split` replaced it"):
        sch.get(i)
