"""transform_layout, set_axis_separator, transform_block_layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.verify import verify
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


def shape(sch: mlcc.Schedule, n: int = 0) -> list[int]:
    return [s.value for s in sch.get(sch.get_block("root")).alloc_buffers[n].shape]


@pytest.mark.parametrize(
    ("index_map", "new"),
    [
        (lambda i, j: (j, i), [12, 16]),
        (lambda i, j: [i * 12 + j], [192]),
        (lambda i, j: (i // 4, j // 3, i % 4, j % 3), [4, 4, 4, 3]),
        (lambda *i: i[::-1], [12, 16]),
        (lambda i, j: (i, 0, j), [16, 1, 12]),
    ],
)
@pytest.mark.parametrize(("block", "buffer"), [("B", ("write", 0)), ("C", ("read", 0)), ("D", "B")])
def test_intermediate_buffers_change_their_layout(
    index_map: Callable[..., Any], new: list[int], block: str, buffer: Any
) -> None:
    sch = schedule(CHAIN)
    handle = sch.get_block("C")
    sch.transform_layout(block, buffer, index_map)
    assert shape(sch) == new
    assert sch.get(handle).name == "C"
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    mlcc.assert_structural_equal(mlcc.apply_schedule(mlcc.parse(CHAIN), str(sch.trace)), sch.mod)


@pytest.mark.parametrize("pad", [0.0, 2, lambda *i: 1.5])
@pytest.mark.parametrize("index_map", [lambda i, j: (i // 5, j, i % 5), lambda i, j: (j // 8, i, j % 8)])
@pytest.mark.parametrize("split", [False, True])
def test_padding_needs_a_value(pad: Any, index_map: Callable[..., Any], split: bool) -> None:
    sch = schedule(CHAIN)
    if split:
        sch.split(sch.get_loops("B")[0], [None, 4])
    with refused("E0671", "get no element.*set `pad_value=`"):
        sch.transform_layout("B", ("write", 0), index_map)
    sch.transform_layout("B", ("write", 0), index_map, pad_value=pad)
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    text = sch.mod.script()
    assert ("buffer_B_padding" in text) == split and ("if_then_else" in text) != split
    mlcc.build(sch.mod)


def test_parameters_change_their_layout() -> None:
    sch = schedule(CHAIN)
    sch.transform_layout("B", ("read", 0), lambda i, j: (j // 5, i, j % 5), pad_value=1.0)
    assert [n.value for n in sch.mod["main"].buffers[0].shape] == [3, 16, 5]
    assert "T.assume(" in sch.mod.script()
    mlcc.build(sch.mod)


def test_a_layout_from_a_script() -> None:
    text = 'def schedule(sch):\n    sch.transform_layout("B", ("write", 0), lambda i, j: (j // 4, i, j % 4))\n'
    made = mlcc.apply_schedule(mlcc.parse(CHAIN), text)
    assert_same_results(mlcc.parse(CHAIN), made)
    assert "T.alloc_buffer((3, 16, 4)" in made.script()


@pytest.mark.parametrize(
    ("index_map", "code"),
    [
        (lambda i, j: (i + j,), "E0670"),
        (lambda i, j: (i,), "E0670"),
        (lambda i, j: (i // 2, j), "E0670"),
        (lambda i: (i,), "E0613"),
        (lambda i, j: ("a", j), "E0613"),
        (3, "E0613"),
    ],
)
def test_maps_that_do_not_go(index_map: Any, code: str) -> None:
    with refused(code):
        schedule(CHAIN).transform_layout("B", ("write", 0), index_map)


def test_axis_separators_are_stored() -> None:
    sch = schedule(CHAIN)
    sch.set_axis_separator("B", ("write", 0), [1])
    assert sch.get(sch.get_block("root")).alloc_buffers[0].axis_separators == (1,)
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    with refused("E0670", "do not divide them in order"):
        sch.set_axis_separator("B", ("write", 0), [3])


@pytest.mark.parametrize(
    ("index_map", "extents"),
    [
        (lambda i, j, k: (i * 16 + j, k), [512, 24]),
        (lambda i, j, k: (k, j, i), [24, 16, 32]),
        (lambda i, j, k: (i // 8, j, k // 6, k % 6, i % 8), [4, 16, 4, 6, 8]),
    ],
)
def test_blocks_change_their_axes(index_map: Callable[..., Any], extents: list[int]) -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    sch.transform_block_layout(block, index_map)
    assert [sch.get(loop).extent.value for loop in sch.get_loops(block)] == extents
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    mlcc.assert_structural_equal(mlcc.apply_schedule(mlcc.parse(MATMUL), str(sch.trace)), sch.mod)


def test_axes_that_cannot_be() -> None:
    sch = schedule(MATMUL)
    with refused("E0678", "combine spatial and reduce axes"):
        sch.transform_block_layout("C", lambda i, j, k: (i, j * 24 + k))
    with refused("E0677", "not one-to-one"):
        sch.transform_block_layout("C", lambda i, j, k: (i // 5, i % 5, j, k))
    sch.split(sch.get_loops("C")[0], [None, 4])
    with refused("E0638", "must be the loops above"):
        sch.transform_block_layout("C", lambda i, j, k: (j, i, k))


def test_blocks_under_a_condition_change_their_axes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(i < 5)
            B[vi, vj] = A[vi, vj]
"""
    sch = schedule(text)
    sch.transform_block_layout("B", lambda i, j: (j, i))
    assert "T.where(ax1 < 5)" in sch.mod.script()
    assert_same_results(mlcc.parse(text), sch.mod)


