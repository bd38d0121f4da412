"""`integer-products` against the same products in floats: scales and zero points of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir.module import IRModule
from mlcc.relax.queries import all_bindings

PASSES = "normalize,canonicalize,integer-products,dead-code"


def changed(text: str) -> tuple[IRModule, bool]:
    """A function through the pass, and whether it has a product of integers then."""
    made = mlcc.run_passes(mlcc.parse("@R.function\n" + text), PASSES)
    values = (getattr(b, "value", None) for b, _ in all_bindings(made["main"].body))  # type: ignore[attr-defined]
    return made, any(getattr(v, "attrs", {}).get("out_dtype") == "int32" for v in values if hasattr(v, "attrs"))


def agree(text: str, *inputs: np.ndarray) -> bool:
    """Compare the results of a function with and without the pass. Returns whether it took the product."""
    made, taken = changed(text)
    plain = mlcc.load(mlcc.build(mlcc.parse("@R.function\n" + text), opt_level=0))["main"](*inputs)
    found = mlcc.load(mlcc.build(made, opt_level=0))["main"](*inputs)
    np.testing.assert_allclose(np.asarray(found), np.asarray(plain), rtol=1e-5, atol=1e-4)
    return taken


MATMUL = """
def main(x: R.Tensor((3, 8), "uint8"), w: R.Tensor((8, 8), "int8"), t: R.Tensor({scales}, "float32")):
    with R.dataflow():
        a = R.dequantize(x, R.const(0.5, "float32"), R.const(7, "uint8"))
        b = R.dequantize({weight}, t, {zero}, axis={axis})
        y = R.matmul(a, {right})
        R.output(y)
    return y
"""
CONSTANT = f"R.const({(np.arange(64).reshape(8, 8) - 30).tolist()}, 'int8')"
POINTS = "R.const([0, 1, 2, 3, 4, 5, 6, 7], 'int8')"
ZERO = "R.const(0, 'int8')"


@pytest.mark.parametrize(
    ("scales", "weight", "zero", "axis", "right", "taken"),
    [
        ("()", "w", ZERO, 1, "b", True),
        ("(8,)", "w", ZERO, 1, "b", True),
        ("(8,)", "w", ZERO, 0, "b", False),
        ("(8,)", "w", ZERO, 0, "R.permute_dims(b)", True),
        ("(8, 4)", "w", ZERO, 1, "b", False),
        ("(8, 1)", "w", ZERO, 1, "b", False),
        ("(1, 8)", "w", ZERO, 0, "b", False),
        ("(4, 8)", "w", ZERO, 0, "R.permute_dims(b)", False),
        ("()", CONSTANT, POINTS, 1, "b", True),
        ("()", CONSTANT, POINTS, 0, "b", True),
        ("(8,)", CONSTANT, POINTS, 1, "b", True),
        ("()", CONSTANT, f"R.const({np.arange(32).reshape(4, 8).tolist()}, 'int8')", 0, "b", False),
    ],
)
def test_scales_and_zero_points(scales: str, weight: str, zero: str, axis: int, right: str, taken: bool) -> None:
    rng = np.random.default_rng(0)
    shape = tuple(int(n) for n in scales.strip("()").split(",") if n)
    x, w = rng.integers(0, 256, (3, 8), "uint8"), rng.integers(-128, 128, (8, 8), "int8")
    t = rng.uniform(0.5, 2, shape).astype("float32")
    text = MATMUL.format(scales=scales, weight=weight, zero=zero, axis=axis, right=right)
    assert agree(text, x, w, t) == taken


def test_blocked_layouts_stay_in_floats() -> None:
    text = """
def main(x: R.Tensor((1, 2, 5, 5, 4), "uint8"), w: R.Tensor((2, 2, 3, 3, 4, 4), "int8")):
    with R.dataflow():
        a = R.dequantize(x, R.const(0.5, "float32"), R.const(7, "uint8"))
        b = R.dequantize(w, R.const(0.25, "float32"), R.const(0, "int8"))
        y = R.nn.conv2d(a, b, padding=1, data_layout="NCHW4c", kernel_layout="OIHW4i4o")
        R.output(y)
    return y
"""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 2, 5, 5, 4), "uint8")
    assert not agree(text, x, rng.integers(-128, 128, (2, 2, 3, 3, 4, 4), "int8"))
