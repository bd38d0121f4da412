"""reorder, reorder_block_iter_var and add_unit_loop."""

from __future__ import annotations

import itertools

import pytest

import mlcc
from tests.schedule.nests import BRANCHES, TRIANGLE, elementwise, row_sums
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

RUNNING = """
@T.prim_func
def main(A: T.Buffer((6, 5), "float32"), B: T.Buffer((6, 5), "float32")):
    for i, j in T.grid(6, 5):
        with T.block("B"):
            vi = T.axis.spatial(6, i)
            vj = T.axis.spatial(5, j)
            B[vi, vj] = T.if_then_else({guard}, B[{place}], T.float32(0)) + A[vi, vj]
"""

STENCIL = """
@T.prim_func
def main(A: T.Buffer((10, 10), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((10, 10))
    for i, j in T.grid(8, 8):
        for di, dj in T.grid(3, 3):
            with T.block("B"):
                vi = T.axis.spatial(10, i + di)
                vj = T.axis.spatial(10, j + dj)
                B[vi, vj] = A[vi, vj] + T.float32(1)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 2, vj + 2]
"""


def names(sch: mlcc.Schedule, block: str) -> list[str]:
    return [sch.get(loop).var.name for loop in sch.get_loops(block)]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_all_orders_of_a_matmul(order: tuple[int, ...]) -> None:
    sch = schedule(MATMUL)
    loops = sch.get_loops("C")
    sch.reorder(*(loops[n] for n in order))
    assert names(sch, "C") == ["ijk"[n] for n in order]
    assert [sch.get(x).var.name for x in loops] == ["i", "j", "k"]  # the handles live on
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_loops_that_are_not_named_stay() -> None:
    sch = schedule(MATMUL)
    i, _, k = sch.get_loops("C")
    sch.reorder(k, i)
    assert names(sch, "C") == ["k", "j", "i"]
    sch.reorder(i)
    assert names(sch, "C") == ["k", "j", "i"]


def test_kinds_and_annotations_go_along() -> None:
    sch = schedule(elementwise(4, 8))
    i, j = sch.get_loops("B")
    sch.vectorize(j)
    sch.annotate(i, "key", 1)
    sch.reorder(j, i)
    assert (sch.get(j).kind.value, dict(sch.get(i).annotations)) == ("vectorized", {"key": 1})


def test_a_tile_with_a_predicate() -> None:
    text = row_sums(5, 7)
    sch = schedule(text)
    i, j = sch.get_loops("B")
    (i0, i1), (j0, j1) = sch.split(i, [None, 2]), sch.split(j, [None, 4])
    sch.reorder(j0, i0, j1, i1)
    sch.reorder(i0, j0, i1, j1)
    assert_same_results(mlcc.parse(text), sch.mod)


def test_loops_must_form_a_chain() -> None:
    sch = schedule(MATMUL)
    i, j, _ = sch.get_loops("C")
    with refused("E0624", "loop `i` is given twice"):
        sch.reorder(i, j, i)
    sch = schedule(BRANCHES)
    i, j = sch.get_loops("B")
    with refused("E0625", "loop `j` is not the only statement in loop `i`"):
        sch.reorder(j, i)
    with refused("E0625", "`k`.*not in one chain: the nest branches below loop `i`|`j` and `k`"):
        sch.reorder(j, sch.get_loops("C")[1])
    i0, i1 = sch.split(i, factors=[2, 4])
    with refused("E0625", r"can be exchanged: \(i_0, i_1\)"):
        sch.reorder(j, i1, i0)


def test_a_range_that_depends_on_a_loop() -> None:
    sch = schedule(TRIANGLE)
    with refused("E0638|E0623"):
        sch.reorder(*reversed(sch.get_loops("B")))


@pytest.mark.parametrize("kind", ["opaque", "scan"])
def test_a_block_with_an_order(kind: str) -> None:
    axes = f"vi = T.axis.{kind}(4, i)\n            vj = T.axis.spatial(4, j)"
    sch = schedule(elementwise(4, 4).replace('vi, vj = T.axis.remap("SS", [i, j])', axes))
    word = {"scan": "ordered"}.get(kind, kind)
    with refused("E0626", f"runs in a fixed order: its axis `vi` is {word}, not spatial or reduce"):
        sch.reorder(*reversed(sch.get_loops("B")))


@pytest.mark.parametrize("guard, place, legal", [
    ("0 < vj", "vi, vj - 1", True), ("0 < vi and 0 < vj", "vi - 1, vj - 1", True),
    ("0 < vi and vj < 4", "vi - 1, vj + 1", False), ("vi < 3 and vj < 2", "vi * 2, vj * 2", False),
])  # fmt: skip
def test_iterations_that_need_one_another(guard: str, place: str, legal: bool) -> None:
    text = RUNNING.format(guard=guard, place=place)
    sch = schedule(text)
    if legal:
        sch.reorder(*reversed(sch.get_loops("B")))
        assert_same_results(mlcc.parse(text), sch.mod)
    else:
        with refused("E0633", "block `B` writes elements of `B` that it reads in other iterations"):
            sch.reorder(*reversed(sch.get_loops("B")))


def test_a_producer_that_computes_again_what_is_needed() -> None:
    sch = schedule(STENCIL)
    sch.reorder(*reversed(sch.get_loops("C")))
    assert_same_results(mlcc.parse(STENCIL), sch.mod)


# ---------------------------------------------------------------- axes and unit loops


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_reorder_block_iter_var_keeps_results(order: tuple[int, ...]) -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    sch.reorder_block_iter_var(block, list(order))
    assert [axis.var.name for axis in sch.get(block).iter_vars] == [("vi", "vj", "vk")[n] for n in order]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [-1, 0, 1], []])
def test_orders_that_are_none(order: list[int]) -> None:
    sch = schedule(MATMUL)
    with refused("E0631", "is not a permutation of the 3 axes of block `C`.*0 is `vi`, 1 is `vj`, 2 is `vk`"):
        sch.reorder_block_iter_var("C", order)


def test_add_unit_loop_adds_a_loop() -> None:
    sch = schedule(elementwise(4, 8))
    block = sch.get_block("B")
    inner = sch.add_unit_loop(block)
    outer = sch.add_unit_loop(sch.get_loops(block)[0])
    assert names(sch, "B") == ["u", "i", "j", "u"]
    assert sch.get(inner) is not sch.get(outer)
    assert_same_results(mlcc.parse(elementwise(4, 8)), sch.mod)
    with refused("E0632", "a loop cannot be added around the root block"):
        sch.add_unit_loop(sch.get_block("root"))
