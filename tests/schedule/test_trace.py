"""The text of traces: whatever a step was given, the text gives it again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from tests.schedule.tools import MATMUL, schedule


def assert_replays(sch: mlcc.Schedule, text: str = MATMUL) -> None:
    """The printed trace, and the trace itself, give the same module."""
    mlcc.assert_structural_equal(mlcc.apply_schedule(mlcc.parse(text), str(sch.trace)), sch.mod)
    other = schedule(text)
    sch.trace.apply_to_schedule(other)
    mlcc.assert_structural_equal(other.mod, sch.mod)


@pytest.mark.parametrize(
    "value",
    [
        'q"u\'o\\te\n\t', "nul\0bell\7", "\u2028", "é漢😀", "{x}", "", 1.5, -0.0, 5e-324, math.inf, -math.inf, math.nan,
        True, -3, 1 << 70, [1, [2, ["a", []]]], (), ("a",), {}, {"a": {"b": [1.5, -math.inf]}}, np.int64(3),
        np.float64(0.5), np.float32(0.5), np.bool_(True), np.array(7), [np.int32(1)],
        tir.IntImm(DType.of("int64"), -3), tir.FloatImm(DType.of("float32"), math.inf), tir.StringImm('a"b'),
    ],
    ids=repr,
)  # fmt: skip
def test_values_of_annotations_survive_the_text(value: object) -> None:
    sch = schedule(MATMUL)
    sch.annotate("C", 'k"\\ey', value)
    assert_replays(sch)


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.split(s.get_loops("C")[0], factors=[np.int64(4), None]),
        lambda s: s.split(s.get_loops("C")[0], factors=[tir.IntImm(DType.of("int32"), 4), None]),
        lambda s: s.sample_categorical([np.int32(1), 2], [np.float64(0.5), 0.5]),
        lambda s: s.transform_layout("C", "A", lambda T, i: (i, T % 4, T // 4)),
        lambda s: s.transform_layout("C", "A", lambda *i: (i[1], i[0])),
        lambda s: s.transform_layout("C", "A", lambda i, j: (i, "axis_separator", j)),
        lambda s: s.transform_layout("C", ("read", 0), lambda i, j: (i // 5, j, i % 5), pad_value=math.inf),
        lambda s: s.transform_block_layout("C", lambda i, j, k: (i * 16 + j, k)),
    ],
)
def test_arguments_survive_the_text(step: Callable[[mlcc.Schedule], Any]) -> None:
    sch = schedule(MATMUL)
    step(sch)
    assert_replays(sch)


def test_names_of_an_index_map_are_told_apart() -> None:
    sch = schedule(MATMUL)
    one, other = (tir.Var("i", DType.of("int32")) for _ in range(2))
    sch.transform_layout("C", "A", tir.IndexMap((one, other), (other, one)))
    assert "index_map=lambda i, i_1: (i_1, i)," in str(sch.trace)
    assert_replays(sch)


def test_what_the_caller_changes_later_is_not_recorded() -> None:
    sch = schedule(MATMUL)
    factors: list[int | None] = [4, None]
    notes: dict[str, Any] = {"a": [1]}
    sch.split(sch.get_loops("C")[0], factors=factors)
    sch.annotate("C", "k", notes)
    before = str(sch.trace)
    factors[0] = 8
    notes["a"].append(2)
    notes["b"] = 3
    assert str(sch.trace) == before
    assert_replays(sch)


@pytest.mark.parametrize("spelling", ["IndexMap.AXIS_SEPARATOR", "tvm.tir.IndexMap.AXIS_SEPARATOR", '"axis_separator"'])
def test_axis_separators_in_a_script(spelling: str) -> None:
    made = mlcc.apply_schedule(mlcc.parse(MATMUL), f'sch.transform_layout("C", "A", lambda i, j: (i, {spelling}, j))')
    assert made["main"].buffers[0].axis_separators == (1,)
