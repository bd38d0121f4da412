"""read_at and write_at: one copying block in a loop."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from tests.schedule.test_cache_read import UNDER_ONE_LOOP, reads
from tests.schedule.tools import CHAIN, MATMUL, assert_same_results, refused, schedule


def test_read_what_one_iteration_reads() -> None:
    sch = schedule(MATMUL)
    i, j, _ = sch.get_loops("C")
    copy = sch.read_at(j, "C", 0, "shared")
    made = sch.get(copy)
    assert made.name == "A_shared" and dict(made.annotations) == {"auto_copy": True}
    assert str(made.reads[0]) == "A[v0, 0:24]" and [a.var.name for a in made.iter_vars] == ["v0"]
    assert sch.get(j).body[0].block is made
    assert reads(sch, "C") == ["A_shared", "B"]
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_write_what_one_iteration_writes() -> None:
    sch = schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    copy = sch.write_at(i, "C", "C", "local")
    assert str(sch.get(copy).writes[0]) == "C[v0, 0:16]"
    assert sch.get(i).body[-1].block is sch.get(copy)
    assert "write_buffer_index=0" in str(sch.trace)
    assert_same_results(mlcc.parse(MATMUL), sch.mod)
    sch = schedule(MATMUL)
    sch.write_at(sch.get_loops("C")[2], "C", 0, "local")  # the sum so far, after each step
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_tiles_are_copied_by_one_block() -> None:
    sch = schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, factors=[None, 8])
    k0, k1 = sch.split(k, factors=[None, 6])
    sch.reorder(i0, k0, i1, j, k1)
    a = sch.read_at(k0, "C", 0, "shared")
    assert str(sch.get(a).reads[0]) == "A[v0 * 8:v0 * 8 + 8, v1 * 6:v1 * 6 + 6]"
    sch.read_at(i0, "C", 1, "shared")
    sch.write_at(i0, "C", 0, "local")
    assert_same_results(mlcc.parse(MATMUL), sch.mod)


def test_copies_go_between_writer_and_reader() -> None:
    sch = schedule(UNDER_ONE_LOOP)
    i = sch.get_loops("C")[0]
    copy = sch.read_at(i, "C", 0, "shared")
    assert sch.get(i).body[1].block is sch.get(copy)
    assert reads(sch, "C") == ["B_shared"] and reads(sch, "D") == ["B"]
    assert_same_results(mlcc.parse(UNDER_ONE_LOOP), sch.mod)


def test_illegal_uses_are_refused() -> None:
    sch = schedule(CHAIN)
    loop = sch.get_loops("B")[0]
    with refused("E0644", "nothing in the loop `i` reads `C`"):
        sch.read_at(loop, "D", 0, "shared")
    with refused("E0644", "nothing in the loop `i` writes `C`"):
        sch.write_at(loop, "C", 0, "shared")
    with refused("E0641"):
        sch.read_at(loop, "B", 0, "sharp")
    sch = schedule(UNDER_ONE_LOOP)
    i = sch.get_loops("C")[0]
    with refused("E0644", "block `C` reads `B` after block `B` has written it"):
        sch.write_at(i, "B", 0, "shared")
    update = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] + A[vi]
"""
    with refused("E0644", "block `B` reads `B` before anything there writes it"):
        sch = schedule(update)
        sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
    with refused("E0644", "block `B` writes `B` after block `B` reads it"):
        sch = schedule(update)
        sch.read_at(sch.get_loops("B")[0], "B", 0, "local")


def test_a_loop_in_a_block() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(4):
        with T.block("tile"):
            vio = T.axis.spatial(4, i)
            T.reads(A[vio * 4:vio * 4 + 4])
            T.writes(B[vio * 4:vio * 4 + 4])
            for k in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(16, vio * 4 + k)
                    B[vi] = A[vi]
"""
    sch = schedule(text)
    copy = sch.read_at(sch.get_loops("B")[0], "B", 0, "local")
    assert isinstance(sch.get(copy), tir.Block)
    assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("step", ["read_at", "write_at"])
def test_a_copy_stays_in_the_buffer(step: str) -> None:
    sch = schedule("""
@T.prim_func
def main(A: T.Buffer((7, 4), "float32"), B: T.Buffer((7, 4), "float32")):
    for i_0, i_1, j in T.grid(1, 8, 4):
        with T.block("B"):
            vi = T.axis.spatial(7, i_0 * 8 + i_1)
            vj = T.axis.spatial(4, j)
            T.where(i_0 * 8 + i_1 < 7)
            B[vi, vj] = A[vi, vj] + T.float32(1)
""")
    with pytest.raises(mlcc.CompileError, match="E0644.*dimension 0 has 7 elements"):
        getattr(sch, step)(sch.get_loops("B")[1], "B", 0, "local")


SYMBOLIC = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, WIDTH), "float32")
    C = T.match_buffer(c, (n, WIDTH), "float32")
    for i, j in T.grid(n, WIDTH):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
"""


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("factors", [[None, 4], [4, None]])
@pytest.mark.parametrize("primitive", ["read_at", "write_at"])
def test_copies_stay_inside_dimensions_of_unknown_size(primitive: str, factors: list[int | None], at: int) -> None:
    """Loops that leave a rest, under a condition, run beyond the buffer."""
    for width, rest in (("n", True), ("n * 16", False)):
        sch = schedule(SYMBOLIC.replace("WIDTH", width))
        sch.split(sch.get_loops("C")[1], factors)
        step = getattr(sch, primitive)
        if rest:
            with refused("E0644", "would leave `[AC]`: dimension 1 has n elements"):
                step(sch.get_loops("C")[at], "C", 0, "local")
            continue
        step(sch.get_loops("C")[at], "C", 0, "local")
        given = np.random.default_rng(0).random((3, 48), np.float32)
        result = np.zeros_like(given)
        run_prim_func(sch.mod["main"], [given, result])
        np.testing.assert_array_equal(result, given * 2)
