"""Steps on what other steps have made: scripts that random schedules have found to go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mlcc
from mlcc.verify import check
from tests.schedule.nests import TRIANGLE, elementwise
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

STRIDED = """
@T.prim_func
def main(X: T.Buffer((1, 4, 14), "float32"), Y: T.Buffer((1, 4, 7), "float32")):
    P = T.alloc_buffer((1, 4, 14), "float32")
    for n, c, y in T.grid(1, 4, 14):
        with T.block("pad"):
            vn, vc, vy = T.axis.remap("SSS", [n, c, y])
            P[vn, vc, vy] = T.if_then_else(0 <= vy and vy < 13, X[vn, vc, vy], T.float32(0))
    for n, c, y, p in T.grid(1, 4, 7, 1):
        with T.block("Y"):
            vn, vc, vy, vp = T.axis.remap("SSSR", [n, c, y, p])
            with T.init():
                Y[vn, vc, vy] = T.float32(0)
            Y[vn, vc, vy] = Y[vn, vc, vy] + P[vn, vc, vy * 2 + vp]
"""
CHAINED = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    S = T.alloc_buffer((4, 4), "float32")
    for i, j in T.grid(4, 4):
        with T.block("S"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = A[vi, vj] * A[vi, vj]
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = S[vi, vj] + T.float32(1)
"""
TILES = """
@T.prim_func
def main(A: T.Buffer((32, 2), "float32"), B: T.Buffer((32, 2), "float32")):
    for o in range(4):
        with T.block("B_o"):
            vo = T.axis.spatial(4, o)
            T.reads(A[vo * 4:vo * 4 + 4, 0:2])
            T.writes(B[vo * 4:vo * 4 + 4, 0:2])
            for i, j in T.grid(4, 2):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vo * 4 + vi, vj] = A[vo * 4 + vi, vj] + T.float32(1)
"""
PAD = """
@T.prim_func
def main(X: T.Buffer((8, 4), "float32"), Y: T.Buffer((8, 6), "float32")):
    for c, o, i in T.grid(8, 2, 3):
        with T.block("pad"):
            vc = T.axis.spatial(8, c)
            vi = T.axis.spatial(6, o * 3 + i)
            Y[vc, vi] = T.if_then_else(1 <= vi and vi < 5, X[vc, vi - 1], T.float32(0))
"""


def unit_loops(sch: mlcc.Schedule) -> None:
    sch.compute_at("pad", sch.get_loops("Y")[2])


def part_as_a_block(sch: mlcc.Schedule) -> None:
    _, middle, _ = sch.loop_partition(sch.get_loops("B")[0], [None, 4, 5])
    sch.blockize(middle)
    domain = sch.get(sch.get_block("B_i1")).iter_vars[0].dom
    assert (domain.min.value, domain.extent.value) == (23, 4)


def axes_for_a_part(sch: mlcc.Schedule) -> None:
    sch.loop_partition(sch.get_loops("C")[0], [None, 1])
    sch.transform_block_layout("C_i0_partition", lambda: (0,))
    made = sch.get(sch.get_block("C_i0_partition"))
    assert {r.buffer.name for r in made.reads} == {"A", "B"} and [w.buffer.name for w in made.writes] == ["C"]


def copy_back_of_a_part(sch: mlcc.Schedule) -> None:
    sch.loop_partition(sch.get_loops("B")[1], [None, 4])
    sch.write_at(sch.get_loops("B_j1")[0], "B_j1", 0, "local")


def copy_back_in_a_thread(sch: mlcc.Schedule) -> None:
    i = sch.get_loops("C")[0]
    sch.bind(i, "vthread.x")
    copy = sch.get(sch.write_at(sch.get_loops("C")[2], "C", 0, "shared"))
    assert all(span.extent.value == 1 for span in copy.writes[0].region)


def cache_under_a_condition(sch: mlcc.Schedule) -> None:
    sch.split(sch.get_loops("B")[0], [16, None, 7], preserve_unit_iters=False)
    sch.compute_at("S", sch.get_loops("B")[3])
    sch.cache_write("S", 0, "shared")


