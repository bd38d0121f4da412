"""rolling_buffer."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import assert_same_results, refused

POOLS = """
@T.prim_func
def main(A: T.Buffer((14, 14), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((10, 10))
    for i0, i1 in T.grid(2, 2):
        for ax0, ax1, u, v in T.grid(6, 6, 3, 3):
            with T.block("B"):
                vi = T.axis.spatial(10, i0 * 4 + ax0)
                vj = T.axis.spatial(10, i1 * 4 + ax1)
                vu, vv = T.axis.remap("RR", [u, v])
                with T.init():
                    B[vi, vj] = T.float32(-1000)
                B[vi, vj] = T.max(B[vi, vj], A[vi + vu, vj + vv])
        for ax0, ax1, u, v in T.grid(4, 4, 3, 3):
            with T.block("C"):
                vi = T.axis.spatial(8, i0 * 4 + ax0)
                vj = T.axis.spatial(8, i1 * 4 + ax1)
                vu, vv = T.axis.remap("RR", [u, v])
                with T.init():
                    C[vi, vj] = T.float32(-1000)
                C[vi, vj] = T.max(C[vi, vj], B[vi + vu, vj + vv])
"""


def test_two_pools_keep_results() -> None:
    sch = mlcc.Schedule(mlcc.parse(POOLS))
    sch.rolling_buffer("B", 0)
    assert_same_results(mlcc.parse(POOLS), sch.mod)
    root = sch.get(sch.get_block("root"))
    assert [n.value for n in root.alloc_buffers[0].shape] == [6, 10]
    assert "T.where((i0 < 1 or 2 <= ax0) and (i1 < 1 or 2 <= ax1))" in sch.mod.script()
    mlcc.parse(sch.mod.script())


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("T.grid(2, 2)", "T.grid(2, 2)"), "E0658", "writes `C`"),
        (("for i0, i1 in T.grid(2, 2)", "for i1 in range(2):\n      for i0 in T.parallel(2)"), "E0682", "serial"),
        (("i0 * 4 + ax0", "ax0"), "E0682", "no loop moves"),
    ],
)
def test_illegal_uses_are_refused(change: tuple[str, str], code: str, words: str) -> None:
    text = POOLS.replace(*change)
    if code == "E0682" and "no loop" in words:
        text = text.replace("i1 * 4 + ax1", "ax1")
    sch = mlcc.Schedule(mlcc.parse(text) if "parallel" not in text else mlcc.parse(text.replace("T.parallel", "range")))
    with refused(code, words):
        if "serial" in words:
            sch.parallel(sch.get_loops("B")[1])
        sch.rolling_buffer("C" if code == "E0658" else "B", 0)


def test_blocks_without_a_common_loop_are_refused() -> None:
    text = POOLS.replace(
        "        for ax0, ax1, u, v in T.grid(4, 4", "    for i0, i1, ax0, ax1, u, v in T.grid(2, 2, 4, 4"
    )
    sch = mlcc.Schedule(mlcc.parse(text))
    with refused("E0682", "block `B` and its readers `C` are not in a common loop"):
        sch.rolling_buffer("B", 0)
