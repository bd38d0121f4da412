"""compute_inline and reverse_compute_inline: what they make, and what they refuse."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.verify import check
from tests.schedule.nests import TRIANGLE
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule

PIPE = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), D: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    C = T.alloc_buffer((16, 12))
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
    for i, j in T.grid(16, 12):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[15 - vi, vj] + C[vi, vj]
"""

RESHAPE = """
@T.prim_func
def main(A: T.Buffer((96,), "float32"), D: T.Buffer((96,), "float32")):
    B = T.alloc_buffer((8, 12))
    C = T.alloc_buffer((96,))
    for i in range(96):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi // 12, vi % 12] = A[vi] * T.float32(2)
    for i, j in T.grid(8, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi * 12 + vj] = B[vi, vj] + T.float32(1)
    for i in range(96):
        with T.block("D"):
            vi = T.axis.remap("S", [i])
            D[vi] = C[vi] * C[vi]
"""

PADDED = """
@T.prim_func
def main(A: T.Buffer((13, 8), "float32"), C: T.Buffer((13, 8), "float32")):
    B = T.alloc_buffer((16, 8))
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vi < 13, A[vi, vj], T.float32(0))
    for i, j in T.grid(13, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
"""


def the_block(sch: mlcc.Schedule, name: str) -> mlcc.ir.tir.Block:
    return sch.get(sch.get_block(name))


# ---------------------------------------------------------------- compute_inline


def test_blocks_are_inlined_into_all_consumers() -> None:
    sch = schedule(CHAIN)
    sch.compute_inline("B")
    assert [r.block.name for r in sch.state.tree("main").realizes] == ["root", "C", "D"]
    assert [b.name for b in the_block(sch, "root").alloc_buffers] == ["C"]
    assert [r.buffer.name for r in the_block(sch, "D").reads] == ["C", "A"]
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    sch.compute_inline("C")
    assert the_block(sch, "root").alloc_buffers == ()
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_each_copy_of_a_let_binds_its_own_variable() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,))
    t = T.float32()
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.Let(t * t, where={t: A[vi] + T.float32(1)})
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi] * B[3 - vi]
"""
    sch = schedule(text)
    sch.compute_inline("B")
    check(sch.mod)
    assert_same_results(mlcc.parse(text), sch.mod)


def test_loads_at_other_indices_and_a_handle_that_lives() -> None:
    sch = schedule(PIPE)
    kept = sch.get_block("D")
    sch.compute_inline("C")
    assert str(sch.get(kept).body[0]) == ("D[vi, vj] = B[15 - vi, vj] + T.float32(1.0) + (B[vi, vj] + T.float32(1.0))")
    assert [r.buffer.name for r in sch.get(kept).reads] == ["B"]
    assert_same_results(mlcc.parse(PIPE), sch.mod)


def test_invertible_indices_are_inlined() -> None:
    sch = schedule(RESHAPE)
    sch.compute_inline("B")
    assert str(the_block(sch, "C").body[0]).endswith("= A[vj + vi * 12] * T.float32(2.0) + T.float32(1.0)")
    sch.compute_inline("C")
    assert_same_results(mlcc.parse(RESHAPE), sch.mod)


def test_the_handle_of_an_inlined_block_ends() -> None:
    sch = schedule(PIPE)
    block, (loop, _) = sch.get_block("C"), sch.get_loops("C")
    sch.compute_inline(block)
    with refused("E0611", "compute_inline"):
        sch.get(block)
    with refused("E0611", "compute_inline"):
        sch.get(loop)


def test_a_block_that_nothing_reads() -> None:
    sch = schedule(PIPE.replace("C[15 - vi, vj] + C[vi, vj]", "A[vi, vj]"))
    sch.compute_inline("C")
    sch.compute_inline("B")
    assert [r.block.name for r in sch.state.tree("main").realizes] == ["root", "D"]


def test_into_a_block_inside_a_block() -> None:
    text = PIPE.replace(
        "            D[vi, vj] = C[15 - vi, vj] + C[vi, vj]",
        '            with T.block("inner"):\n                D[vi, vj] = C[vi, vj]',
    )
    sch = schedule(text)
    sch.compute_inline("C")
    assert [r.buffer.name for r in the_block(sch, "inner").reads] == ["B"]
    assert [r.buffer.name for r in the_block(sch, "D").reads] == ["B"]
    assert_same_results(mlcc.parse(text), sch.mod)


TWICE = PIPE.replace("T.grid(16, 12)", "T.grid(32, 12)", 1).replace(
    "B[vi, vj] = A[vi, vj] * T.float32(2)", "B[vi // 2, vj] = A[vi // 2, vj]"
)
LOOP = PIPE.replace("B[vi, vj] = A[vi, vj]", "for q in range(1):\n                B[vi, vj] = A[vi, vj]")
POINTER = PIPE.replace(
    "C[vi, vj] = B[vi, vj] + T.float32(1)",
    """T.reads(B[vi, vj])
            T.writes(C[vi, vj])
            T.evaluate(B.data)""",
)
VIEW = PIPE.replace(
    "C[vi, vj] = B[vi, vj] + T.float32(1)",
    """V = T.match_buffer(B[vi, vj], (1, 1))
            C[vi, vj] = V[0, 0] + T.float32(1)""",
)


@pytest.mark.parametrize(
    ("text", "block", "code", "words"),
    [
        (CHAIN, "D", "E0658", "writes `D`"),
        (CHAIN, "root", "E0645", "must write one buffer, but writes none"),
        (TWICE, "B", "E0645", "do not determine which iteration stored an element"),
        (MATMUL, "C", "E0645", "accumulates over `vk`"),
        (LOOP, "B", "E0645", "its body is the loop `q`, not one store"),
        (POINTER, "B", "E0646", "block `C` uses it by pointer"),
        (VIEW, "B", "E0646", "block `C` uses it by pointer, or matches"),
        (VIEW, "C", "E0645", "uses `V`, which is a view of `B`"),
    ],
)
def test_compute_inline_refuses_illegal_uses(text: str, block: str, code: str, words: str) -> None:
    sch = schedule(text)
    before = sch.mod
    with refused(code, words):
        sch.compute_inline(block)
    assert sch.mod["main"] is before["main"]


def test_only_block_of_a_block_is_not_inlined() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.remap("S", [i])
            B = T.alloc_buffer((4,))
            with T.block("B"):
                B[vi] = A[vi]
"""
    sch = schedule(text)
    with refused("E0647", "the only one in block `outer`"):
        sch.compute_inline("B")


