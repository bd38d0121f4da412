"""ONNX graphs in which exporters write operators out: what they become, against the evaluator of ONNX."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mlcc.ir.module import IRModule
from mlcc.relax.queries import all_bindings
from tests.frontend.onnx_check import check
from tests.frontend.onnx_models import model, node

pytestmark = pytest.mark.usefixtures("onnx")

WIDTH, HEADS = 16, 2
RANDOM = np.random.default_rng(0)


def layer(opset: int, causal: bool) -> Any:
    """A layer of an encoder or decoder: a norm, attention with a residual, GELU. Batch and length are symbols."""
    weight = {f"w{i}": RANDOM.standard_normal((WIDTH, WIDTH)).astype("float32") / 4 for i in range(4)}
    numbers = {"two": 2.0, "epsilon": 1e-5, "root": (WIDTH // HEADS) ** 0.5, "sqrt2": 2**0.5, "one": 1.0, "half": 0.5}
    low = {"low": np.float32(np.finfo("float32").min), "zero": np.int64(0), "step": np.int64(1), "first": np.array([1])}
    constants = {
        **weight, **low, **{name: np.float32(value) for name, value in numbers.items()},
        "g": RANDOM.random(WIDTH).astype("float32"), "b": RANDOM.random(WIDTH).astype("float32"),
        "split": np.array([0, 0, HEADS, -1]), "joined": np.array([0, 0, WIDTH]), "last": np.array([0]),
    }  # fmt: skip
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[-1]) if opset < 18 else node("ReduceMean", ["x", "minus"], ["mean"]),
        node("Sub", ["x", "mean"], ["d"]), node("Pow", ["d", "two"], ["p"]),
        node("ReduceMean", ["p"], ["v"], axes=[-1]) if opset < 18 else node("ReduceMean", ["p", "minus"], ["v"]),
        node("Add", ["v", "epsilon"], ["ve"]), node("Sqrt", ["ve"], ["s"]), node("Div", ["d", "s"], ["n"]),
        node("Mul", ["n", "g"], ["ng"]), node("Add", ["ng", "b"], ["y0"]),
    ]  # fmt: skip
    constants["minus"] = np.array([-1])
    for name, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v_", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["y0", f"w{'qkv'.index(name[0])}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "split"], [f"{name}1"]), node("Transpose", [f"{name}1"], [name], perm=axes),
        ]  # fmt: skip
    nodes += [node("MatMul", ["q", "k"], ["s0"]), node("Div", ["s0", "root"], ["s1"])]
    if causal:
        nodes += [
            node("Shape", ["s1"], ["shape"]), node("Gather", ["shape", "three"], ["length"]),
            node("Range", ["zero", "length", "step"], ["places"]), node("Unsqueeze", ["places", "first"], ["rows"]),
            node("LessOrEqual", ["places", "rows"], ["seen"]), node("Where", ["seen", "s1", "low"], ["s2"]),
        ]  # fmt: skip
        constants["three"] = np.int64(3)
    nodes += [
        node("Softmax", ["s2" if causal else "s1"], ["weights"], axis=-1), node("MatMul", ["weights", "v_"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), node("Reshape", ["ot", "joined"], ["oj"]),
        node("MatMul", ["oj", "w3"], ["ow"]), node("Add", ["x", "ow"], ["r"]), node("Div", ["r", "sqrt2"], ["e0"]),
        node("Erf", ["e0"], ["e1"]), node("Add", ["e1", "one"], ["e2"]), node("Mul", ["r", "e2"], ["e3"]),
        node("Mul", ["e3", "half"], ["y"]),
    ]  # fmt: skip
    inputs, outputs = {"x": ("float32", ["b", "n", WIDTH])}, {"y": ("float32", ["b", "n", WIDTH])}
    return model(nodes, inputs, outputs, constants, opset)


def operators(module: IRModule) -> Counter[str]:
    values = [binding.value for binding, _ in all_bindings(module["main"].body)]  # type: ignore[attr-defined]
    return Counter(value.op.name.removeprefix("relax.") for value in values if hasattr(value, "op"))


@pytest.mark.parametrize(("opset", "causal"), [(13, False), (17, True), (20, True)])
def test_layers_become_their_operators(opset: int, causal: bool) -> None:
    made = check(layer(opset, causal), RANDOM.standard_normal((2, 7, WIDTH)).astype("float32"))
    expected = {"nn.layer_norm": 1, "nn.attention": 1, "nn.gelu": 1, "matmul": 4, "reshape": 4, "add": 1}
    assert operators(made) == expected
