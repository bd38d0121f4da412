"""fuse and merge."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.verify import verify
from tests.schedule.nests import BRANCHES, FROM_2, TRIANGLE, elementwise, row_sums, two_nests
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule


def test_two_loops_become_one() -> None:
    sch = schedule(elementwise(10, 7, 3))
    i, j, _ = sch.get_loops("B")
    fused = sch.fuse(i, j)
    assert sch.get(fused).var.name == "i_j_fused"
    want = """
@T.prim_func
def main(A: T.Buffer((10, 7, 3), "float32"), B: T.Buffer((10, 7, 3), "float32")):
    for f, k in T.grid(70, 3):
        with T.block("B"):
            vi = T.axis.spatial(10, f // 7)
            vj = T.axis.spatial(7, f % 7)
            vk = T.axis.spatial(3, k)
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2) + T.float32(1)
"""
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(want))


@pytest.mark.parametrize("extents", [(1, 5, 1), (7, 1, 2), (0, 3, 2), (2, 3, 5)])
def test_results_do_not_change(extents: tuple[int, ...]) -> None:
    text = elementwise(*extents)
    for first, last in ((0, 1), (0, 2), (0, 3), (1, 3)):
        sch = schedule(text)
        sch.fuse(*sch.get_loops("B")[first:last])
        assert_same_results(mlcc.parse(text), sch.mod)


def test_spatial_and_reduce_loops_together() -> None:
    text = row_sums(5, 7)
    sch = schedule(text)
    sch.fuse(*sch.get_loops("B"))
    assert_same_results(mlcc.parse(text), sch.mod)


def test_split_and_fuse_are_inverse() -> None:
    sch = schedule(elementwise(12, 4))
    sch.fuse(*sch.split(sch.get_loops("B")[0], factors=[3, 4]))
    assert 'remap("SS", [i_0_i_1_fused, j])' in sch.mod.script()


def test_loops_that_cannot_be_fused() -> None:
    sch = schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    with refused("E0622", "loop `k` is not directly inside `i`: `j` is between them"):
        sch.fuse(i, k)
    with refused("E0622", "loop `j` is inside `i`.*from the outermost"):
        sch.fuse(j, i)
    with refused("E0622", "loop `i` is given twice"):
        sch.fuse(i, i)
    with refused("E0622", "at least one"):
        sch.fuse()
    sch = schedule(BRANCHES)
    i, j = sch.get_loops("B")
    with refused("E0622", "loop `j` is not the only statement in loop `i`"):
        sch.fuse(i, j)
    with refused("E0622", "loop `k` is not inside loop `j`"):
        sch.fuse(j, sch.get_loops("C")[1])
    sch = schedule(TRIANGLE)
    with refused("E0623", r"the extent `i \+ 1` of loop `j` depends on loop `i`"):
        sch.fuse(*sch.get_loops("B"))
    sch = schedule(FROM_2)
    with refused("E0639"):
        sch.fuse(*sch.get_loops("B"))


def test_loops_of_two_functions_are_refused() -> None:
    one = elementwise(4, 4).strip()
    other = one.replace("def main", "def other").replace("\n", "\n    ")
    text = f"@I.ir_module\nclass Module:\n    {one.replace(chr(10), chr(10) + '    ')}\n    {other}"
    sch = schedule(text)
    loops = [sch.get_loops(sch.get_block("B", name))[0] for name in ("main", "other")]
    for name in ("fuse", "merge", "reorder"):
        with refused("E0622", "different functions: `main`, `other`"):
            getattr(sch, name)(*loops)


# ---------------------------------------------------------------- merge


@pytest.mark.parametrize("value", ["A[vi, vj]", "B[vi, vj]", "A[vi, vj] + B[vi, vj]"])
@pytest.mark.parametrize("depth", [0, 1])
def test_merged_loops_keep_results(value: str, depth: int) -> None:
    text = two_nests(value)
    sch = schedule(text)
    merged = sch.merge(sch.get_loops("B")[depth], sch.get_loops("C")[depth])
    assert sch.get(merged).var.name == ("i_m", "j_m")[depth]
    assert sch.get_loops("B")[0] is not None and sch.get(sch.get_loops("C")[0]).var.name == "i_m"
    assert_same_results(mlcc.parse(text), sch.mod)


def test_merge_of_a_nest_with_what_it_needs_from_other_iterations() -> None:
    for value in ("B[vi, 5 - vj]", "B[7 - vi, vj]", "B[vi, (vj + 1) % 6]"):
        sch = schedule(two_nests(value))
        with refused("E0633", "block `B` writes elements of `B` that block `C` reads in other iterations"):
            sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1])
    earlier = "T.if_then_else(0 < vi, B[vi - 1, vj], T.float32(0))"
    sch = schedule(two_nests(earlier))
    sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    assert_same_results(mlcc.parse(two_nests(earlier)), sch.mod)
    later = schedule(two_nests("T.if_then_else(vi < 7, B[vi + 1, vj], T.float32(0))"))
    with refused("E0633"):
        later.merge(later.get_loops("B")[0], later.get_loops("C")[0])


def test_merge_in_the_other_order() -> None:
    sch = schedule(two_nests("A[vi, vj]"))
    sch.merge(sch.get_loops("C")[1], sch.get_loops("B")[1])
    assert_same_results(mlcc.parse(two_nests("A[vi, vj]")), sch.mod)
    sch = schedule(two_nests("B[vi, vj]"))
    with refused("E0633"):
        sch.merge(sch.get_loops("C")[1], sch.get_loops("B")[1])


def test_merge_does_not_carry_a_nest_past_its_reader() -> None:
    four = 'C: T.Buffer((8, 6), "float32"), D: T.Buffer((8, 6), "float32")'
    text = two_nests("B[vi, vj]").replace('C: T.Buffer((8, 6), "float32")', four)
    text += """    for m, n in T.grid(8, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [m, n])
            D[vi, vj] = A[vi, vj]
