"""Generated arithmetic of extents: evaluated while a model is imported, as the reference evaluator has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.frontend import from_onnx
from mlcc.interp import run_function
from tests.frontend.onnx_models import FLOAT, model, node

pytestmark = pytest.mark.usefixtures("onnx")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["Add", "Sub", "Mul", "Min", "Max"]), st.integers(-5, 5)),
        st.tuples(st.just("Div"), st.sampled_from([-3, -2, 2, 5])),
        st.tuples(st.just("Mod"), st.sampled_from([-4, 2, 3])),
        st.tuples(st.sampled_from(["Neg", "Abs", "Sign"]), st.none()),
        st.tuples(st.just("Slice"), st.sampled_from([(0, 2, 1), (-1, -100, -1), (1, 9, 2)])),
        st.tuples(st.just("Concat"), st.integers(-3, 3)),
        st.tuples(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceProd"]), st.none()),
        st.tuples(st.just("Where"), st.integers(0, 6)),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_arithmetic_of_extents_agrees(steps: list[tuple[str, Any]]) -> None:
    from onnx.reference import ReferenceEvaluator

    nodes, constants = [node("Shape", ["x"], ["v0"])], {}
    for i, (operator, operand) in enumerate(steps):
        made = [f"v{i + 1}"]
        if operator == "Slice":
            names = [f"{i}_{part}" for part in ("start", "end", "axis", "step")]
            begin, end, step = operand
            constants.update(zip(names, (np.array([n]) for n in (begin, end, 0, step)), strict=True))
            nodes.append(node("Slice", [f"v{i}", *names], made))
        elif operator == "Where":
            constants[f"c{i}"] = np.array(operand)
            nodes.append(node("Greater", [f"v{i}", f"c{i}"], [f"b{i}"]))
            nodes.append(node("Where", [f"b{i}", f"v{i}", f"c{i}"], made))
        elif operand is None:
            nodes.append(node(operator, [f"v{i}"], made))
        else:
            constants[f"c{i}"] = np.array([operand]) if operator == "Concat" else np.array(operand)
            attributes = {"axis": 0} if operator == "Concat" else {}
            nodes.append(node(operator, [f"v{i}", f"c{i}"], made, **attributes))
    last = f"v{len(steps)}"
    graph = model(nodes, {"x": (FLOAT, ["n", 3, "m"])}, {last: ("int64", None)}, constants)
    module = from_onnx(graph)
    for shape in ((1, 3, 4), (7, 3, 2)):
        x = np.zeros(shape, "float32")
        expected = ReferenceEvaluator(graph).run(None, {"x": x})[0]
        np.testing.assert_array_equal(np.asarray(run_function(module, "main", [x])), expected)
