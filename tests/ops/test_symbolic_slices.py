"""Slices whose begin, end and stride are scalars of the call are Python's, in both directions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

TEXT = """
@R.function
def main(x: R.Tensor((8,), "float32"), b0: R.Prim(value="b"), e0: R.Prim(value="e"), v0: R.Prim(value="v")):
    b = T.int64()
    e = T.int64()
    v = T.int64()
    return R.strided_slice(x, (R.prim_value(0),), (R.prim_value(b),), (R.prim_value(e),), (R.prim_value(v),))
"""
EVERY = tuple(itertools.product((0, 1, 7, 8, 9, -1, -3, -9), (0, 1, 4, 7, 8, 20, -1, -8), (-9, -2, -1, 1, 3, 8)))


def python(x: np.ndarray, begin: int, end: int, stride: int) -> np.ndarray:
    """Bounds count from the end where they are negative; a backward slice that ends before the first has all."""
    return x[begin : None if stride < 0 and end < -len(x) else end : stride]


@pytest.mark.parametrize("level", [0, 2, 3])
def test_compiled_slices_are_pythons(level: int) -> None:
    run = mlcc.load(mlcc.build(mlcc.parse(TEXT), opt_level=level))["main"]
    x = np.arange(8, dtype="float32")
    for case in EVERY:
        np.testing.assert_array_equal(run(x, *case), python(x, *case), err_msg=str(case))


def test_interpreted_slices_are_pythons() -> None:
    module = mlcc.run_passes(mlcc.parse(TEXT), "lower-to-tir")
    x = np.arange(8, dtype="float32")
    for case in EVERY[::7]:
        np.testing.assert_array_equal(run_function(module, "main", [x, *case]), python(x, *case), err_msg=str(case))
