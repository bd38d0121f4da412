"""cache_read: where the copy goes, what it holds, who reads it, and what is refused."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule

UNDER_ONE_LOOP = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), C: T.Buffer((16, 12), "float32"), D: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    for i in range(16):
        for j in range(12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(12):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)
    for i, j in T.grid(16, 12):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj] - T.float32(1)
"""

BLOCKS_IN_BLOCKS = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), D: T.Buffer((16, 12), "float32")):
    for i0, j0 in T.grid(4, 3):
        with T.block("tile"):
            vio, vjo = T.axis.remap("SS", [i0, j0])
            T.reads(A[vio * 4:vio * 4 + 4, vjo * 4:vjo * 4 + 4])
            T.writes(D[vio * 4:vio * 4 + 4, vjo * 4:vjo * 4 + 4])
            for i, j in T.grid(4, 4):
                with T.block("D"):
                    vi = T.axis.spatial(16, vio * 4 + i)
                    vj = T.axis.spatial(12, vjo * 4 + j)
                    D[vi, vj] = A[vi, vj] * T.float32(2)
"""

UPDATED_LATER = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("before"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi]
    for i in range(16):
        with T.block("A"):
            vi = T.axis.spatial(16, i)
            A[vi] = T.float32(3)
    for i in range(16):
        with T.block("after"):
            vi = T.axis.spatial(16, i)
            C[vi] = A[vi]
"""


def reads(sch: mlcc.Schedule, name: str) -> list[str]:
    return [r.buffer.name for r in sch.get(sch.get_block(name)).reads]


def cached(sch: mlcc.Schedule, name: str) -> tir.Buffer:
    """The buffer that a caching block fills."""
    return sch.get(sch.get_block(name)).writes[0].buffer  # type: ignore[no-any-return]


def shape(buffer: tir.Buffer) -> list[int | None]:
    return [tir.const_int(n) for n in buffer.shape]


def test_an_input_is_copied_where_the_scope_begins() -> None:
    sch = schedule(MATMUL)
    before = sch.mod
    block = sch.get_block("C")
    copy = sch.cache_read(block, 0, "shared")
    assert sch.get(copy).name == "A_shared"
    assert reads(sch, "C") == ["A_shared", "B"]
    assert cached(sch, "A_shared").scope == "shared"
    assert sch.get(block).name == "C"  # the handle goes on
    root = sch.mod["main"].root
    assert [b.name for b in root.alloc_buffers] == ["A_shared"]
    assert [loop.var.name for loop in map(sch.get, sch.get_loops(copy))] == ["ax0", "ax1"]
    assert root.body[0] is sch.get(sch.get_loops(copy)[0])
    assert_same_results(before, sch.mod)


def test_by_name_and_by_buffer() -> None:
    sch = schedule(MATMUL)
    sch.cache_read("C", "B", "local")
    assert reads(sch, "C") == ["A", "B_local"]
    buffer = sch.get(sch.get_block("C")).reads[0].buffer
    sch.cache_read("C", buffer, "local")
    assert reads(sch, "C") == ["A_local", "B_local"]
    assert 'sch.cache_read(block=b4, read_buffer_index=0, storage_scope="local")' in str(sch.trace)


def test_all_readers_take_it_or_those_that_are_named() -> None:
    sch = schedule(CHAIN)
    sch.cache_read("D", "B", "shared")
    assert reads(sch, "C") == ["B_shared"] and reads(sch, "D") == ["C", "B_shared"]
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    sch = schedule(CHAIN)
    sch.cache_read("D", "B", "shared", consumer_blocks=["D"])
    assert reads(sch, "C") == ["B"] and reads(sch, "D") == ["C", "B_shared"]
    assert "consumer_blocks=[b1]" in str(sch.trace)
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_between_writer_and_reader_inside_the_loop_of_both() -> None:
    sch = schedule(UNDER_ONE_LOOP)
    copy = sch.cache_read("C", 0, "shared")
    i = sch.get(sch.get_loops(copy)[0])
    assert i.var.name == "i"
    assert len(i.body) == 3 and i.body[1] is sch.get(sch.get_loops(copy)[1])
    assert shape(cached(sch, "B_shared")) == [16, 12]  # what one iteration copies is a part of it
    assert [tir.const_int(sch.get(loop).extent) for loop in sch.get_loops(copy)] == [16, 1, 12]
    assert reads(sch, "C") == reads(sch, "D") == ["B_shared"]
    assert_same_results(mlcc.parse(UNDER_ONE_LOOP), sch.mod)


