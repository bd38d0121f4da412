"""fuse_reduction_epilogue: sums that start at what is added to them."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import assert_same_results, refused, schedule

HEAD = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((6, 10), "float32"), bias: T.Buffer((10,), "float32"),
         D: T.Buffer((8, 10), "float32"), E: T.Buffer((8, 10), "float32")):
    C = T.alloc_buffer((8, 10))
    S = T.alloc_buffer((10,))
    for i, j, k in T.grid(8, 10, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
EPILOGUE = """
    for i, j in T.grid(8, 10):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = {}
"""
SCALED = """
    for j in range(10):
        with T.block("S"):
            vj = T.axis.remap("S", [j])
            S[vj] = bias[vj] * T.float32(2)
"""
OTHER = """
    for i, j in T.grid(8, 10):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = C[vi, vj]
"""


def text(value: str, between: str = "", after: str = "") -> str:
    return HEAD + between + EPILOGUE.format(value) + after


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("C[vi, vj] + bias[vj]", "bias[vj]"),
        ("bias[vj] + C[vi, vj]", "bias[vj]"),
        ("C[vi, vj]", "T.float32(0.0)"),
        ("C[vi, vj] + bias[vj] + T.float32(1)", "bias[vj] + T.float32(1.0)"),
        ("bias[vj] * bias[vj] + C[vi, vj]", "bias[vj] * bias[vj]"),
    ],
)
def test_what_is_added_is_the_start(value: str, start: str) -> None:
    sch = schedule(text(value))
    kept, gone = sch.get_block("C"), sch.get_block("D")
    sch.fuse_reduction_epilogue(kept, gone)
    block = sch.get(kept)
    assert [str(s) for s in block.init] == [f"D[vi, vj] = {start}"]
    assert [str(s) for s in block.body] == ["D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vk, vj]"]
    assert [r.block.name for r in sch.state.tree("main").realizes] == ["root", "C"]
    with refused("E0611", "fuse_reduction_epilogue"):
        sch.get(gone)
    assert_same_results(mlcc.parse(text(value)), sch.mod)
    assert str(sch.trace).splitlines()[-1].strip().endswith("(reduction_block=b0, epilogue_block=b1)")


def test_a_sum_that_starts_elsewhere() -> None:
    source = text("C[vi, vj] + bias[vj]").replace("C[vi, vj] = T.float32(0)", "C[vi, vj] = T.float32(0) * T.float32(1)")
    sch = schedule(source)
    sch.fuse_reduction_epilogue("C", "D")
    assert_same_results(mlcc.parse(source), sch.mod)


def test_an_output_that_is_transposed() -> None:
    source = (
        text("C[vi, vj] + bias[vj]")
        .replace("D: T.Buffer((8, 10)", "D: T.Buffer((10, 8)")
        .replace("D[vi, vj] = C", "D[vj, vi] = C")
    )
    sch = schedule(source)
    sch.fuse_reduction_epilogue("C", "D")
    assert_same_results(mlcc.parse(source), sch.mod)
    source = text("C[vj, vi] + bias[vi]").replace(
        'T.grid(8, 10):\n        with T.block("D")', 'T.grid(10, 8):\n        with T.block("D")'
    )
    source = source.replace("D[vi, vj] = C", "D[vj, vi] = C")
    sch = schedule(source)
    sch.fuse_reduction_epilogue("C", "D")
    assert_same_results(mlcc.parse(source), sch.mod)


def test_clipping_only_when_asked_for() -> None:
    source = text("T.max(C[vi, vj] + bias[vj], T.float32(0))")
    sch = schedule(source)
    with refused("E0652", r"it clips.*after every addition.*every_step=True"):
        sch.fuse_reduction_epilogue("C", "D")
    sch.fuse_reduction_epilogue("C", "D", every_step=True)
    block = sch.get(sch.get_block("C"))
    assert str(block.init[0]) == "D[vi, vj] = T.max(bias[vj], T.float32(0.0))"
    assert str(block.body[0]) == "D[vi, vj] = T.max(D[vi, vj] + A[vi, vk] * B[vk, vj], T.float32(0.0))"


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (text("C[vi, vj] * T.float32(2)"), "E0652", "does more than add"),
        (text("bias[vj] - C[vi, vj]"), "E0652", "does more than add"),
        (text("T.exp(C[vi, vj])"), "E0652", "does more than add"),
        (text("C[vi, vj] + C[vi, vj]"), "E0652", "loads 2 elements of `C`"),
        (text("C[vi, vj] + bias[vj]", after=OTHER), "E0646", "`E` reads it too"),
        (text("C[vi, vj] + S[vj]", between=SCALED), "E0652", "not computed before `C` starts"),
        (text("C[vi, vj]").replace('D: T.Buffer((8, 10), "float32")', 'D: T.Buffer((8, 10), "float64")')
         .replace("= C[vi, vj]\n", '= T.Cast("float64", C[vi, vj])\n'), "E0652", "from float32 to float64"),
        (text("C[vi, vj]").replace("C[vi, vj] + A[vi, vk] * B[vk, vj]", "T.max(C[vi, vj], A[vi, vk])"), "E0669", ""),
    ],
)  # fmt: skip
def test_illegal_uses_are_refused(source: str, code: str, words: str) -> None:
    sch = schedule(source)
    before = sch.mod
    with refused(code, words):
        sch.fuse_reduction_epilogue("C", "D")
    assert sch.mod["main"] is before["main"]


def test_other_kinds_of_blocks_are_refused() -> None:
    sch = schedule(text("C[vi, vj] + S[vj]", between=SCALED))
    with refused("E0656", "`S` is not a reduction"):
        sch.fuse_reduction_epilogue("S", "D")
    with refused("E0656", "`C` is not complete"):
        sch.fuse_reduction_epilogue("C", "C")
