"""Shapes that ONNX graphs compute: symbolic where extents are, data where they are data."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_onnx
from tests.frontend.onnx_check import check
from tests.frontend.onnx_models import FLOAT, model, node

pytestmark = pytest.mark.usefixtures("onnx")


def _image(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, "float32")


def test_a_reshape_to_a_computed_shape_is_symbolic() -> None:
    """Shape, Gather, Unsqueeze, Concat, Reshape, as exporters write `x.reshape(x.shape[0], -1, 4)`."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"]),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1, 4])}
    given = model(nodes, {"x": (FLOAT, ["n", 6, 2])}, {"y": (FLOAT, ["n", 3, 4])}, constants)
    for n in (1, 5):
        made = check(given, _image(n, 6, 2))
    check(given, _image(0, 6, 2), expected=[_image(0, 3, 4)])
    text = mlcc.script(made)
    assert "R.shape([n, 3, 4])" in text and "shape_to_tensor" not in text


def test_arithmetic_of_extents_agrees() -> None:
    """Half of an axis, a range as long as another, and a mask made of a comparison of both."""
    nodes = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("Div", ["n", "two"], ["half"]),
        node("Slice", ["x", "zero1", "half", "zero1"], ["part"]),
        node("Squeeze", ["n"], ["count"]),
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Mul", ["half", "two"], ["even"]),
        node("Equal", ["even", "n"], ["is_even"]),
        node("Where", ["is_even", "one", "zero"], ["flag"]),
        node("Size", ["x"], ["size"]),
    ]
    constants = {"two": np.array([2]), "zero1": np.array([0]), "zero": np.int64(0), "one": np.int64(1)}
    outputs = {"part": (FLOAT, None), "places": ("int64", ["n"]), "flag": ("int64", [1]), "size": ("int64", [])}
    given = model(nodes, {"x": (FLOAT, ["n", 3])}, outputs, constants)
    for n in (1, 2, 7, 8):
        check(given, _image(n, 3))


@pytest.mark.parametrize("operator", ["Expand", "Tile", "ConstantOfShape"])
def test_shapes_of_another_tensor_agree(operator: str) -> None:
    nodes = [node("Shape", ["x"], ["s"]), node(operator, ["s"] if operator == "ConstantOfShape" else ["w", "s"])]
    given = model(nodes, {"x": (FLOAT, ["n", 3]), "w": (FLOAT, [1, 1])}, {"y": (FLOAT, None)})
    for n in (1, 4):
        check(given, _image(n, 3), _image(1, 1))


def test_a_reshape_that_cancels_a_symbol() -> None:
    given = model(
        [node("Reshape", ["x", "shape"])],
        {"x": (FLOAT, ["n", "m", 4])},
        {"y": (FLOAT, None)},
        {"shape": np.array([0, -1])},
    )
    text = mlcc.script(from_onnx(given))
    assert "R.shape([n, m * 4])" in text
    check(given, _image(0, 3, 4), expected=[_image(0, 12)])


def test_reshapes_by_data_agree() -> None:
    given = model(
        [node("Reshape", ["x", "shape"])], {"x": (FLOAT, [4, 6]), "shape": ("int64", [2])}, {"y": (FLOAT, None)}
    )
    for shape in ([3, 8], [-1, 2], [0, 6], [24, 1]):
        check(given, _image(4, 6), np.array(shape))


def test_slices_by_data_agree() -> None:
    given = model(
        [node("Slice", ["x", "starts", "ends", "axes", "steps"])],
        {"x": (FLOAT, [5, 7]), "starts": ("int64", [1]), "ends": ("int64", [1])},
        {"y": (FLOAT, None)},
        {"axes": np.array([1]), "steps": np.array([2])},
    )
    for start, end in ((0, 7), (-3, 100), (2, 2), (5, 1)):
        check(given, _image(5, 7), np.array([start]), np.array([end]))


def test_shapes_that_the_model_states() -> None:
    """Inference does not know that both symbols are equal; the model says so, and run time checks it."""
    given = model(
        [node("Add", ["a", "b"], ["sum"]), node("Relu", ["sum"])],
        {"a": (FLOAT, ["n", 3]), "b": (FLOAT, ["m", 3])},
        {"y": (FLOAT, ["n", 3])},
    )
    from tests.frontend.onnx_models import value

    given.graph.value_info.append(value("sum", FLOAT, ["n", 3]))
    assert "R.match_cast" in mlcc.script(from_onnx(given))
    check(given, _image(4, 3), _image(4, 3))


def test_sequences_at_constant_positions_agree() -> None:
    nodes = [
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "one"], ["second"]),
        node("SequenceInsert", ["parts", "second"], ["more"]),
        node("SequenceErase", ["more", "zero"], ["fewer"]),
        node("SequenceLength", ["fewer"], ["length"]),
        node("ConcatFromSequence", ["fewer"], ["y"], axis=0),
    ]
    constants = {"two": np.int64(2), "one": np.int64(1), "zero": np.int64(0)}
    given = model(nodes, {"x": (FLOAT, [5, 3])}, {"y": (FLOAT, None), "length": ("int64", [])}, constants)
    check(given, _image(5, 3))


def test_weights_become_parameters() -> None:
    """Weights follow the inputs; what shapes are made of stays bound."""
    weight = _image(3, 4)
    given = model(
        [node("MatMul", ["x", "w.1"], ["p"]), node("Reshape", ["p", "shape"])],
        {"x": (FLOAT, ["n", 3])},
        {"y": (FLOAT, None)},
        {"w.1": weight, "shape": np.array([-1, 2])},
    )
    module = from_onnx(given, keep_params_in_input=True)
    main = module["main"]
    assert [p.name for p in main.params] == ["x", "w_1"] and main.attrs["num_input"] == 1
    (kept,) = main.attrs["params"]
    x = _image(2, 3)
    run = mlcc.load(mlcc.build(module))["main"]
    np.testing.assert_allclose(run(x, np.asarray(kept)), (x @ weight).reshape(-1, 2), rtol=1e-5, atol=1e-6)
