"""The same seed gives the same choices here and in TVM."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((128, 96), "float32"), B: T.Buffer((128, 96), "float32")):
    for i, j in T.grid(128, 96):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""


def choices(sch: object) -> list[object]:
    i, j = sch.get_loops(sch.get_sblock("B"))
    made = [sch.get(v) for v in sch.sample_perfect_tile(i, 2)]
    made += [sch.get(v) for v in sch.sample_perfect_tile(j, 4, max_innermost_factor=64)]
    made += [sch.get(sch.sample_categorical([10, 20, 30], [0.2, 0.3, 0.5])) for _ in range(4)]
    made += [sch.get(v) for v in sch.sample_partitioned_tile(j, 3, 1, 8)]
    copy = sch.copy()
    made += [copy.get(v) for v in copy.sample_perfect_tile(i, 5, max_innermost_factor=-1)]
    return [*made, sch.fork_seed()]


@pytest.mark.parametrize("seed", [1, 2, 3, 77, 12345, 999999937, 2**31 - 2, 2**31 - 1])
def test_same_seed_gives_the_same_choices(seed: int) -> None:
    theirs = to_tvm(mlcc.script(mlcc.parse(PROGRAM), dialect="tvm"))
    ours = mlcc.Schedule(from_tvm(theirs), seed=seed)
    assert choices(ours) == choices(tvm.s_tir.Schedule(theirs, seed=seed))