def cache_of_what_is_there(sch: mlcc.Schedule) -> None:
    sch.split(sch.get_loops("B")[0], [16, None, 7], preserve_unit_iters=False)
    sch.compute_at("S", sch.get_loops("B")[3])
    sch.cache_read("B", "S", "shared")


def cache_inside_a_block(sch: mlcc.Schedule) -> None:
    sch.cache_read("B_o", "A", "shared", consumer_blocks=["B"])


def cache_in_a_part(sch: mlcc.Schedule) -> None:
    sch.compute_at("S", sch.get_loops("B")[0])
    sch.loop_partition(sch.get_loops("S")[1], [2])
    sch.cache_write("S_ax01", 0, "shared")


def cache_for_a_part(sch: mlcc.Schedule) -> None:
    sch.compute_at("S", sch.get_loops("B")[0])
    sch.loop_partition(sch.get_loops("B")[1], [2])
    sch.cache_read("B_j1", 0, "shared")


def consumer_of_parts(sch: mlcc.Schedule) -> None:
    i, j = sch.get_loops("S")
    sch.loop_partition(j, [2])
    sch.reverse_compute_at("B", i)


def axes_of_a_part_in_another_order(sch: mlcc.Schedule) -> None:
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    loops = sch.split(sch.get_loops("C_update")[2], [4, 2, None, 40])
    sch.loop_partition(loops[3], [24, None])
    sch.reorder_block_iter_var("C_update_k_30", [2, 1, 0])


def a_falling_axis_of_one_value(sch: mlcc.Schedule) -> None:
    sch.transform_block_layout("B", lambda i, j: (0 - i, j))


def last_iteration_as_a_block(sch: mlcc.Schedule) -> None:
    sch.loop_partition(sch.get_loops("B")[0], [None, 1])
    sch.blockize(sch.get_loops("B_i1")[0], preserve_unit_iters=False)


def parts_under_a_condition(sch: mlcc.Schedule) -> None:
    sch.loop_partition(sch.get_loops("B")[1], [None, 4])
    sch.split(sch.get_loops("B_j_common")[0], [None, 5])


def copy_under_a_condition_around(sch: mlcc.Schedule) -> None:
    sch.split(sch.get_loops("B")[0], [3, None])
    sch.compute_at("S", sch.get_loops("B")[2])
    sch.reindex_cache_write("S", 0, "local", lambda i, j: (j, i))
    sch.reindex_cache_read("S", 0, "local", lambda i, j: (j, i))


def cache_for_one_fused_iteration(sch: mlcc.Schedule) -> None:
    sch.fuse(*sch.get_loops("B"))
    sch.loop_partition(sch.get_loops("B")[0], [3, 1])
    sch.cache_write("B_i_j_fused1", 0, "local")


def cache_of_padding(sch: mlcc.Schedule) -> None:
    sch.blockize(sch.get_loops("pad")[0])
    sch.cache_read("pad", "X", "local")


def cache_of_a_tile_of_padding(sch: mlcc.Schedule) -> None:
    sch.blockize(sch.get_loops("pad")[2])
    sch.cache_read("pad", "X", "local")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (STRIDED, unit_loops), (elementwise(32, 4), part_as_a_block), (MATMUL, axes_for_a_part),
        (elementwise(4, 16), copy_back_of_a_part), (MATMUL, copy_back_in_a_thread), (CHAINED, cache_under_a_condition),
        (CHAINED, cache_of_what_is_there), (TILES, cache_inside_a_block), (CHAINED, cache_in_a_part),
        (CHAINED, cache_for_a_part), (CHAINED, consumer_of_parts), (MATMUL, axes_of_a_part_in_another_order),
        (elementwise(1, 4), a_falling_axis_of_one_value), (elementwise(4, 4), last_iteration_as_a_block),
        (elementwise(4, 8), parts_under_a_condition), (CHAINED, copy_under_a_condition_around),
        (elementwise(4, 4), cache_for_one_fused_iteration), (PAD, cache_of_padding),
        (PAD, cache_of_a_tile_of_padding),
    ],
)  # fmt: skip
def test_results_do_not_change(text: str, steps: Callable[[mlcc.Schedule], None]) -> None:
    sch = schedule(text)
    steps(sch)
    check(sch.mod)
    assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize(
    ("step", "args", "code", "words"),
    [
        ("transform_block_layout", (lambda i, j: (j, i),), "E0638", "loop `j` runs over .* values, but the axis `vj`"),
        ("reindex", (("write", 0),), "E0642", "block `B` may leave out some of `B`"),
        ("pad_einsum", ([2, 16],), "E0674", "block `B` does not write all of `B`"),
    ],
)
def test_loops_that_leave_out_a_part(step: str, args: tuple[Any, ...], code: str, words: str) -> None:
    sch = schedule(TRIANGLE)
    with refused(code, words):
        getattr(sch, step)("B", *args)