def test_a_block_in_a_block_caches_the_tile() -> None:
    sch = schedule(BLOCKS_IN_BLOCKS)
    copy = sch.cache_read("D", 0, "local")
    assert shape(cached(sch, "A_local")) == [4, 4]
    tile = sch.get(sch.get_block("tile"))
    assert [b.name for b in tile.alloc_buffers] == ["A_local"] and [r.buffer.name for r in tile.reads] == ["A"]
    assert str(sch.get(sch.get_block("D")).reads[0].region[0].min) == "vi - vio * 4"
    assert len(sch.get_loops(copy)) == 2
    assert_same_results(mlcc.parse(BLOCKS_IN_BLOCKS), sch.mod)
    sch.cache_read("tile", 0, "shared")
    assert shape(cached(sch, "A_shared")) == [16, 12]
    assert reads(sch, "A_local") == ["A_shared"]
    assert_same_results(mlcc.parse(BLOCKS_IN_BLOCKS), sch.mod)


def test_predicates_inside_narrow_the_cache_for_one_reader_only() -> None:
    guarded = BLOCKS_IN_BLOCKS.replace('T.block("D"):', 'T.block("D"):\n                    T.where(vio < 2)')
    sch = schedule(guarded)
    sch.cache_read("tile", 0, "shared")
    assert shape(cached(sch, "A_shared")) == [8, 12]
    other = (
        guarded.replace('D: T.Buffer((16, 12), "float32")', "D: T.Buffer((16, 12)), E: T.Buffer((16, 12))")
        + """
    for i, j in T.grid(16, 12):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = A[vi, vj]
"""
    )
    sch = schedule(other)
    sch.cache_read("tile", 0, "shared")
    assert shape(cached(sch, "A_shared")) == [16, 12]
    assert_same_results(mlcc.parse(other), sch.mod)


def test_pointers_refer_to_the_copy() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(1):
        with T.block("call"):
            T.reads(A[0:16])
            T.writes(B[0:16])
            T.evaluate(T.call_extern("int32", "f", A.data, B.data))
"""
    sch = schedule(text)
    sch.cache_read("call", 0, "shared")
    assert "A_shared.data, B.data" in sch.mod.script()


def test_illegal_uses_are_refused() -> None:
    sch = schedule(CHAIN)
    with refused("E0614", "`C` reads 1 buffer: there is no read buffer 1.*reads 0: `B`"):
        sch.cache_read("C", 1, "shared")
    with refused("E0614", "neither reads nor writes a buffer `X`"):
        sch.cache_read("C", "X", "shared")
    with refused("E0614", "`C` writes `C`, and does not read it"):
        sch.cache_read("C", "C", "shared")
    with refused("E0641", "'shard' is not a storage scope.*did you mean `shared`"):
        sch.cache_read("C", 0, "shard")
    with refused("E0613", "read_buffer_index"):
        sch.cache_read("C", None, "shared")
    with refused("E0642", "`B` is the block that writes"):
        sch.cache_read("C", 0, "shared", ["B"])
    with refused("E0642", "`B` comes before `C`"):
        sch.cache_read("D", "C", "shared", ["B"])
    assert mlcc.structural_equal(sch.mod, mlcc.parse(CHAIN))


def test_a_reader_before_the_writer_is_refused_unless_left_out() -> None:
    sch = schedule(UPDATED_LATER)
    with refused("E0642", r"`before` reads `A` before `A` writes it.*consumer_blocks=\['after'\]"):
        sch.cache_read("after", 0, "local")
    sch.cache_read("before", 0, "shared", ["before"])
    assert reads(sch, "before") == ["A_shared"] and reads(sch, "after") == ["A"]
    assert_same_results(mlcc.parse(UPDATED_LATER), sch.mod)
    sch = schedule(UPDATED_LATER)
    sch.cache_read("after", 0, "local", ["after"])
    assert reads(sch, "before") == ["A"] and reads(sch, "after") == ["A_local"]
    assert_same_results(mlcc.parse(UPDATED_LATER), sch.mod)


def test_several_writers_and_missing_parts_are_refused() -> None:
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with refused("E0640", "these do: `C_init`, `C_update`"):
        sch.cache_read("C_update", 0, "local")
    partly = CHAIN.replace("T.grid(16, 12)", "T.grid(8, 12)", 1)
    with refused("E0642", r"`C` reads `B\[0:16, 0:12\]`, of which `B` (surely )?writes `B\[0:8, 0:12\]`"):
        schedule(partly).cache_read("C", 0, "local")


def test_the_root_block_reads_nothing() -> None:
    with refused("E0614", "`root` reads no buffers"):
        schedule(MATMUL).cache_read("root", 0, "local")
