"""cache_inplace: a block works on a copy of what it updates."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from tests.schedule.tools import CHAIN, assert_same_results, refused, schedule

UPDATE = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), B: T.Buffer((16, 12), "float32")):
    for i in range(16):
        for j in range(12):
            with T.block("update"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = B[vi, vj] + A[vi, vj]
"""

GUARDED = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i0, i1 in T.grid(4, 5):
        with T.block("update"):
            T.where(i0 * 5 + i1 < 16)
            vi = T.axis.spatial(16, i0 * 5 + i1)
            B[vi] = B[vi] + A[vi]
"""

CALL = """
@T.prim_func
def main(A: T.Buffer((64,), "int32")):
    for i in range(1):
        with T.block("call"):
            T.reads(A[0:64])
            T.writes(A[0:64])
            T.evaluate(T.call_extern("int32", "f", A.data))
"""


def test_in_and_out_around_the_block() -> None:
    sch = schedule(UPDATE)
    block = sch.get_block("update")
    copy_in, copy_out = sch.cache_inplace(block, "B", "local")
    j = sch.get(sch.get_loops(block)[1])
    assert len(j.body) == 3
    assert j.body[0] is sch.get(sch.get_loops(copy_in)[2]) and j.body[2] is sch.get(sch.get_loops(copy_out)[2])
    assert [r.buffer.name for r in sch.get(block).reads] == ["B_local", "A"]
    assert [r.buffer.name for r in sch.get(block).writes] == ["B_local"]
    assert sch.get(copy_in).name == sch.get(copy_out).name == "B_local"
    assert "read_buffer_index=0" in str(sch.trace)
    assert_same_results(mlcc.parse(UPDATE), sch.mod)


def test_a_predicate_holds_for_the_copies_too() -> None:
    sch = schedule(GUARDED)
    for copy in sch.cache_inplace("update", 0, "local"):
        realize = sch.get(sch.get_loops(copy)[-1]).body[0]
        assert isinstance(realize, tir.BlockRealize) and str(realize.predicate) == "i0 * 5 + i1 < 16"
    assert_same_results(mlcc.parse(GUARDED), sch.mod)


def test_what_may_lie_outside_is_refused() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("sum"):
            vi = T.axis.scan(8, i)
            B[vi] = T.if_then_else(vi == 0, T.float32(0), B[vi - 1]) + A[vi]
"""
    with refused("E0643", "uses `B` at .*, which may be outside"):
        schedule(text).cache_inplace("sum", 0, "local")


def test_pointers_refer_to_the_copy() -> None:
    sch = schedule(CALL)
    sch.cache_inplace("call", 0, "local")
    text = sch.mod.script()
    assert 'T.call_extern("int32", "f", A_local.data)' in text and "A[v0] = A_local[v0]" in text


def test_illegal_uses_are_refused() -> None:
    sch = schedule(UPDATE)
    with refused("E0644", r"block `update` reads `A` and does not write it.*sch\.cache_read"):
        sch.cache_inplace("update", "A", "local")
    with refused("E0614", "no read buffer 2"):
        sch.cache_inplace("update", 2, "local")
    with refused("E0641"):
        sch.cache_inplace("update", 0, "here")
    with refused("E0644"):
        schedule(CHAIN).cache_inplace("C", 0, "local")
    assert mlcc.structural_equal(sch.mod, mlcc.parse(UPDATE))
