"""blockize."""

from __future__ import annotations

import contextlib
import random

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.verify import check
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule

SIDE_BY_SIDE = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i in range(8):
        for j in range(6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)
        for j in range(6):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C[vi, vj] + B[vi, 5 - vj]
"""


def tiled(sch: mlcc.Schedule, size: int = 8) -> list[object]:
    """The loops of the matmul in tiles, outer ones first."""
    outer, inner = zip(*(sch.split(loop, [None, size]) for loop in sch.get_loops("C")), strict=True)
    sch.reorder(*outer, *inner)
    return [*outer, *inner]


def test_the_module_that_comes_out() -> None:
    sch = schedule(MATMUL)
    loops = tiled(sch)
    old = sch.get_block("C")
    made = sch.blockize(loops[3])
    want = """
@T.prim_func
def main(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    for i_0, j_0, k_0 in T.grid(4, 2, 3):
        with T.block("C_o"):
            vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
            T.reads(A[vi_o * 8:vi_o * 8 + 8, vk_o * 8:vk_o * 8 + 8], B[vk_o * 8:vk_o * 8 + 8, vj_o * 8:vj_o * 8 + 8])
            T.writes(C[vi_o * 8:vi_o * 8 + 8, vj_o * 8:vj_o * 8 + 8])
            with T.init():
                for i_1, j_1 in T.grid(8, 8):
                    with T.block("C_init"):
                        vi_i_init, vj_i_init = T.axis.remap("SS", [i_1, j_1])
                        T.reads()
                        T.writes(C[vi_o * 8 + vi_i_init, vj_o * 8 + vj_i_init])
                        C[vi_o * 8 + vi_i_init, vj_o * 8 + vj_i_init] = T.float32(0)
            for i_1, j_1, k_1 in T.grid(8, 8, 8):
                with T.block("C"):
                    vi_i, vj_i, vk_i = T.axis.remap("SSR", [i_1, j_1, k_1])
                    T.reads(C[vi_o * 8 + vi_i, vj_o * 8 + vj_i], A[vi_o * 8 + vi_i, vk_o * 8 + vk_i],
                            B[vk_o * 8 + vk_i, vj_o * 8 + vj_i])
                    T.writes(C[vi_o * 8 + vi_i, vj_o * 8 + vj_i])
                    C[vi_o * 8 + vi_i, vj_o * 8 + vj_i] = (
                        C[vi_o * 8 + vi_i, vj_o * 8 + vj_i] + A[vi_o * 8 + vi_i, vk_o * 8 + vk_i] * B[vk_o * 8 + vk_i, vj_o * 8 + vj_i]
                    )
"""  # noqa: E501
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(want))
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    assert (sch.get(made).name, sch.get(old).name) == ("C_o", "C")
    assert [sch.get(x).var.name for x in sch.get_loops(old)] == ["i_1", "j_1", "k_1"]
    assert [sch.get(x).var.name for x in sch.get_loops(made)] == ["i_0", "j_0", "k_0"]
    assert sch.get(loops[4]).var.name == "j_1"


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("at", range(6))
def test_every_loop_of_a_tiled_matmul_can_be_blockized(at: int, keep: bool) -> None:
    sch = schedule(MATMUL)
    made = sch.blockize(tiled(sch)[at], preserve_unit_iters=keep)
    assert len(sch.get_loops(made)) == at
    assert len(sch.get_loops("C")) == 6 - at
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_blockizing_all_loops_leaves_unit_axes() -> None:
    sch = schedule(CHAIN)
    sch.blockize(sch.get_loops("C")[0])
    assert [tir.const_int(a.dom.extent) for a in sch.get(sch.get_block("C_o")).iter_vars] == [1, 1]
    sch.blockize(sch.get_loops("D")[1])
    assert [a.var.name for a in sch.get(sch.get_block("D")).iter_vars] == ["vj_i"]
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_twice_and_of_what_was_made() -> None:
    sch = schedule(MATMUL)
    loops = tiled(sch)
    inner = sch.blockize(loops[3])
    outer = sch.blockize(loops[1])
    assert [sch.get(b).name for b in (inner, outer)] == ["C_o", "C_o_o"]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_a_condition_stays_on_its_side() -> None:
    sch = schedule(MATMUL)
    i, j, _k = sch.get_loops("C")
    sch.split(i, [None, 5])
    with refused(
        "E0685", "`C` cannot be divided.*`i_0` outside.*from `i_1` on.*where i_0 \\* 5 \\+ i_1 < 32.*split by factors"
    ):
        sch.blockize(sch.get_loops("C")[1])
    sch.blockize(sch.get_loops("C")[2])
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    inner = schedule(MATMUL)
    inner.split(inner.get_loops("C")[2], [None, 5])
    inner.blockize(inner.get_loops("C")[1])
    (lifted,) = inner.get(inner.get_block("C_o")).init  # without the loops over `k`, nor their condition
    assert isinstance(lifted, tir.For) and isinstance(lifted.body[0], tir.BlockRealize)
    assert tir.const_int(lifted.body[0].predicate) == 1
    assert_same_results(mlcc.parse(MATMUL), inner.mod)


def test_axes_that_are_not_affine() -> None:
    text = CHAIN.replace("vi, vj = T.axis.remap", "vi = T.axis.spatial(16, i * 5 % 16)\n"
                         "            vj = T.axis.spatial(12, j)  # ", 2)  # fmt: skip
    sch = schedule(text)
    sch.blockize(sch.get_loops("C")[1])  # each axis has loops of one side only
    assert_same_results(mlcc.parse(text), sch.mod)


def test_more_than_one_block_or_more_than_loops() -> None:
    sch = schedule(SIDE_BY_SIDE)
    with refused("E0655", "`i` must hold exactly one block"):
        sch.blockize(sch.get_loops("B")[0])
    text = CHAIN.replace("    for i, j in T.grid(16, 12):\n        with T.block(\"C\")", (
        "    for i, j in T.grid(16, 12):\n      if i < 20:\n        with T.block(\"C\")"
    ))  # fmt: skip
    sch = schedule(text)
    with refused("E0685", "`i` and block `C` there are statements other than loops"):
        sch.blockize(sch.get_loops("C")[0])


def test_lists_of_blocks_become_one() -> None:
    sch = schedule(SIDE_BY_SIDE)
    made = sch.blockize([sch.get_block("B"), "C"])
    block = sch.get(made)
    assert block.name == "outer_B_C_"
    assert [tir.const_int(a.dom.extent) for a in block.iter_vars] == [8, 1]
    assert {r.buffer.name for r in block.reads} == {"A", "B"}
    assert {r.buffer.name for r in block.writes} == {"B", "C"}
    assert [sch.get(b).name for b in sch.get_child_blocks(made)] == ["B", "C"]
    assert_same_results(mlcc.parse(SIDE_BY_SIDE), sch.mod)
    other = schedule(SIDE_BY_SIDE)
    other.blockize(["B", "C", "D"], preserve_unit_iters=False)
    assert_same_results(mlcc.parse(SIDE_BY_SIDE), other.mod)


def test_a_list_of_whole_nests() -> None:
    sch = schedule(CHAIN)
    made = sch.blockize(["B", "C"])
    assert not sch.get_loops(made)
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_lists_that_make_no_block() -> None:
    sch = schedule(SIDE_BY_SIDE)
    for blocks, words in (
        (["C", "B"], "in this order"), (["B", "D"], "are not adjacent"), (["B", "B"], "several adjacent blocks"),
        (["B"], r"sch.blockize\(loop\)"), ([], "empty"),
    ):  # fmt: skip
        with refused("E0686", words):
            sch.blockize(blocks)
    mixed = SIDE_BY_SIDE.replace("vi, vj = T.axis.remap(\"SS\", [i, j])\n                C[vi, vj] = B", (
        "vi = T.axis.spatial(8, 7 - i)\n                vj = T.axis.spatial(6, j)\n                C[vi, vj] = B"
    ))  # fmt: skip
    sch = schedule(mixed)
    with refused("E0686", "`B` and `C` are not bound in the same way"):
        sch.blockize(["B", "C"])
    sch = schedule(MATMUL)
    with refused("E0613", "a loop or a list of blocks"):
        sch.blockize("C")
    with refused("E0655", "root"):
        sch.blockize(["root", "C"])


def test_a_reduction_in_a_list() -> None:
    text = (
        MATMUL
        + """
    for i, j in T.grid(32, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = C[vi, vj]
"""
    )
    sch = schedule(text)
    with refused("E0686", "`C` is a reduction with an init.*decompose_reduction"):
        sch.blockize(["C", "D"])
    init = sch.decompose_reduction("C", sch.get_loops("C")[0])
    with refused("E0686", "`C_init` and `C_update` are not bound in the same way"):
        sch.blockize([init, "C_update", "D"])
    sch.blockize(["C_update", "D"])
    assert_same_results(mlcc.parse(text), sch.mod)


def test_it_is_recorded() -> None:
    sch = schedule(MATMUL)
    sch.blockize(tiled(sch)[3])
    assert "b10 = sch.blockize(target=l5, preserve_unit_iters=True)" in str(sch.trace)
    again = schedule(MATMUL)
    sch.trace.apply_to_schedule(again)
    mlcc.assert_structural_equal(sch.mod, again.mod)


def test_what_comes_out_compiles() -> None:
    import numpy as np

    sch = schedule(MATMUL)
    loops = tiled(sch)
    block = sch.blockize(loops[3])
    sch.decompose_reduction(block, loops[2])
    a, b = np.ones((32, 24), np.float32), np.arange(24 * 16, dtype=np.float32).reshape(24, 16)
    c = np.zeros((32, 16), np.float32)
    mlcc.load(mlcc.build(sch.mod))["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b)


def test_an_init_that_reads() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), bias: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 6):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = bias[vi]
            C[vi] = C[vi] + A[vi, vk]
"""
    sch = mlcc.Schedule(mlcc.parse(text))
    sch.blockize(sch.get_loops("C")[0])
    mlcc.build(sch.mod)


def test_a_bound_of_one_loop_stays() -> None:
    """The division takes the loop to be shorter than it is, so its condition has to be said again."""
    sch = schedule(CHAIN)
    i, j = sch.get_loops("C")
    sch.fuse(*sch.split(j, [None, 5]))  # 15 iterations for 12
    for at in (1, 0):
        sch.blockize(sch.get_loops("C")[at] if at else sch.get_loops("C_o")[0])
        assert_same_results(mlcc.parse(CHAIN), sch.mod)
    assert sch.get(i).var.name == "i"


def test_values_in_another_order_keep_results() -> None:
    """`i * 3 + j` where `j < 3` may become `i * 4 + j` where that is less than 12: the old bound is then wrong."""
    sch = schedule(CHAIN)
    i, j = sch.get_loops("C")
    sch.reorder(j, i)
    outer, inner = sch.split(i, [None, 5], preserve_unit_iters=False)
    sch.split(inner, [None, 4])
    sch.blockize(outer, preserve_unit_iters=False)
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_a_condition_on_a_block_without_axes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((3,), "float32")):
    for i in range(1):
        with T.block("A"):
            T.reads(A[0:3])
            T.writes(A[0:3])
            for j in range(3):
                A[j] = A[j] * T.float32(2)
"""
    sch = schedule(text)
    sch.split(sch.get_loops("A")[0], [None, 4])
    with refused("E0685", "where i_0 \\* 4 \\+ i_1 < 1"):
        sch.blockize(sch.get_loops("A")[0])


SMALL = """
@T.prim_func
def main(A: T.Buffer((6, 5), "float32"), B: T.Buffer((5, 4), "float32"), C: T.Buffer((6, 4), "float32")):
    for i, j, k in T.grid(6, 4, 5):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


@pytest.mark.parametrize("seed", range(30))
def test_random_loops_keep_results(seed: int) -> None:
    """However the loops are split, fused and ordered: what is not refused computes the same."""
    rng = random.Random(seed)
    sch = schedule(SMALL)
    for _ in range(rng.randint(1, 5)):
        loops = sch.get_loops("C")
        at, keep = rng.randrange(len(loops)), rng.random() < 0.5
        step = rng.choice(["split", "split", "fuse", "reorder", "blockize"])
        try:
            if step == "split":
                factors = rng.choice([[None, 2], [None, 3], [None, 4], [2, None], [None, 2, 2]])
                sch.split(loops[at], factors, preserve_unit_iters=keep)
            elif step == "fuse" and at:
                sch.fuse(loops[at - 1], loops[at], preserve_unit_iters=keep)
            elif step == "reorder":
                sch.reorder(*rng.sample(loops, len(loops)))
            elif step == "blockize":
                sch.blockize(loops[at], preserve_unit_iters=keep)
        except mlcc.CompileError:
            continue
    with contextlib.suppress(mlcc.CompileError):
        sch.blockize(rng.choice(sch.get_loops("C")), preserve_unit_iters=seed % 2 == 0)
    check(sch.mod)
    assert_same_results(mlcc.parse(SMALL), sch.mod)


def test_ranges_of_inner_loops_name_the_axes_of_the_outer_block() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.reduce(8, j)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vj]
"""
    sch = schedule(text)
    sch.blockize(sch.get_loops("B")[1])
    assert "for j in range(vi_o + 1):" in sch.mod.script()
    check(sch.mod)
    assert_same_results(mlcc.parse(text), sch.mod)
    sch = schedule(text)
    sch.split(sch.get_loops("B")[0], [2, 4])
    with refused("E0685", "range of loop `j` depends on loop `i_0`, which is not an axis"):
        sch.blockize(sch.get_loops("B")[2])


def test_loops_around_the_enclosing_block_may_not_drive_inner_axes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((14, 3), "float32"), C: T.Buffer((14, 3), "float32")):
    for i, j in T.grid(14, 3):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.float32(2)
"""
    sch = schedule(text)
    _, inner = sch.split(sch.get_loops("C")[0], [2, 7])
    parts = sch.loop_partition(inner, [None, 3])
    with refused("E0685", "loop `i_0` around block `C_i_11_partition` drives the inner axes of block `C_i_11`"):
        sch.blockize(parts[1])


def test_loops_around_the_enclosing_block_drive_outer_axes_by_an_expression() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((7, 9), "float32"), C: T.Buffer((7, 9), "float32")):
    for i, j in T.grid(7, 9):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.float32(2)
"""
    sch = schedule(text)
    sch.split(sch.get_loops("C")[0], [7, None])
    parts = sch.loop_partition(sch.get_loops("C")[2], [None, 4, 3])
    outer = sch.blockize(parts[1])
    assert [str(axis.dom.extent) for axis in sch.get(outer).iter_vars] == ["7", "1"]
    assert_same_results(mlcc.parse(text), sch.mod)
