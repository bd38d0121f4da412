"""compute_at and reverse_compute_at: the loops that they make, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.interp.prim_func import run_prim_func
from mlcc.passes.schedule.state import INLINE, ROOT
from tests.schedule.tools import CHAIN, assert_same_results, refused, schedule

PAIR = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), C: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
"""

BLUR = """
@T.prim_func
def main(A: T.Buffer((18, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    B = T.alloc_buffer((18, 8))
    for i, j in T.grid(18, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]
"""

MATMUL_RELU = """
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 12), "float32"), D: T.Buffer((16, 12), "float32")):
    C = T.alloc_buffer((16, 12))
    for i, j, k in T.grid(16, 12, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 12):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))
"""

TWO_SUMS = """
@T.prim_func
def main(A: T.Buffer((6, 5, 4), "float32"), D: T.Buffer((6,), "float32")):
    C = T.alloc_buffer((6, 5))
    for i, j, k in T.grid(6, 5, 4):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vj, vk]
    for i, j in T.grid(6, 5):
        with T.block("D"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + C[vi, vj]
"""

DYNAMIC = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 8))
    C = T.match_buffer(c, (n, 8))
    B = T.alloc_buffer((n, 8))
    for i, j in T.grid(n, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(n, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
"""


def nest(sch: mlcc.Schedule) -> str:
    """The nest without the stores, dedented."""
    lines = [line for line in sch.nest().splitlines()[2:] if "[...]" not in line]
    return "\n".join(line[4:] for line in lines)


def predicate_of(sch: mlcc.Schedule, block: str) -> str:
    return str(sch.state.tree("main").realize(sch.get(sch.get_block(block))).predicate)


# ---------------------------------------------------------------- compute_at


def test_a_row_at_a_time() -> None:
    sch = schedule(PAIR)
    kept = sch.get_block("B")
    loop = sch.get_loops("B")[0]
    sch.compute_at(kept, sch.get_loops("C")[0])
    assert nest(sch) == (
        "for i in 16\n  for ax0 in 12\n    block B(vi = i, vj = ax0)\n  for j in 12\n    block C(vi = i, vj = j)"
    )
    assert sch.get(kept).name == "B"
    with refused("E0611", "compute_at"):
        sch.get(loop)
    assert_same_results(mlcc.parse(PAIR), sch.mod)


def test_unit_loops_are_kept_on_request() -> None:
    sch = schedule(PAIR)
    sch.compute_at("B", sch.get_loops("C")[1], preserve_unit_loops=True)
    assert "for ax0 in 1\n      for ax1 in 1\n        block B(vi = i + ax0, vj = j + ax1)" in nest(sch)
    assert_same_results(mlcc.parse(PAIR), sch.mod)


def test_a_tile_with_its_border() -> None:
    sch = schedule(BLUR)
    sch.split(sch.get_loops("C")[0], [4, 4])
    sch.compute_at("B", sch.get_loops("C")[0])
    assert "for ax0 in 6\n    for ax1 in 8\n      block B(vi = i_0 * 4 + ax0, vj = ax1)" in nest(sch)
    assert_same_results(mlcc.parse(BLUR), sch.mod)


def test_a_tile_that_does_not_divide_gets_a_predicate() -> None:
    sch = schedule(BLUR)
    sch.split(sch.get_loops("C")[0], [None, 5])
    sch.compute_at("B", sch.get_loops("C")[0])
    assert predicate_of(sch, "B") == "i_0 * 5 + ax0 < 18"
    assert_same_results(mlcc.parse(BLUR), sch.mod)


def test_a_reduction_moves_with_its_sum() -> None:
    sch = schedule(MATMUL_RELU)
    sch.compute_at("C", sch.get_loops("D")[1])
    assert "for ax0 in 8\n      block C(vi = i, vj = j, reduce vk = ax0) with init" in nest(sch)
    assert_same_results(mlcc.parse(MATMUL_RELU), sch.mod)


def test_shared_memory_is_filled_for_all_threads() -> None:
    sch = schedule(PAIR.replace("alloc_buffer((16, 12))", 'alloc_buffer((16, 12), scope="shared")'))
    i, j = sch.get_loops("C")
    outer, inner = sch.split(j, [3, 4])
    sch.bind(i, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    sch.reorder(i, inner, outer)
    sch.compute_at("B", outer)
    assert "for ax0 in 4\n        block B(vi = i, vj = j_0 * 4 + ax0)" in nest(sch)
    sch = schedule(PAIR)
    sch.bind(sch.get_loops("C")[1], "threadIdx.x")
    sch.compute_at("B", sch.get_loops("C")[1])
    assert "block B(vi = i, vj = j)" in nest(sch)


def test_threads_fill_shared_memory_together() -> None:
    text = PAIR.replace("alloc_buffer((16, 12))", 'alloc_buffer((16, 12), scope="{}")')
    for scope, legal in (("shared", True), ("local", False)):
        sch = schedule(text.format(scope))
        i, j = sch.get_loops("C")
        sch.bind(i, "blockIdx.x")
        outer, inner = sch.split(j, [None, 4])
        sch.reorder(inner, outer)
        sch.bind(inner, "threadIdx.x")
        sch.compute_at("B", inner)
        filled = sch.get_loops("B")[-1]
        if legal:
            assert sch.get(filled).extent.value == 12
            _, threads = sch.split(filled, [None, 4])
            sch.bind(threads, "threadIdx.x")
            assert_same_results(mlcc.parse(text.format(scope)), sch.mod)
        else:
            with refused("E0634", "both would be the same index"):
                sch.bind(filled, "threadIdx.x")


def test_symbolic_extents_keep_results() -> None:
    sch = schedule(DYNAMIC)
    sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("B", sch.get_loops("C")[0])
    assert predicate_of(sch, "B") == "i_0 * 4 + ax0 < n"
    data = np.arange(48, dtype="float32").reshape(6, 8)
    one, other = np.zeros_like(data), np.zeros_like(data)
    run_prim_func(mlcc.parse(DYNAMIC)["main"], [data, one])
    run_prim_func(sch.mod["main"], [data, other])
    np.testing.assert_array_equal(one, other)


def test_symbolic_extents_that_were_fused() -> None:
    text = DYNAMIC.replace("n = T.int32()", "n, m = T.int32(), T.int32()").replace("(n, 8)", "(n, m)")
    sch = schedule(text)
    sch.fuse(*sch.get_loops("B"))
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert nest(sch).endswith("block C(vi = i_j_fused // m, vj = i_j_fused % m)")


BESIDE = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    X = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("X"):
            vi = T.axis.remap("S", [i])
            X[vi] = A[vi] + T.float32(1)
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = X[vi] * T.float32(2)
"""


@pytest.mark.parametrize(("index", "order"), [(-1, "BXC"), (-2, "XBC"), (0, "XBC"), (1, "BXC")])
def test_index_chooses_the_position(index: int, order: str) -> None:
    sch = schedule(BESIDE)
    sch.compute_at("X", sch.get_loops("C")[0], index=index)
    assert [r.block.name for r in sch.state.tree("main").realizes] == ["root", *order]
    assert_same_results(mlcc.parse(BESIDE), sch.mod)


@pytest.mark.parametrize("index", [2, 3, -3])
def test_illegal_positions_are_refused(index: int) -> None:
    sch = schedule(BESIDE)
    with refused("E0650", rf"index={index} is not .*legal values: index=0 or 1"):
        sch.compute_at("X", sch.get_loops("C")[0], index=index)


def test_places_other_than_loops_are_refused() -> None:
    sch = schedule(PAIR)
    before = sch.mod["main"]
    sch.compute_at("B", sch.state.new_loop("", ROOT))
    assert sch.mod["main"] is before
    sch.compute_at("B", sch.state.new_loop("", INLINE))
    assert [r.block.name for r in sch.state.tree("main").realizes] == ["root", "C"]


# ---------------------------------------------------------------- reverse_compute_at


def test_a_consumer_moves_up() -> None:
    sch = schedule(MATMUL_RELU)
    sch.reverse_compute_at("D", sch.get_loops("C")[0])
    assert nest(sch) == (
        "for i in 16\n  for j in 12\n    for k in 8\n      block C(vi = i, vj = j, reduce vk = k) with init\n"
        "  for ax0 in 12\n    block D(vi = i, vj = ax0)"
    )
    assert_same_results(mlcc.parse(MATMUL_RELU), sch.mod)


def test_a_consumer_of_a_tile() -> None:
    sch = schedule(PAIR)
    sch.split(sch.get_loops("B")[0], [None, 5])
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert predicate_of(sch, "C") == "i_0 * 5 + ax0 < 16"
    assert_same_results(mlcc.parse(PAIR), sch.mod)


def test_below_the_loop_of_a_sum_the_last_time_counts() -> None:
    sch = schedule(MATMUL_RELU)
    sch.reverse_compute_at("D", sch.get_loops("C")[2])
    assert_same_results(mlcc.parse(MATMUL_RELU), sch.mod)


def test_a_sum_over_what_is_finished() -> None:
    sch = schedule(TWO_SUMS)
    sch.reverse_compute_at("D", sch.get_loops("C")[1])
    assert_same_results(mlcc.parse(TWO_SUMS), sch.mod)


# ---------------------------------------------------------------- refusals


def test_a_refusal_offers_loops_that_are_legal() -> None:
    sch = schedule(PAIR)
    with pytest.raises(mlcc.CompileError) as refusal:
        sch.reverse_compute_at("C", sch.get_loops("C")[0])
    offered = re.findall(r"`(sch\..*?\))`", str(refusal.value))
    assert offered == [
        'sch.reverse_compute_at("C", sch.get_loops("B")[1])',
        'sch.reverse_compute_at("C", sch.get_loops("B")[0])',
        'sch.reverse_compute_inline("C")',
    ]
    for step in offered:
        eval(step, {"sch": sch.copy()})
    with refused("E0649", r'legal would be `sch.compute_inline\("B"\)`'):
        sch = schedule(CHAIN)
        sch.compute_at("B", sch.get_loops("C")[0])


@pytest.mark.parametrize(
    ("text", "primitive", "block", "loop", "code", "words"),
    [
        (PAIR, "compute_at", "B", ("B", 0), "E0648", "`B` is already under loop `i`"),
        (PAIR, "compute_at", "C", ("B", 0), "E0658", "writes `C`"),
        (CHAIN, "compute_at", "B", ("C", 0), "E0649", "`D`, which reads what it computes, is not under it"),
        (CHAIN, "reverse_compute_at", "D", ("B", 0), "E0649", "`C`, which computes what it reads"),
        (CHAIN, "reverse_compute_at", "B", ("D", 0), "E0650", "`C`, which reads what `B` .* before loop `i`"),
        (TWO_SUMS, "reverse_compute_at", "D", ("C", 2), "E0651", "add terms more than once"),
        (BLUR, "reverse_compute_at", "C", ("B", 0), "E0651", "cannot be told from .* of `B`: index vi to vi \\+ 2"),
    ],
)  # fmt: skip
def test_illegal_uses_are_refused(
    text: str, primitive: str, block: str, loop: tuple[str, int], code: str, words: str
) -> None:
    sch = schedule(text)
    before = sch.mod
    with refused(code, words):
        getattr(sch, primitive)(block, sch.get_loops(loop[0])[loop[1]])
    assert sch.mod["main"] is before["main"]


def test_loops_that_cover_a_part_of_an_axis() -> None:
    text = PAIR.replace("T.grid(16, 12)", "T.grid(16, 10)").replace(
        '        with T.block("C"):\n            vi, vj = T.axis.remap("SS", [i, j])',
        '        with T.block("C"):\n            vi = T.axis.spatial(16, i)\n            vj = T.axis.spatial(12, j)',
    )
    sch = schedule(text)
    with refused("E0651", "a part of its axis `vj` only"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


TRANSPOSED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((SIZE, 16), "float32"), C: T.Buffer((16, SIZE), "float32")):
    D = T.sblock_alloc_buffer((SIZE, 16))
    for i, j in T.grid(SIZE, 16):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in T.grid(SIZE, 16):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vj, vi] = D[vi, vj]
"""


@pytest.mark.parametrize("size", [96, 100, 404])
def test_a_copy_for_tiles_of_which_the_last_is_cut_off_twice(size: int) -> None:
    """Each thread takes 10 rows in steps of 4: what it reads is a minimum of what the copy has, and of its own end."""
    text = TRANSPOSED.replace("SIZE", str(size))
    sch = schedule(text)
    i, j = sch.get_loops("C")
    i, inner = sch.split(i, [None, 10])
    outer, thread = sch.split(i, [None, 8])
    tile, column = sch.split(j, [None, 4])
    sch.reorder(outer, tile, thread, column, inner)
    sch.split(inner, [None, 4])
    copy = sch.cache_read("C", 0, "shared")
    sch.compute_at(copy, tile)
    sch.split(sch.fuse(*sch.get_loops(copy)[2:]), [None, 4, 4, 10])
    sch.compute_inline("D")
    assert_same_results(mlcc.parse(text), sch.mod)


PARTIAL = """
@T.prim_func(s_tir=True)
def main(a: T.handle, B: T.Buffer((T.int64(4),), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (T.int64(4), n))
    P = T.sblock_alloc_buffer((T.int64(4), T.int64(16)))
    for i, k in T.grid(T.int64(4), T.int64(16)):
        with T.sblock("P"):
            vi, vk = T.axis.remap("SS", [i, k])
            T.where(k < n)
            P[vi, vk] = A[vi, vk] * T.float32(2)
    for i, k in T.grid(T.int64(4), T.int64(16)):
        with T.sblock("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k < n)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + P[vi, vk]
"""


def test_a_condition_that_the_axes_do_not_tell() -> None:
    """The new loops of `B` would read what `P` leaves out."""
    sch = schedule(PARTIAL)
    with refused("E0651", "`B` runs only where `k < n`"):
        sch.reverse_compute_at("B", sch.get_loops("P")[0])


def test_the_only_block_of_a_scope() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.remap("S", [i])
            B = T.alloc_buffer((4,))
            for j in range(4):
                with T.block("B"):
                    vj = T.axis.remap("S", [j])
                    B[vj] = A[vi, vj]
            for j in range(4):
                with T.block("C"):
                    vj = T.axis.remap("S", [j])
                    C[vi, vj] = B[vj]
"""
    sch = schedule(text)
    with refused("E0648", "loop `i` is in block `root`, but block `B` is in block `outer`"):
        sch.compute_at("B", sch.get_loops("outer")[0])
    sch.compute_at("B", sch.get_loops("C")[0])
    assert_same_results(mlcc.parse(text), sch.mod)


TAILED = """
@T.prim_func
def main(A: T.Buffer((3, 21), "float32"), C: T.Buffer((3, 8), "float32"), D: T.Buffer((3, 21), "float32")):
    B = T.alloc_buffer((3, 21))
    for i, j in T.grid(3, 21):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, l, k in T.grid(3, 8, 3):
        with T.block("C"):
            vi, vl, vk = T.axis.remap("SSR", [i, l, k])
            with T.init():
                C[vi, vl] = T.float32(0)
            C[vi, vl] = C[vi, vl] + T.if_then_else(vk * 8 + vl < 21, B[vi, vk * 8 + vl], T.float32(0))
    for i, j in T.grid(3, 21):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj]
"""


def test_tiles_whose_last_is_cut_off() -> None:
    """All 8 lanes are there in the other tiles; the last element of the last one says nothing about those."""
    sch = schedule(TAILED)
    step, _ = sch.split(sch.get_loops("B")[1], [None, 8])
    sch.reverse_compute_at("C", step)
    assert sch.get(sch.get_loops("C")[-1]).extent.value == 8
    sch.decompose_reduction("C", step)
    assert_same_results(mlcc.parse(TAILED), sch.mod)


def test_what_is_needed_ends_within_a_tile() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4, 32), "float32"), C: T.Buffer((4, 21), "float32")):
    B = T.alloc_buffer((4, 32))
    for i, j, k in T.grid(4, 4, 8):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj * 8 + vk] = A[vi, vj * 8 + vk] * T.float32(2)
    for i, j in T.grid(4, 21):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
"""
    sch = schedule(text)
    sch.compute_at("B", sch.get_loops("C")[0])
    assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("pad", [(0, 1), (1, 1), (0, 0)])
def test_a_consumer_that_pads_keeps_its_edges(pad: tuple[int, int]) -> None:
    before, after = pad
    text = f"""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer(({8 + before + after},), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range({8 + before + after}):
        with T.block("C"):
            vi = T.axis.spatial({8 + before + after}, i)
            C[vi] = T.if_then_else({before} <= vi and vi < {8 + before}, B[vi - {before}], T.float32(0))
"""
    sch = schedule(text)
    outer, _ = sch.split(sch.get_loops("B")[0], [2, 4])
    if pad == (0, 0):
        sch.reverse_compute_at("C", outer)
    else:
        with refused("E0651", "omit a part of its axis `vi`"):
            sch.reverse_compute_at("C", outer)
    assert_same_results(mlcc.parse(text), sch.mod)
