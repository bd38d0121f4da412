"""ONNX operators whose axes, sizes, pads, scales and bounds are data that only run time knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError, MlccError
from mlcc.frontend.onnx.translate import translate
from mlcc.interp import run_function
from tests.frontend.onnx_models import model, node

pytestmark = pytest.mark.usefixtures("onnx")

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
IMAGE = np.random.default_rng(1).standard_normal((1, 2, 4, 5)).astype("float32")
REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def floats(*values: float) -> np.ndarray:
    return np.array(values, "float32")


def run_time_model(one: Any, inputs: dict[str, np.ndarray], symbolic: bool = False) -> Any:
    """The model of a node, all of whose inputs are run-time data."""
    kinds = {
        name: (str(value.dtype), [f"{name}{i}" if symbolic and name == "x" else n for i, n in enumerate(value.shape)])
        for name, value in inputs.items()
    }
    return model([one], kinds, dict.fromkeys(one.output, ("float32", None)))


def check(one: Any, compiled: bool = False, **inputs: np.ndarray) -> None:
    """Compare with the reference evaluator, with extents of `x` that are numbers and symbols."""
    from onnx.reference import ReferenceEvaluator

    expected = ReferenceEvaluator(run_time_model(one, inputs)).run(None, inputs)
    for symbolic in (False, True):
        module = translate(run_time_model(one, inputs, symbolic))
        found = run(module, compiled and symbolic, *inputs.values())
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=5e-6)


def run(module: mlcc.IRModule, compiled: bool, *inputs: np.ndarray) -> list[np.ndarray]:
    if compiled:
        built = mlcc.build(mlcc.parse(mlcc.script(module)), "llvm{cpu=native}", opt_level=1)
        found = mlcc.load(built)["main"](*inputs)
    else:
        found = run_function(module, "main", list(inputs))
    return [np.asarray(value) for value in (found if isinstance(found, (list, tuple)) else [found])]


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_of_reductions_agree(name: str, keep: int) -> None:
    one = node(f"Reduce{name}", ["x", "a"], keepdims=keep)
    for axes in (ints(1), ints(-1, 0), ints(0, 1, 2)):
        check(one, name == "LogSumExp" and len(axes) == 2, x=np.abs(X) + np.float32(0.1), a=axes)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16"])
@pytest.mark.parametrize("name", ["Max", "Min"])
def test_extremes_of_every_dtype_agree(name: str, dtype: str) -> None:
    one = node(f"Reduce{name}", ["x", "a"])
    x = (X > 0) if dtype == "bool" else np.abs(X * 20).astype(dtype)
    made = translate(model([one], {"x": (dtype, X.shape), "a": ("int64", [1])}, {"y": (dtype, None)}, opset=20))
    found = run(made, False, x, ints(1))[0]
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, (np.max if name == "Max" else np.min)(x, axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["Sum", "Prod", "Max", "Min"])
def test_reductions_of_nothing(name: str) -> None:
    x = np.zeros((2, 0, 4), "float32")
    one = node(f"Reduce{name}", ["x", "a"], keepdims=0)
    expected = {"Sum": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf}[name]
    found = run(translate(run_time_model(one, {"x": x, "a": ints(1)})), False, x, ints(1))[0]
    np.testing.assert_array_equal(found, np.full((2, 4), expected, "float32"))


def test_axes_of_views_agree() -> None:
    check(node("Squeeze", ["x", "a"]), True, x=X[None, :, :1], a=ints(0, 2))
    check(node("Unsqueeze", ["x", "a"]), True, x=X, a=ints(-1, 1))


def test_sizes_of_parts_agree() -> None:
    check(node("Split", ["x", "s"], ["y", "z"], axis=-1), True, x=X, s=ints(1, 3))
    check(node("Split", ["x", "s"], ["y", "z"], axis=1), x=X, s=ints(3, 0))


@pytest.mark.parametrize(
    "bounds",
    [
        {"s": ints(0, 1), "e": ints(2, 1000), "a": ints(1, -1)},
        {"s": ints(-1, 1), "e": ints(-1000, 3), "a": ints(2, 0), "t": ints(-2, 1)},
        {"s": ints(0, 1), "e": ints(2, -1)},
    ],
)
def test_bounds_of_slices_agree(bounds: dict[str, np.ndarray]) -> None:
    check(node("Slice", ["x", *bounds]), True, x=X, **bounds)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_widths_of_borders_agree(mode: str) -> None:
    check(node("Pad", ["x", "p"], mode=mode), x=X, p=ints(0, 1, 2, 1, 1, 0))
    check(node("Pad", ["x", "p", "", "a"], mode=mode), x=X, p=ints(1, 2, 1, 0), a=ints(-1, 1))


def test_borders_that_are_cut_off() -> None:
    one, inputs = node("Pad", ["x", "p", "v"]), {"x": X, "p": ints(0, 1, -1, 1, 1, -2), "v": np.array(7, "float32")}
    expected = np.pad(X[:, :, 1:2], ((0, 1), (1, 1), (0, 0)), constant_values=7)
    np.testing.assert_array_equal(run(translate(run_time_model(one, inputs)), False, *inputs.values())[0], expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
)
def test_sizes_and_scales_of_images(mode: str, coordinates: str) -> None:
    how = {"mode": mode, "coordinate_transformation_mode": coordinates}
    for scales in (floats(1, 1, 2, 1.7), floats(1, 1, 0.5, 0.7)):
        check(node("Resize", ["x", "", "s"], **how), x=IMAGE, s=scales)
    check(node("Resize", ["x", "", "", "z"], **how), x=IMAGE, z=ints(1, 2, 7, 3))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_the_same_aspect_or_cut_out(mode: str) -> None:
    for policy, axes in (("not_larger", [3, 2]), ("not_smaller", [2, 3])):
        one = node("Resize", ["x", "", "", "z"], mode=mode, axes=axes, keep_aspect_ratio_policy=policy)
        check(one, x=IMAGE, z=ints(7, 9))
    cut = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    roi = floats(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
    check(node("Resize", ["x", "r", "", "z"], mode=mode, **cut), x=IMAGE, r=roi, z=ints(1, 2, 3, 3))
    if mode != "nearest":
        check(node("Resize", ["x", "", "s"], mode=mode, antialias=1), x=IMAGE, s=floats(1, 1, 0.6, 0.6))
        check(node("Resize", ["x", "", "s"], mode=mode, exclude_outside=1), x=IMAGE, s=floats(1, 1, 1.6, 0.6))


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_lengths_of_windows_agree(name: str, periodic: int) -> None:
    check(node(name, ["x"], periodic=periodic), x=np.array(10, "int64"))


def test_sizes_known_at_run_time_agree() -> None:
    check(node("OneHot", ["x", "d", "v"]), x=ints(0, 2, -1), d=np.array(4, "int64"), v=floats(2, 5))
    check(node("CenterCropPad", ["x", "s"]), x=X, s=ints(3, 1, 7))
    check(node("CenterCropPad", ["x", "s"], axes=[-1, 0]), x=X, s=ints(1, 5))


@pytest.mark.parametrize(
    ("one", "inputs"),
    [
        (("ReduceSum", ["x", "a"]), {"x": X, "a": ints(3)}),
        (("Squeeze", ["x", "a"]), {"x": X, "a": ints(1)}),
        (("Split", ["x", "s"], ["y", "z"]), {"x": X, "s": ints(1, 2)}),
        (("Unsqueeze", ["x", "a"]), {"x": X, "a": ints(5)}),
    ],
)
def test_data_that_do_not_fit_are_refused(one: Any, inputs: dict[str, np.ndarray]) -> None:
    module = translate(run_time_model(node(*one), inputs))
    with pytest.raises((MlccError, IndexError, ValueError)):
        run(module, True, *inputs.values())


def test_a_number_of_axes_that_is_not_known_is_refused() -> None:
    one = node("ReduceSum", ["x", "a"])
    made = model([one], {"x": ("float32", X.shape), "a": ("int64", ["k"])}, {"y": ("float32", None)})
    with pytest.raises(CompileError, match="known at run time only"):
        translate(made)
