"""reindex_cache_read and reindex_cache_write: caches at indices of one's own."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from tests.schedule.test_cache_read import BLOCKS_IN_BLOCKS, reads, shape
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


def test_transposed_reads_are_cached() -> None:
    sch = schedule(MATMUL)
    copy = sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (k, i))
    made = sch.get(copy)
    assert made.name == "A_shared" and shape(made.writes[0].buffer) == [24, 32]
    assert [sch.get(loop).var.name for loop in sch.get_loops(copy)] == ["i", "k"]
    assert [axis.var.name for axis in made.iter_vars] == ["vi", "vk"]
    assert reads(sch, "C") == ["A_shared", "B"]
    assert "index_map=lambda i, j, k: (k, i)" in str(sch.trace)
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_read_tiled_and_by_name() -> None:
    sch = schedule(MATMUL)
    copy = sch.reindex_cache_read("C", "B", "shared", lambda i, j, k: (k // 8, j // 4, k % 8, j % 4))
    assert shape(sch.get(copy).writes[0].buffer) == [3, 4, 8, 4]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_caches_may_have_gaps() -> None:
    sch = schedule(MATMUL)
    copy = sch.reindex_cache_write("C", 0, "local", lambda i, j, k: (j * 2, i * 3))
    assert shape(sch.get(copy).reads[0].buffer) == [32, 96]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_loops_whose_ranges_depend_on_loops() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((13, 13), "float32"), B: T.Buffer((13, 13), "float32")):
    for i in range(13):
        for j in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(13, j)
                B[vi, vj] = A[vj, 0] * T.float32(2)
"""
    sch = schedule(text)
    sch.reindex_cache_write("B", 0, "local", lambda i, j: (j, i))
    assert_same_results(mlcc.parse(text), sch.mod)
    sch = schedule(text)
    copy = sch.reindex_cache_read("B", 0, "local", lambda i, j: (j,))
    assert [sch.get(loop).var.name for loop in sch.get_loops(copy)] == ["i", "j"]
    assert str(sch.get(sch.get_loops(copy)[1]).extent) == "i + 1"
    assert_same_results(mlcc.parse(text), sch.mod)


def test_writes_are_cached() -> None:
    sch = schedule(MATMUL)
    copy = sch.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i // 8, i % 8))
    made = sch.get(copy)
    assert made.name == "C_local" and shape(made.reads[0].buffer) == [16, 4, 8]
    init = sch.get(sch.get_block("C")).init[0]
    assert isinstance(init, tir.BufferStore) and str(init.indices[1]) == "vi // 8"
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_copies_go_between_writer_and_reader() -> None:
    sch = schedule(CHAIN)
    copy = sch.reindex_cache_read("D", "B", "local", lambda i, j: (j, i))
    at = list(sch.mod["main"].root.body).index(sch.get(sch.get_loops(copy)[0]))
    assert at == 2 and reads(sch, "C") == ["B"] and reads(sch, "D") == ["C", "B_local"]
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_predicates_go_along() -> None:
    sch = schedule(CHAIN)
    sch.split(sch.get_loops("B")[0], factors=[None, 5])
    copy = sch.reindex_cache_write("B", 0, "local", lambda i, j: (j, i))
    realize = sch.get(sch.get_loops(copy)[-1]).body[0]
    assert isinstance(realize, tir.BlockRealize) and tir.const_int(realize.predicate) is None
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    sch = schedule(CHAIN)
    sch.split(sch.get_loops("B")[0], factors=[None, 5])
    copy = sch.reindex_cache_read("B", 0, "local", lambda i, j: (j, i))
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_a_guarded_access_is_refused() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.if_then_else(vi > 0, A[vi - 1], T.float32(0))
"""
    with refused("E0643", "reads `A` under a condition"):
        schedule(text).reindex_cache_read("B", 0, "local", lambda i: (i,))


def test_illegal_uses_are_refused() -> None:
    sch = schedule(MATMUL)
    with refused("E0653", r"uses the axis `vj`, and `A\[vi, vk\]` does not depend on it.*must use `vi`, `vk`"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (i, j, k))
    with refused("E0653", "leaves out the axis `vk`"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (i,))
    with refused("E0653", "several elements of the buffer in the same place"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (i + k,))
    with refused("E0653", "several elements of the buffer in the same place"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (i, k // 2))
    with refused("E0613", "takes 2 indices, but there are 3.*lambda i, j, k"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j: (i, j))
    with refused("E0613", "an index map such as"):
        sch.reindex_cache_read("C", 0, "shared", 3)
    with refused("E0641"):
        sch.reindex_cache_write("C", 0, "shred", lambda i, j, k: (i, j))
    with refused("E0643", "`tile` reads more than one element of `A` at a time.*cache_read"):
        schedule(BLOCKS_IN_BLOCKS).reindex_cache_read("tile", 0, "shared", lambda i, j: (j, i))
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with refused("E0640"):
        sch.reindex_cache_write("C_update", 0, "shared", lambda i, j, k: (i, j))