def test_iterations_that_need_each_other_keep_their_order() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.if_then_else(vi > 0, B[T.max(vi - 1, 0)], T.float32(0)) + A[vi]
"""
    with refused("E0633", "writes elements of `B` that it reads in other iterations"):
        schedule(text).transform_block_layout("B", lambda i: (i % 4, i // 4))
    sch = schedule(text)
    sch.transform_block_layout("B", lambda i: (i // 4, i % 4))
    assert_same_results(mlcc.parse(text), sch.mod)


def test_other_axes_for_the_root_block() -> None:
    with refused("E0655", "root block"):
        schedule(CHAIN).transform_block_layout("root", lambda *i: i)


def test_a_padding_function_of_another_number_of_indices() -> None:
    with refused("E0671", "function of 3 indices"):
        schedule(CHAIN).transform_layout("B", "B", lambda i, j: (i // 5, j, i % 5), pad_value=lambda i: 0.0)


def test_empty_buffers_change_their_layout() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((0, 4), "float32"), B: T.Buffer((0, 4), "float32")):
    for i, j in T.grid(0, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    sch = schedule(text)
    sch.transform_layout("B", "B", lambda i, j: i * 16 + j, assume_injective_transform=True)
    assert [n.value for n in sch.mod["main"].buffers[1].shape] == [0]
    sch.fuse(*sch.get_loops("B"))
    assert verify(sch.mod) == []


OPAQUE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((14, 32), "int32"), D: T.Buffer((14,), "int32")):
    B = T.sblock_alloc_buffer((14,), "int32")
    for i in range(14):
        B[i] = 0
        for k in range(32):
            with T.sblock("sum"):
                T.reads(B[i], A[i, k])
                T.writes(B[i])
                B[i] = B[i] + A[i, k]
    for i in range(14):
        with T.sblock("D"):
            vi = T.axis.spatial(14, i)
            D[vi] = B[vi] + 1
"""


def test_loops_of_a_block_without_axes_run_over_padding_too() -> None:
    sch = schedule(OPAQUE)
    sch.transform_layout("sum", ("write", 0), lambda i: (i // 4, i % 4), pad_value=7)
    text = mlcc.script(sch.mod)
    assert "B[axis0, axis1] = T.if_then_else(axis0 == 3 and 2 <= axis1, 7, 0)" in text
    assert "T.reads(B[axis0, axis1], A[axis0 * 4 + axis1, k])" in text
    assert "buffer_B_padding" not in text
    assert [tir.const_int(loop.extent) for loop in map(sch.get, sch.get_loops("sum"))] == [4, 4, 32]
    assert_same_results(mlcc.parse(OPAQUE), sch.mod)


def test_loops_that_do_more_than_write_a_buffer_stay() -> None:
    text = OPAQUE.replace("        B[i] = 0\n", "        B[i] = 0\n        D[i] = 3\n")
    assert "D[i] = 3" in text
    sch = schedule(text)
    sch.transform_layout("sum", ("write", 0), lambda i: (i // 4, i % 4), pad_value=7)
    assert "buffer_B_padding" in mlcc.script(sch.mod)
    assert_same_results(mlcc.parse(text), sch.mod)


ROW_SUMS = """
@T.prim_func
def main(a: T.handle, x: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    X = T.match_buffer(x, (WIDTH,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vj] * X[0]
"""


def test_a_size_known_from_one_parameter_alone_stays_in_its_shape() -> None:
    sch = schedule(ROW_SUMS.replace("WIDTH", "n"))
    with refused("E0670", r"`m` is known only from the shape of `A`, which would become \(.*, n, 8\)"):
        sch.transform_layout("B", "A", lambda i, j: (j // 8, i, j % 8), pad_value=0.0)
    sch.transform_layout("B", "A", lambda i, j: (j, i))
    assert not verify(sch.mod)
    sch = schedule(ROW_SUMS.replace("WIDTH", "m"))
    sch.transform_layout("B", "A", lambda i, j: (j // 8, i, j % 8), pad_value=0.0)
    assert not verify(sch.mod)
