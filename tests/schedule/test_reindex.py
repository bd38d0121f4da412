"""reindex: a copy laid out by the axes of the block that uses it."""

from __future__ import annotations

import mlcc
from mlcc.verify import verify
from tests.schedule.test_cache_read import BLOCKS_IN_BLOCKS, reads, shape
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

CONV = """
@T.prim_func
def main(A: T.Buffer((18, 4), "float32"), W: T.Buffer((3, 4), "float32"), B: T.Buffer((16,), "float32")):
    for i, k, c in T.grid(16, 3, 4):
        with T.block("B"):
            vi, vk, vc = T.axis.remap("SRR", [i, k, c])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi + vk, vc] * W[vk, vc]
"""


def test_a_buffer_that_is_read() -> None:
    sch = schedule(CONV)
    copy = sch.get(sch.reindex("B", ("read", 0)))
    assert copy.name == "A_reindex_reindex" and copy.writes[0].buffer.name == "A_reindex"
    assert shape(copy.writes[0].buffer) == [16, 3, 4]
    assert str(copy.reads[0].region[0].min) == "v0 + v1"
    assert reads(sch, "B") == ["A_reindex", "W"]
    assert 'sch.reindex(block=b1, buffer=("read", 0))' in str(sch.trace).replace("b0", "b1")
    assert_same_results(mlcc.parse(CONV), sch.mod)


def test_a_buffer_that_is_written_by_name() -> None:
    transposed = MATMUL.replace("(32, 16)", "(16, 32)").replace("C[vi, vj]", "C[vj, vi]")
    sch = schedule(transposed)
    copy = sch.get(sch.reindex("C", "C"))
    assert copy.name == "C_reindex" and shape(copy.reads[0].buffer) == [32, 16]
    assert str(copy.writes[0].region[0].min) == "v1"
    assert 'buffer=("write", 0)' in str(sch.trace)
    assert_same_results(mlcc.parse(transposed), sch.mod)


def test_two_that_are_read_one_after_another() -> None:
    sch = schedule(MATMUL)
    sch.reindex("C", ("read", 1))
    sch.reindex("C", ("read", 0))
    sch.reindex("C", ("write", 0))
    assert reads(sch, "C") == ["A_reindex", "B_reindex"]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_blocks_without_loops_are_reindexed() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        with T.block("B"):
            B[0] = A[1]
"""
    sch = schedule(text)
    copy = sch.reindex("B", ("read", 0))
    assert shape(sch.get(copy).writes[0].buffer) == []
    assert_same_results(mlcc.parse(text), sch.mod)


def test_wrong_buffers_are_refused() -> None:
    sch = schedule(MATMUL)
    with refused("E0614", r"may be a buffer that block `C` reads or writes.*reads 0: `A`, 1: `B` and writes 0: `C`"):
        sch.reindex("C", 0)
    with refused("E0614", "read or written, not 'rad'"):
        sch.reindex("C", ("rad", 0))
    with refused("E0614", "no read buffer 2"):
        sch.reindex("C", ("read", 2))


def test_illegal_uses_are_refused() -> None:
    two = MATMUL.replace("A[vi, vk] *", "A[vi, vk] * A[vi, 0] *")
    with refused("E0643", r"at different indices: `A\[vi, vk\]` and `A\[vi, 0\]`"):
        schedule(two).reindex("C", ("read", 0))
    with refused("E0643", "`tile` contains other blocks"):
        schedule(BLOCKS_IN_BLOCKS).reindex("tile", ("read", 0))
    update = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] + A[vi]
"""
    with refused("E0642", "both reads and writes `B`"):
        schedule(update).reindex("B", ("read", 0))
    inner = """
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, 0:3])
            T.writes(B[vi, 0:3])
            for j in range(3):
                B[vi, j] = A[vi, j]
"""
    with refused("E0643", r"accesses `A\[vi, j\]`, and `j` varies inside the block but is not one of its axes"):
        schedule(inner).reindex("B", ("read", 0))
    guarded = update.replace("B[vi] + A[vi]", "T.if_then_else(vi > 0, A[vi - 1], T.float32(0))")
    with refused("E0643", r"`A\[vi - 1\]` under a condition"):
        schedule(guarded).reindex("B", ("read", 0))
    shared = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi]
"""
    with refused("E0642", "`C` reads `B` in the same loops as `B`.*too late"):
        schedule(shared).reindex("B", ("write", 0))
    with refused("E0642", "`B` writes `B` in the same loops as `C`.*too early"):
        schedule(shared).reindex("C", ("read", 0))


def test_what_is_guarded_but_inside_is_fine() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.if_then_else(vi > 0, A[3 - vi], T.float32(0))
"""
    sch = schedule(text)
    sch.reindex("B", ("read", 0))
    assert_same_results(mlcc.parse(text), sch.mod)


def test_a_view_gives_its_copy_neither_place_nor_strides() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    s = T.int32()
    for i, j in T.grid(4, 4):
        with T.block("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
            T.writes(C[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
            a = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), strides=[s, 1], offset_factor=1)
            for x, y in T.grid(4, 4):
                with T.block("inner"):
                    vx, vy = T.axis.remap("SS", [x, y])
                    C[vi * 4 + vx, vj * 4 + vy] = a[vx, vy]
"""
    for step in (lambda s: s.reindex("inner", ("read", 0)), lambda s: s.cache_read("inner", 0, "local")):
        sch = schedule(text)
        step(sch)
        assert verify(sch.mod) == []
        assert_same_results(mlcc.parse(text), sch.mod)
