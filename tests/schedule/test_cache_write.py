"""cache_write: where the copy back goes, what it holds, and what is refused."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from tests.schedule.test_cache_read import BLOCKS_IN_BLOCKS, UNDER_ONE_LOOP, reads, shape
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


def writes(sch: mlcc.Schedule, name: str) -> list[str]:
    return [r.buffer.name for r in sch.get(sch.get_block(name)).writes]


def test_an_output_is_copied_where_the_scope_ends() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "local")
    made = sch.get(copy)
    assert made.name == "C_local" and reads(sch, "C_local") == ["C_local"] and writes(sch, "C_local") == ["C"]
    assert writes(sch, "C") == ["C_local"]
    node = sch.get(block)
    assert isinstance(node.init[0], tir.BufferStore) and node.init[0].buffer.name == "C_local"
    assert sch.mod["main"].root.body[-1] is sch.get(sch.get_loops(copy)[0])
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_two_caches_in_a_row_keep_results() -> None:
    sch = schedule(MATMUL)
    sch.cache_write("C", 0, "shared")
    sch.cache_write("C", 0, "local")
    assert writes(sch, "C") == ["C_shared_local"] and writes(sch, "C_shared_local") == ["C_shared"]
    assert writes(sch, "C_shared") == ["C"]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_before_the_first_reader() -> None:
    sch = schedule(CHAIN)
    copy = sch.cache_write("B", "B", "local")
    assert list(sch.mod["main"].root.body).index(sch.get(sch.get_loops(copy)[0])) == 1
    assert reads(sch, "C") == ["B"]
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_consumers_read_the_cache() -> None:
    sch = schedule(CHAIN)
    copy = sch.cache_write("B", 0, "local", consumer_blocks=["C"])
    assert reads(sch, "C") == ["B_local"] and reads(sch, "D") == ["C", "B"]
    assert list(sch.mod["main"].root.body).index(sch.get(sch.get_loops(copy)[0])) == 2
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_inside_the_loop_of_writer_and_reader() -> None:
    sch = schedule(UNDER_ONE_LOOP)
    copy = sch.cache_write("B", 0, "local")
    assert [tir.const_int(sch.get(loop).extent) for loop in sch.get_loops(copy)] == [16, 1, 12]
    assert shape(sch.get(copy).reads[0].buffer) == [16, 12]
    assert_same_results(mlcc.parse(UNDER_ONE_LOOP), sch.mod)


def test_a_block_in_a_block_caches_the_tile() -> None:
    sch = schedule(BLOCKS_IN_BLOCKS)
    copy = sch.cache_write("D", 0, "local")
    assert shape(sch.get(copy).reads[0].buffer) == [4, 4]
    assert_same_results(mlcc.parse(BLOCKS_IN_BLOCKS), sch.mod)
    sch.cache_write("tile", 0, "shared")
    assert writes(sch, "D_local") == ["D_shared"] and writes(sch, "tile") == ["D_shared"]
    assert_same_results(mlcc.parse(BLOCKS_IN_BLOCKS), sch.mod)


def test_what_is_written_in_part_makes_a_small_cache() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(32, i + 8)
            B[vi] = A[vi - 8]
"""
    sch = schedule(text)
    copy = sch.get(sch.cache_write("B", 0, "local"))
    assert shape(copy.reads[0].buffer) == [16]
    assert str(copy.writes[0].region[0].min) == "8 + v0"
    assert_same_results(mlcc.parse(text), sch.mod)


def test_illegal_uses_are_refused() -> None:
    sch = schedule(CHAIN)
    with refused("E0614", "there is no write buffer 1.*writes 0: `C`"):
        sch.cache_write("C", 1, "local")
    with refused("E0641", "'loc' is not a storage scope"):
        sch.cache_write("C", 0, "loc")
    with refused("E0642", "`B` reads `C`|`B` does not"):
        other = schedule(CHAIN.replace("A[vi, vj] *", "C[vi, vj] *"))
        other.cache_write("C", 0, "local", ["B"])
    with refused("E0642", "is not in the scope.*consumers can be none"):
        sch = schedule(BLOCKS_IN_BLOCKS)
        sch.cache_write("tile", 0, "local", ["D"])


def test_an_update_in_place_needs_the_old_values() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = B[vi] + A[vi]
"""
    with refused("E0642", "block `B` reads `B`, which it writes.*cache_inplace"):
        schedule(text).cache_write("B", 0, "local")


def test_a_pointer_into_a_part_is_refused() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(1):
        with T.block("call"):
            T.reads(A[0:16])
            T.writes(B[8:24])
            T.evaluate(T.call_extern("int32", "f", A.data, B.data))
"""
    with refused("E0643", r"uses `B` by its pointer.*`B\[8:24\]`"):
        schedule(text).cache_write("call", 0, "local")


def test_a_copy_of_more_than_is_written_is_refused() -> None:
    triangle = """
@T.prim_func
def main(A: T.Buffer((5, 5), "float32"), B: T.Buffer((5, 5), "float32")):
    for i in range(5):
        for j in range(5 - i):
            with T.block("B"):
                vi = T.axis.spatial(5, i)
                vj = T.axis.spatial(5, j)
                B[vi, vj] = A[vi, vj]
"""
    with refused("E0642", "block `B` may leave out some of `B"):
        schedule(triangle).cache_write("B", 0, "local")
    sch = schedule(triangle)
    outer = sch.blockize(sch.get_loops(sch.blockize(sch.get_loops("B")[1]))[0])  # of which the text states a rectangle
    with refused("E0642", "may leave out some of `B"):
        sch.cache_write(outer, 0, "local")
    whole = schedule(triangle.replace("range(5 - i)", "range(5)"))
    before = whole.mod
    whole.cache_write(whole.blockize(whole.get_loops("B")[1]), 0, "local")
    assert_same_results(before, whole.mod)


def test_several_writers_are_refused() -> None:
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with refused("E0640", "these do: `C_init`, `C_update`"):
        sch.cache_write("C_update", 0, "local")