"""  # fmt: skip
    sch = schedule(text)
    with refused("E0633", "loop `i` cannot be moved past a statement that also accesses `B`"):
        sch.merge(sch.get_loops("B")[1], sch.get_loops("D")[1])
    sch.merge(*(sch.get_loops(name)[1] for name in "BCD"))
    assert_same_results(mlcc.parse(text), sch.mod)


def test_nests_that_do_not_match() -> None:
    sch = schedule(two_nests("A[vi, vj]"))
    (i, j), (k, _) = sch.get_loops("B"), sch.get_loops("C")
    with refused("E0630", r"different depth: \(i, j\) and \(k\)"):
        sch.merge(j, k)
    with refused("E0630", "loop `i` holds loop `j`"):
        sch.merge(i, j)
    with refused("E0630", "loop `i` is given twice"):
        sch.merge(i, i)
    with refused("E0630", "at least two"):
        sch.merge(i)
    sch.reorder(i, j)
    sch.split(i, factors=[2, 4])
    with refused("E0630", "loop `i_0` has the extent 2, loop `k` 8"):
        sch.merge(sch.get_loops("B")[0], k)


def test_names_do_not_grow_with_every_step() -> None:
    sch = schedule(MATMUL)
    loop = sch.get_loops("C")[0]
    for _ in range(100):
        loop = sch.fuse(*sch.split(loop, [None, 2]))
    assert len(sch.get(loop).var.name) < 100


@pytest.mark.parametrize("extents", [(0, 4), (4, 0), (3, 0, 4), (0, 0, 2)])
def test_loops_that_never_run(extents: tuple[int, ...]) -> None:
    sch = schedule(elementwise(*extents))
    fused = sch.fuse(*sch.get_loops("B"))
    assert sch.get(fused).extent.value == 0
    assert verify(sch.mod) == []