# ---------------------------------------------------------------- reverse_compute_inline


def test_consumers_are_inlined_into_the_producer() -> None:
    sch = schedule(PIPE)
    sch.reverse_compute_inline("C")
    assert str(the_block(sch, "B").body[0]) == "C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)"
    assert [r.buffer.name for r in the_block(sch, "B").writes] == ["C"]
    assert_same_results(mlcc.parse(PIPE), sch.mod)


def test_transposed_consumers_are_inlined() -> None:
    text = PIPE.replace("C[15 - vi, vj] + C[vi, vj]", "C[15 - vi, vj]")
    sch = schedule(text)
    sch.reverse_compute_inline("D")
    assert_same_results(mlcc.parse(text), sch.mod)


def test_a_consumer_of_less_gives_a_predicate() -> None:
    sch = schedule(PADDED)
    sch.reverse_compute_inline("C")
    assert "T.where(i < 13)" in sch.mod.script()
    assert_same_results(mlcc.parse(PADDED), sch.mod)


def test_the_predicate_of_the_producer_stays() -> None:
    sch = schedule(
        PADDED.replace("C: T.Buffer((13, 8)", "C: T.Buffer((13, 5)").replace("T.grid(13, 8)", "T.grid(13, 5)")
    )
    before = sch.mod
    sch.split(sch.get_loops("B")[0], [None, 5])
    sch.reverse_compute_inline("C")
    where = str(sch.state.tree("main").realize(the_block(sch, "B")).predicate)
    assert "j < 5" in where and "< 13" in where
    assert_same_results(before, sch.mod)
    sch = schedule(
        PADDED.replace("C: T.Buffer((13, 8)", "C: T.Buffer((16, 5)").replace("T.grid(13, 8)", "T.grid(16, 5)")
    )
    before = sch.mod
    sch.split(sch.get_loops("B")[0], [None, 5])
    sch.reverse_compute_inline("C")
    where = str(sch.state.tree("main").realize(the_block(sch, "B")).predicate)
    assert "j < 5" in where and "< 16" in where
    assert_same_results(before, sch.mod)


@pytest.mark.parametrize(
    ("text", "block", "code", "words"),
    [
        (CHAIN, "D", "E0645", "reads `C`, `B`"),
        (CHAIN, "C", "E0646", "`D` reads it too"),
        (CHAIN, "B", "E0645", "reads none of those"),
        (PIPE, "D", "E0645", "loads two elements of `C`"),
        (PIPE.replace("C[15 - vi, vj] + C[vi, vj]", "C[vi, 3]"), "D", "E0645", "does not determine the `vj`"),
        (PIPE.replace("C[15 - vi, vj] + C[vi, vj]", "C[vi // 2, vj]"), "D", "E0645", "the same element in several"),
        (MATMUL, "C", "E0645", "has an init"),
    ],
)
def test_reverse_compute_inline_refuses_illegal_uses(text: str, block: str, code: str, words: str) -> None:
    sch = schedule(text)
    before = sch.mod
    with refused(code, words):
        sch.reverse_compute_inline(block)
    assert sch.mod["main"] is before["main"]


def test_a_consumer_of_a_part_stays() -> None:
    """What it does not store must not be stored by its producer either."""
    sch = schedule(TRIANGLE)
    sch.cache_read("B", "A", "global")
    with refused("E0645", "the range of its loop `j` depends on another loop"):
        sch.reverse_compute_inline("B")


def test_not_into_a_reduction() -> None:
    from tests.schedule.programs import MATMUL_RELU

    with refused("E0656", "`C`, which is not complete: it has a reduce axis `vk`"):
        schedule(MATMUL_RELU).reverse_compute_inline("D")


def test_a_producer_that_adds_to_its_output_keeps_it() -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((8, 1), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i, k in T.grid(8, 1):
        with T.block("B"):
            vi, vk = T.axis.remap("SS", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + T.float32(1)
""")
    with pytest.raises(mlcc.CompileError, match="E0645.*adds to what `B` holds"):
        sch.reverse_compute_inline("C")
