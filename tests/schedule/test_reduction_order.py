"""Loops that spatial and reduce axes share keep their order while the block has an init."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import MATMUL, assert_same_results, schedule


def fused(sch: mlcc.Schedule) -> list[object]:
    return sch.split(sch.fuse(*sch.get_loops("C")), factors=[None, 7])


def test_the_init_must_stay_first() -> None:
    sch = schedule(MATMUL)
    outer, inner = fused(sch)
    before = sch.mod
    with pytest.raises(mlcc.CompileError, match="E0633"):
        sch.reorder(inner, outer)
    assert sch.mod["main"] is before["main"]


def test_without_init_they_may_move() -> None:
    sch = schedule(MATMUL)
    before = sch.mod
    i, _, _ = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    loops = sch.get_loops("C_update")
    outer, inner = sch.split(sch.fuse(*loops), factors=[None, 7])
    sch.reorder(inner, outer)
    assert_same_results(before, sch.mod)


def test_loops_of_reduce_axes_alone_may_move() -> None:
    sch = schedule(MATMUL)
    before = sch.mod
    i, j, k = sch.get_loops("C")
    k0, k1 = sch.split(k, factors=[None, 5])
    sch.reorder(k1, j, k0, i)
    assert_same_results(before, sch.mod)
