"""cache_index: terms of a block computed ahead."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from mlcc.verify import verify
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

RESIZE = """
@T.prim_func
def main(A: T.Buffer((10, 10), "float32"), B: T.Buffer((20, 20), "float32")):
    for i, j in T.grid(20, 20):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi // 4 + vj // 4, vj // 2] + A[vi // 4 + vj // 4, vj // 3]
"""


def term(sch: mlcc.Schedule, block: object) -> str:
    store = sch.get(block).body[0]
    assert isinstance(store, tir.BufferStore)
    return str(store.value)


def test_every_term_larger_ones_first() -> None:
    sch = schedule(RESIZE)
    blocks = sch.cache_index("B", "global")
    assert [term(sch, b) for b in blocks] == ["v0 // 4 + v1 // 4", "v0 // 2", "v0 // 3"]
    assert [sch.get(b).name for b in blocks] == ["index_0", "index_1", "index_2"]
    assert term(sch, sch.get_block("B")) == (
        "A[index_var_0[vi, vj], index_var_1[vj]] + A[index_var_0[vi, vj], index_var_2[vj]]"
    )
    assert [s.var.name for s in sch.mod["main"].root.body] == ["ax0", "ax0", "ax0", "i"]
    assert [r.buffer.name for r in sch.get(sch.get_block("B")).reads] == [
        "A",
        "index_var_0",
        "index_var_1",
        "index_var_2",
    ]
    assert verify(sch.mod) == []
    assert_same_results(mlcc.parse(RESIZE), sch.mod)


def test_those_that_repeat_and_the_parts_of_others() -> None:
    sch = schedule(RESIZE)
    blocks = sch.cache_index("B", "shared", 2)
    assert [term(sch, b) for b in blocks] == ["v0 // 4 + v1 // 4"]
    assert sch.get(blocks[0]).writes[0].buffer.scope == "shared"
    assert_same_results(mlcc.parse(RESIZE), sch.mod)
    parts = RESIZE.replace("vj // 3]", "vi // 4]")
    sch = schedule(parts)
    blocks = sch.cache_index("B", "global", 3)
    assert [term(sch, b) for b in blocks] == ["v0 // 4"]
    assert_same_results(mlcc.parse(parts), sch.mod)


def test_loops_that_drive_the_axes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((40, 40), "float32"), B: T.Buffer((20, 20), "float32")):
    for i0, i1, j in T.grid(4, 5, 20):
        with T.block("B"):
            vi = T.axis.spatial(20, i0 * 5 + i1)
            vj = T.axis.spatial(20, j)
            B[vi, vj] = A[vi * 2, vj]
"""
    sch = schedule(text)
    (block,) = sch.cache_index("B", "global")
    assert [tir.const_int(sch.get(loop).extent) for loop in sch.get_loops(block)] == [4, 5]
    assert tir.const_int(sch.get(block).iter_vars[0].dom.extent) == 20
    assert_same_results(mlcc.parse(text), sch.mod)


def test_loops_whose_ranges_depend_on_loops() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((26,), "float32"), B: T.Buffer((13, 13), "float32")):
    for i in range(13):
        for j in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(13, j)
                B[vi, vj] = A[vj * 2]
"""
    sch = schedule(text)
    (block,) = sch.cache_index("B", "global")
    assert [sch.get(loop).var.name for loop in sch.get_loops(block)] == ["ax0", "ax1"]
    assert_same_results(mlcc.parse(text), sch.mod)


def test_nothing_to_compute_changes_nothing() -> None:
    sch = schedule(MATMUL)
    assert sch.cache_index("C", "global") == []
    assert mlcc.structural_equal(sch.mod, mlcc.parse(MATMUL))


def test_illegal_uses_are_refused() -> None:
    sch = schedule(RESIZE)
    with refused("E0641"):
        sch.cache_index("B", "away")
    with refused("E0613", "must be a count, not -1"):
        sch.cache_index("B", "global", -1)
    inner = """
@T.prim_func
def main(A: T.Buffer((40,), "float32"), B: T.Buffer((20,), "float32")):
    for i in range(1):
        with T.block("B"):
            T.reads(A[0:40])
            T.writes(B[0:20])
            for j in range(20):
                B[j] = A[j * 2]
"""
    with refused("E0643", r"the term `j \* 2` of block `B` depends on `j`, which is none of its axes"):
        schedule(inner).cache_index("B", "global")
