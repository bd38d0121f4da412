"""rfactor."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

ARGMAX = """
@T.prim_func
def main(A: T.Buffer((8, 60), "float32"), P: T.Buffer((8,), "int32"), V: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 60):
        with T.block("arg"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                P[vi] = -1
                V[vi] = T.min_value("float32")
            v0: T.int32 = T.Select(V[vi] >= A[vi, vk], P[vi], vk)
            v1: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
            P[vi] = v0
            V[vi] = v1
"""


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_the_reduction_loop_of_a_matmul(axis: int) -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    partial = sch.rfactor(sch.get_loops(block)[2], axis)
    assert (sch.get(partial).name, sch.get(block).name) == ("C_rf", "C")
    shape = [n.value for n in sch.get(sch.get_block("root")).alloc_buffers[0].shape]
    want = [32, 16]
    want.insert(axis if axis >= 0 else axis + 3, 24)
    assert shape == want
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


@pytest.mark.parametrize("factor", [1, 4, 5, 7, 24, 30])
@pytest.mark.parametrize("inner", [False, True])
def test_a_split_reduction_also_with_a_remainder(factor: int, inner: bool) -> None:
    sch = schedule(MATMUL)
    parts = sch.split(sch.get_loops("C")[2], [None, factor])
    sch.rfactor(parts[inner], 0)
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    mlcc.parse(sch.mod.script())


@pytest.mark.parametrize("factor", [5, 7])
def test_a_guard_of_spatial_loops_stays(factor: int) -> None:
    sch = schedule(MATMUL)
    sch.split(sch.get_loops("C")[0], [None, factor])
    sch.rfactor(sch.get_loops("C")[3], 0)
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    assert sch.mod.script().count("T.where(") == 2


@pytest.mark.parametrize("at", [1, 2])
def test_argmax_is_factored(at: int) -> None:
    sch = schedule(ARGMAX)
    sch.split(sch.get_loops("arg")[1], [None, 8])
    sch.rfactor(sch.get_loops("arg")[at], 1)
    assert_same_results(mlcc.parse(ARGMAX), sch.mod)


def test_illegal_uses_are_refused() -> None:
    sch = schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    with refused("E0665", "legal values: -3 to 2"):
        sch.rfactor(k, 3)
    with refused("E0664", "`j` drives a spatial axis.*loops that drive reduce axes: `k`"):
        sch.rfactor(j, 0)
    fused = sch.fuse(j, k)
    with refused("E0664", "both"):
        sch.rfactor(fused, 0)
    sch = schedule(MATMUL)
    sch.unroll(sch.get_loops("C")[2])
    with refused("E0664", "must be serial.*rfactor first"):
        sch.rfactor(sch.get_loops("C")[2], 0)
    sch = schedule(MATMUL.replace("C[vi, vj] + A", "C[vi, vj] - A"))
    with refused("E0669"):
        sch.rfactor(sch.get_loops("C")[2], 0)
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with refused("E0656", "no init"):
        sch.rfactor(sch.get_loops("C_update")[2], 0)


UNIT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8,), "float32")):
    for i, j, u in T.grid(8, 6, 1):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vj]
"""


def test_a_loop_of_one_iteration_that_drives_nothing() -> None:
    sch = schedule(UNIT)
    sch.rfactor(sch.get_loops("B")[2], factor_axis=0)
    assert str(sch.get(sch.get_block("B_rf")).iter_vars[0].dom) == "T.Range(0, 1)"
    assert_same_results(mlcc.parse(UNIT), sch.mod)
    sch = schedule(UNIT.replace("6, 1)", "6, 2)"))
    with refused("E0664", "drives no reduce axis|repeats block"):
        sch.rfactor(sch.get_loops("B")[2], factor_axis=0)


def test_operands_that_are_assumed_to_be_numbers_stay_so() -> None:
    """A NaN that a maximum may leave out may be left out of the maxima of parts."""
    text = """
@T.prim_func
def main(A: T.Buffer((8, 60), "float32"), B: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 60):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.min_value("float32")
            B[vi] = T.max(B[vi], {})
"""
    for operand, count in (("T.assume_number(A[vi, vk])", 3), ("A[vi, vk]", 0)):
        sch = schedule(text.format(operand))
        sch.pad_reduction(sch.get_loops("B")[1], 16)
        sch.rfactor(sch.split(sch.get_loops("B")[1], [None, 16])[1], 1)
        sch.rfactor(sch.split(sch.get_loops("B")[1], [None, 4])[1], 1)
        assert sch.mod.script().count("T.assume_number") == count
        assert_same_results(mlcc.parse(text.format(operand)), sch.mod)