def test_an_output_of_a_triangle_does_not_move() -> None:
    """Its loops would be made anew, for all of what the copy has."""
    sch = schedule(TRIANGLE)
    copy = sch.cache_read("B", 0, "global")
    with refused("E0651", "for a part of its axis `vj` only"):
        sch.reverse_compute_at("B", sch.get_loops(copy)[0])


def test_a_copy_stays_in_what_the_block_around_has() -> None:
    sch = schedule(TILES)
    sch.split(sch.get_loops("B")[0], [2, None, 4])
    with refused("E0644", "the region of `A` in block `B_o`"):
        sch.read_at(sch.get_loops("B")[2], "B", 0, "local")


def test_a_part_in_a_loop_around_gets_no_axes() -> None:
    sch = schedule(elementwise(4, 8))
    sch.loop_partition(sch.get_loops("B")[1], [2, 3])
    sch.transform_block_layout("B_j1_partition", lambda: ())
    with refused("E0638", "block `B_j1_partition` uses the loop variable `i` directly"):
        sch.transform_block_layout("B_j1_partition", lambda: (0,))


@pytest.mark.parametrize(("rows", "loop"), [(16, 1), (16, 2), (3, 1), (3, 2)])
def test_a_reader_of_remainders_stays_behind_its_producer(rows: int, loop: int) -> None:
    """`i % 16` of one produced row says nothing about `i`: other rows would be read before they are written."""
    sch = schedule(CHAINED)
    sch.transform_layout("S", ("write", 0), lambda i, j: (i // rows, i % rows, j), pad_value=0.0)
    with refused("E0651", rf"from the index `vi % {rows}` in dimension 1 of `S`"):
        sch.reverse_compute_at("B", sch.get_loops("S")[loop])
    sch.reverse_compute_at("B", sch.get_loops("S")[0])
    assert_same_results(mlcc.parse(CHAINED), sch.mod)


def test_tiles_that_divide_the_rows_take_their_reader_along() -> None:
    sch = schedule(CHAINED)
    sch.transform_layout("S", ("write", 0), lambda i, j: (i // 2, i % 2, j))
    sch.reverse_compute_at("B", sch.get_loops("S")[1])
    assert_same_results(mlcc.parse(CHAINED), sch.mod)


def test_elements_that_nobody_writes_are_not_copied() -> None:
    sch = schedule(elementwise(7))
    sch.reindex_cache_write("B", 0, "global", lambda i: (i // 4, i % 4))
    with refused("E0642", "of which `B` may not write all elements"):
        sch.cache_read("B_global", 0, "local")


def test_what_is_in_a_part_counts() -> None:
    sch = schedule(CHAINED)
    sch.loop_partition(sch.get_loops("S")[0], [2])
    assert sch.get_producers("B") == []
    with refused("E0640", "blocks inside `S_i_common` write `S`, but it does not declare the write"):
        sch.cache_read("B", "S", "local")
    sch = schedule(MATMUL)
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    sch.loop_partition(sch.get_loops("C_update")[1], [2])
    with refused("E0640", "these do: `C_init`, `C_update_j_common`"):
        sch.cache_write("C_init", 0, "shared")


def test_padding_beside_another_block_is_refused() -> None:
    sch = schedule(STRIDED)
    sch.cache_write("pad", 0, "local")
    sch.reverse_compute_at("P_local", sch.get_loops("pad")[2])
    with refused("E0676", "not alone in its innermost loop `y`"):
        sch.decompose_padding("pad", sch.get_loops("pad")[0])


UNSTATED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    C = T.sblock_alloc_buffer((16,))
    for i in range(16):
        with T.sblock("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = D[vi] * T.float32(2)
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            T.reads(C[vi])
            T.writes(B[vi])
            B[vi] = A[vi] + C[vi]
"""


def test_what_the_author_of_a_block_left_out_stays_so() -> None:
    """As in TVM; what a step makes a block read in addition is stated."""
    sch = schedule(UNSTATED)
    sch.reverse_compute_at("B", sch.get_loops("C")[0])
    assert [r.buffer.name for r in sch.get(sch.get_block("B")).reads] == ["C"]
    sch = schedule(UNSTATED)
    sch.compute_inline("C")
    assert "D" in [r.buffer.name for r in sch.get(sch.get_block("B")).reads]


TRANSPOSED = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), C: T.Buffer((4, 6), "float32")):
    B = T.alloc_buffer((4, 6), "float32")
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vj, vi] = A[vi, vj]
    for j, i in T.grid(4, 6):
        with T.block("C"):
            vj, vi = T.axis.remap("SS", [j, i])
            C[vj, vi] = B[vj, vi] + T.float32(1)
"""


def assert_text_reads_back(sch: mlcc.Schedule) -> None:
    """The text of the module gives the module again."""
    assert mlcc.structural_equal(mlcc.parse(str(sch.mod)), sch.mod)


def test_a_block_declares_no_accesses_of_its_own_buffers() -> None:
    """Inlining infers the regions of the blocks around anew; what a block allocates is not visible outside of it."""
    sch = schedule(CHAINED)
    sch.blockize(sch.get_loops("B")[1])
    sch.cache_read("B", "S", "local")
    sch.compute_inline("S")
    outer = sch.get(sch.get_block("B_o"))
    assert [[r.buffer.name for r in regions] for regions in (outer.reads, outer.writes)] == [["A"], ["B"]]
    assert_text_reads_back(sch)
    assert_same_results(mlcc.parse(CHAINED), sch.mod)

    sch = schedule(TRANSPOSED)
    outer_ref = sch.blockize(sch.get_loops("B")[1])
    sch.cache_write(outer_ref, 0, "global")
    sch.cache_write("B", 0, "local")
    sch.reverse_compute_inline("B_global")
    outer = sch.get(sch.get_block("B_o"))
    assert [[r.buffer.name for r in regions] for regions in (outer.reads, outer.writes)] == [["A"], ["B"]]
    assert_text_reads_back(sch)
    assert_same_results(mlcc.parse(TRANSPOSED), sch.mod)


def test_padding_beside_other_statements_is_a_block_of_its_own() -> None:
    """The copy in the loops of the writer stays."""
    sch = schedule(CHAINED)
    sch.write_at(sch.get_loops("S")[0], "S", 0, "local")
    sch.transform_layout("S_local", ("read", 0), lambda i, j: (i // 3, i % 3, j), pad_value=0.0)
    assert sch.get(sch.get_block("buffer_S_local_padding")).name
    assert_same_results(mlcc.parse(CHAINED), sch.mod)


GUARDED = """
@T.prim_func
def main(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32")):
    S = T.alloc_buffer((4, 4), "float32")
    for i in range(4):
        if i < 3:
            for j in range(4):
                with T.block("S"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    S[vi, vj] = A[vi, vj] * A[vi, vj]
    for i, j in T.grid(3, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = S[vi, vj] + T.float32(1)
"""


def test_padding_under_a_condition_is_a_block_of_its_own() -> None:
    sch = schedule(GUARDED)
    sch.transform_layout("S", ("write", 0), lambda i, j: (i // 3, i % 3, j), pad_value=0.0)
    assert_same_results(mlcc.parse(GUARDED), sch.mod)


GATHER = """
@T.prim_func
def main(A: T.Buffer((3, 5), "float32"), B: T.Buffer((6, 10), "float32")):
    for i, j in T.grid(6, 10):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi // 2, (vi + vj) // 4]
"""


@pytest.mark.parametrize(("inlined", "left"), [("index_0", "index_1"), ("index_1", "index_0")])
def test_a_copy_at_computed_indices_comes_after_them(inlined: str, left: str) -> None:
    """Inlining one index states the block's regions by what it loads: the other index."""
    sch = schedule(GATHER)
    sch.cache_index("B", "global")
    sch.compute_inline(inlined)
    with refused("E0642", rf"index `index_var_.*` before `{left}` writes it"):
        sch.reindex_cache_read("B", "A", "local", lambda i, j: (j, i))
    sch.compute_inline(left)
    sch.reindex_cache_read("B", "A", "local", lambda i, j: (j, i))
    assert_same_results(mlcc.parse(GATHER), sch.mod)


def test_computed_indices_in_an_earlier_stage_serve_a_copy() -> None:
    sch = schedule(CHAINED.replace("S[vi, vj] + T", "S[(vi + vj) // 2, vj] + T"))
    before = sch.mod
    sch.cache_index("B", "global")
    sch.reindex_cache_read("B", "S", "local", lambda i, j: (j, i))
    assert_same_results(before, sch.mod)


def test_elements_between_those_written_are_not_copied() -> None:
    sch = schedule(elementwise(8))
    sch.transform_block_layout("B", lambda i: (i % 4, i // 4))
    with refused("E0644", r"`B` may leave out some of `B\[ax0:ax0 \+ 5\]`"):
        sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
    sch = schedule(elementwise(8))
    sch.transform_block_layout("B", lambda i: (i // 4, i % 4))
    sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
    assert_same_results(mlcc.parse(elementwise(8)), sch.mod)


def test_two_writers_without_a_gap_share_a_cache() -> None:
    sch = schedule(HALVES)
    sch.write_at(sch.get_loops("low")[0], "low", 0, "local")
    assert_same_results(mlcc.parse(HALVES), sch.mod)
    with refused("E0644", r"`low` and `high` may leave out some of `B\[i, 0:9\]`"):
        apart = schedule(HALVES.replace("vj + 4]", "vj + 5]").replace("(4, 8)", "(4, 9)"))
        apart.write_at(apart.get_loops("low")[0], "low", 0, "local")


HALVES = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 8), "float32")):
    for i in range(4):
        for j in range(4):
            with T.block("low"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for j in range(4):
            with T.block("high"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj + 4] = A[vi, vj] * T.float32(2)
"""


def test_nothing_is_copied_into_a_cache_before_it_is_written() -> None:
    """A block made of several reads a buffer that they alone write."""
    sch = schedule(CHAINED)
    sch.blockize(["S", "B"])
    with refused("E0642", "nothing writes `S` before block `outer_S_B_`"):
        sch.cache_inplace("outer_S_B_", "S", "local")
    sch.cache_write("outer_S_B_", "S", "local")
    assert_same_results(mlcc.parse(CHAINED), sch.mod)


def test_what_was_there_before_the_loop_is_copied_in_place() -> None:
    sch = schedule(UPDATED)
    sch.cache_inplace("add", "S", "local")
    assert_same_results(mlcc.parse(UPDATED), sch.mod)


UPDATED = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("zero"):
            vi = T.axis.spatial(4, i)
            S[vi] = T.float32(0)
    for i, j in T.grid(4, 4):
        with T.block("add"):
            vi, vj = T.axis.remap("SR", [i, j])
            S[vi] = S[vi] + A[vi, vj]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = S[vi]
"""

SHARES = """
@T.prim_func
def main(X: T.Buffer((5, 2), "float32"), Y: T.Buffer((5, 2), "float32")):
    M = T.alloc_buffer((5,), "float32")
    S = T.alloc_buffer((5,), "float32")
    for i in range(5):
        for r, j in T.grid(5, 2):
            with T.block("M"):
                vr, vj = T.axis.remap("SR", [r, j])
                with T.init():
                    M[vr] = T.float32(0)
                M[vr] = T.max(M[vr], X[vr, vj])
        for j in range(2):
            with T.block("S"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + X[vi, vj]
    for i, j in T.grid(5, 2):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] * M[vi] + S[vi]
"""


def test_a_reader_of_two_stages_has_all_that_it_reads() -> None:
    """One iteration computes all of `M`, but one element of `S`: all rows would be combined with what `S` lacks."""
    sch = schedule(SHARES)
    with refused("E0651", r"would read `S\[0:5\]` there, of which only `S\[i\]` is computed before"):
        sch.reverse_compute_at("Y", sch.get_loops("S")[0])
    text = SHARES.replace("for r, j in T.grid(5, 2)", "for j in range(2)").replace("[r, j]", "[i, j]")
    sch = schedule(text)
    sch.reverse_compute_at("Y", sch.get_loops("S")[0])
    assert_same_results(mlcc.parse(text), sch.mod)


ROWS = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    B = T.alloc_buffer((4, 8), "float32")
    for i in range(4):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * A[vi, vj]
        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] * T.float32(2)
"""


def test_the_part_of_a_partitioned_loop_is_reindexed_whole_or_not_at_all() -> None:
    """The copy runs over whole axes, the part over one row of them in each iteration of a loop around it."""
    sch = schedule(ROWS)
    sch.loop_partition(sch.get_loops("C")[1], [3])
    with refused(
        "E0642", "the loops in `C_j0_partition` run only a part of block `C_j0`, and the copy would write gar"
    ):
        sch.reindex("C_j0", ("write", 0))
    with refused("E0642", "would read what is not yet in `B`"):
        sch.reindex("C_j0", ("read", 0))
    sch = schedule(MATMUL)
    sch.cache_read("C", 0, "global")
    sch.loop_partition(sch.get_loops("C")[1], [3])
    sch.reindex("C_j0", ("read", 0))  # written by then
    sch.reindex("C_j0", ("read", 1))
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_gaps_in_the_input_of_a_block_of_blocks_are_not_copied() -> None:
    """The region of the outer block has the places of the cache to which no element goes, too."""
    for size, block in ((13, False), (16, True)):
        text = elementwise(size)
        sch = schedule(text)
        sch.reindex_cache_read("B", 0, "global", lambda i: (i // 4, i % 4))
        sch.blockize(sch.get_loops("B")[0])
        if block:
            sch.cache_read("B", 0, "local")
        else:
            with refused("E0642", "the copy would read `A_global` where nothing is in it"):
                sch.cache_read("B", 0, "local")
        assert_same_results(mlcc.parse(text), sch.mod)


def test_a_copy_that_nothing_reads_is_not_made_before_what_it_copies() -> None:
    sch = schedule(ROWS)
    copy = sch.cache_write("B", "B", "local", consumer_blocks=["C", "B"])
    with refused("E0650", "nothing reads what block `B_local` computes.*where `B` has not computed all"):
        sch.compute_at(copy, sch.get_loops("B")[0])
    assert_same_results(mlcc.parse(ROWS), sch.mod)


@pytest.mark.parametrize("text", [CHAINED, CHAINED.replace("B[vi, vj] = ", "B[vi, 0] = B[vi, 0] + ")])
@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 8])
def test_readers_follow_parts_of_a_fused_loop_where_rows_end(tile: int, text: str) -> None:
    """A part that ends within a row does not compute all of the rows that a reader beside it would go through."""
    if "B[vi, 0]" in text:
        head, tail = text.rsplit('remap("SS", [i, j])', 1)
        text = f'{head}remap("SR", [i, j])\n            with T.init():\n                B[vi, 0] = T.float32(0){tail}'
    sch = schedule(text)
    sch.split(sch.fuse(*sch.get_loops("S")), [None, tile])
    outer = sch.get_loops("S")[0]
    if 4 % tile == 0 or tile % 4 == 0:
        sch.reverse_compute_at("B", outer)
        assert_same_results(mlcc.parse(text), sch.mod)
    else:
        with refused("E0651", "of `S` or more in one iteration of `i_j_fused_0`, in which `S` may compute only"):
            sch.reverse_compute_at("B", outer)
