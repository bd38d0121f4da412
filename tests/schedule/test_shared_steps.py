"""Copies of a schedule that share steps come to what they come to alone."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.passes.schedule import step_memo
from mlcc.passes.schedule.schedule import Schedule

TEXT = """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
    C = T.alloc_buffer((64, 32), "float32")
    for i, j in T.grid(64, 32):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(64, 32):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + 1.0
"""


def tiled(sch: Schedule, rows: int, pad: float = 0.0) -> None:
    """A few steps of all kinds of arguments: names, handles, lists, None, an index map, a constant."""
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    outer, inner = sch.split(i, factors=[None, rows])
    sch.reorder(outer, j, inner)
    sch.compute_at("C", outer)
    a, b = tir.Var("a", "int32"), tir.Var("b", "int32")
    sch.transform_layout("C", ("write", 0), tir.IndexMap((a, b), (b, a)), tir.FloatImm(tir.DType.of("float32"), pad))
    sch.vectorize(inner)


def shared() -> Schedule:
    sch = Schedule(mlcc.parse(TEXT), seed=0)
    sch.share_steps()
    return sch


@pytest.mark.parametrize("rows", [(2, 4, 2), (8, 8)])
def test_copies_come_to_the_same_as_alone(rows: tuple[int, ...]) -> None:
    start = shared()
    for one in rows:
        mine, alone = start.copy(), Schedule(mlcc.parse(TEXT), seed=0)
        tiled(mine, one)
        tiled(alone, one)
        assert structural_equal(mine.mod, alone.mod)
        assert str(mine.trace) == str(alone.trace)


def test_a_step_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    usual = Schedule._call
    monkeypatch.setattr(Schedule, "_call", lambda self, name, *given: done.append(name) or usual(self, name, *given))
    start = shared()
    tiled(start.copy(), 2)
    before = len(done)
    tiled(start.copy(), 2)
    assert len(done) == before
    tiled(start.copy(), 4)  # from the split on
    assert done[before] == "split"


def test_another_constant_is_another_step() -> None:
    start = shared()
    first, second = start.copy(), start.copy()
    tiled(first, 2)
    tiled(second, 2, pad=1.0)
    assert "1" in str(second.trace).rpartition("transform_layout")[2].partition("\n")[0]
    assert str(first.trace) != str(second.trace)


def test_lists_that_are_returned_are_the_callers() -> None:
    start = shared()
    loops = start.copy()
    found = loops.get_loops(loops.get_block("B"))
    found.clear()
    again = start.copy()
    assert len(again.get_loops(again.get_block("B"))) == 2


def test_a_refused_step_leaves_the_place() -> None:
    start = shared()
    one = start.copy()
    block = one.get_block("B")
    with pytest.raises(CompileError):
        one.reorder(*one.get_loops(block), one.get_loops(block)[0])
    alone = Schedule(mlcc.parse(TEXT), seed=0)
    for sch in (one, alone):
        sch.fuse(*sch.get_loops(sch.get_block("B")))
    assert structural_equal(one.mod, alone.mod)


def test_what_is_drawn_is_drawn_anew() -> None:
    start = shared()
    drawn = set()
    for _ in range(16):
        sch = start.copy()
        drawn.add(sch.get(sch.sample_categorical([1, 2, 3, 4], [0.25] * 4)))
    assert len(drawn) > 1


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_memo, "MAX_STEPS", 3)
    start = shared()
    for rows in (2, 4, 8, 2):
        mine, alone = start.copy(), Schedule(mlcc.parse(TEXT), seed=0)
        tiled(mine, rows)
        tiled(alone, rows)
        assert structural_equal(mine.mod, alone.mod)
