"""After every step the module verifies, with blocks around the changed ones, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mlcc
from mlcc.verify import verify

TEXT = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    B = T.alloc_buffer((16, 16))
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi // 4 + vj // 4, vj // 2]
    for i, j in T.grid(16, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[T.max(vi - 1, 0), vj] + T.float32(1)
"""


def reindex_of_a_cached_index(sch: mlcc.Schedule) -> None:
    sch.cache_index("B", "global")
    sch.reindex("B", ("read", 0))
    sch.reindex("B", ("write", 0))


def cached_index_in_a_block(sch: mlcc.Schedule) -> None:
    sch.blockize(sch.get_loops("D")[0])
    sch.cache_index("B", "global")
    sch.blockize(sch.get_loops("B")[1])
    sch.cache_read("B_o", 0, "global")


def copy_in_a_block(sch: mlcc.Schedule) -> None:
    sch.blockize(sch.get_loops("D")[0])
    sch.read_at(sch.get_loops("D")[0], "D", 0, "global")


@pytest.mark.parametrize(
    "steps", [reindex_of_a_cached_index, cached_index_in_a_block, copy_in_a_block], ids=lambda f: f.__name__
)
def test_every_step_verifies(steps: Callable[[mlcc.Schedule], None]) -> None:
    sch = mlcc.Schedule(mlcc.parse(TEXT))
    steps(sch)
    assert not verify(sch.mod)
    mlcc.build(sch.mod, "llvm", opt_level=0)


def test_a_part_of_a_loop_stays_in_the_loops_that_it_uses() -> None:
    sch = mlcc.Schedule(mlcc.parse(TEXT.replace("T.max(vi - 1, 0), vj", "vi // 4 + vj // 4, vj // 2")))
    sch.loop_partition(sch.get_loops("B")[1], [12])
    sch.blockize(sch.get_loops("D")[1])
    with pytest.raises(mlcc.CompileError, match="uses the loop variable `i` directly"):
        sch.reverse_compute_at("B_j_common", sch.get_loops("D_o")[0])
    assert not verify(sch.mod)


def test_neighbours_of_which_one_stands_in_no_loop() -> None:
    sch = mlcc.Schedule(mlcc.parse(TEXT))
    sch.loop_partition(sch.get_loops("B")[0], [4])
    with pytest.raises(mlcc.CompileError, match="E06"):
        sch.blockize([sch.get_block("B_i_common"), sch.get_block("D")])
    with pytest.raises(mlcc.CompileError, match="E06"):
        sch.blockize([sch.get_block("B_i1"), sch.get_block("D")])
