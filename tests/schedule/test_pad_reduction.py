"""pad_reduction: reductions over axes that are rounded up."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule

ROWS = """
@T.prim_func
def main(x: T.Buffer((3, 21), "{dtype}"), y: T.Buffer((3,), "{dtype}")):
    for i, k in T.grid(3, 21):
        with T.block("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = {start}
            y[vi] = {update}
"""
REDUCTIONS = [
    ("float32", "T.float32(0)", "y[vi] + x[vi, vk]"),
    ("int32", "1", "y[vi] * x[vi, vk]"),
    ("int32", "-2147483648", "T.max(y[vi], x[vi, vk] * 2)"),
    ("float32", 'T.max_value("float32")', "T.min(y[vi], x[vi, vk])"),
]
PLACES = """
@T.prim_func
def main(x: T.Buffer((3, 21), "float32"), place: T.Buffer((3,), "int32"), y: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 21):
        with T.block("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                place[vi] = -1
                y[vi] = T.min_value("float32")
            v_place: T.int32 = T.Select(y[vi] >= x[vi, vk], place[vi], vk)
            v_y: T.float32 = T.Select(y[vi] >= x[vi, vk], y[vi], x[vi, vk])
            place[vi] = v_place
            y[vi] = v_y
"""


def texts() -> list[str]:
    return [PLACES, *(ROWS.format(dtype=d, start=s, update=u) for d, s, u in REDUCTIONS)]


@pytest.mark.parametrize("text", texts())
@pytest.mark.parametrize("multiple", [1, 2, 8, 21, 64])
def test_any_reduction_over_any_multiple(text: str, multiple: int) -> None:
    sch = schedule(text)
    loop = sch.get_loops("y")[1]
    sch.pad_reduction(loop, multiple)
    assert sch.get(sch.get_loops("y")[1]).extent.value == -(-21 // multiple) * multiple
    assert_same_results(mlcc.parse(text), sch.mod)
    _, lane = sch.split(sch.get_loops("y")[1], [None, multiple])
    sch.rfactor(lane, 1)
    assert "T.where" not in sch.mod.script()
    assert_same_results(mlcc.parse(text), sch.mod)
    mlcc.build(sch.mod)


def test_a_multiple_changes_nothing() -> None:
    sch = schedule(texts()[1])
    sch.pad_reduction(sch.get_loops("y")[1], 7)
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(texts()[1]))


@pytest.mark.parametrize(
    ("old", "new", "loop", "multiple", "code"),
    [
        ("", "", 1, 0, "E0673"),
        ("", "", 1, 1 << 40, "E0673"),
        ("", "", 0, 8, "E0674"),
        ("T.float32(0)", "T.float32(2)", 1, 8, "E0669"),
        ("y[vi] + x[vi, vk]", "y[vi] * T.float32(2) + x[vi, vk]", 1, 8, "E0669"),
        ("T.grid(3, 21)", "T.grid(3, 20)", 1, 8, None),
    ],
)
def test_illegal_uses_are_refused(old: str, new: str, loop: int, multiple: int, code: str | None) -> None:
    text = texts()[1].replace(old, new)
    sch = schedule(text)
    if code is None:
        sch.pad_reduction(sch.get_loops("y")[loop], multiple)
        assert_same_results(mlcc.parse(text), sch.mod)
        return
    with refused(code):
        sch.pad_reduction(sch.get_loops("y")[loop], multiple)


def test_a_loop_that_is_a_part_of_an_axis() -> None:
    sch = schedule(MATMUL)
    outer, _ = sch.split(sch.get_loops("C")[2], [None, 4])
    with refused("E0674", "does not drive one reduce axis"):
        sch.pad_reduction(outer, 4)
