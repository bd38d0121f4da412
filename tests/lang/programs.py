"""Modules and functions as a course writes them in Python, with values of the program in their texts."""

# ruff: noqa: F821, UP037 - the texts are not Python's
from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.lang import ir as I
from mlcc.lang import relax as R
from mlcc.lang import tir as T
from mlcc.lang.tir import prim_func as kernel

ROWS, COLS = 16, 12
SHAPE = (ROWS, COLS)
DTYPE = "float32"
SLOPE = np.float32(0.25)
TILE = {"pragma": 4}
n = T.int64()
WEIGHT = np.linspace(-1, 1, COLS * 8, dtype="float32").reshape(COLS, 8)
BIAS = np.arange(8)


@T.prim_func
def leaky_relu(A: T.Buffer(SHAPE, DTYPE), B: T.Buffer(SHAPE, DTYPE)):
    for i, j in T.grid(ROWS, COLS):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(A[vi, vj] > 0, A[vi, vj], A[vi, vj] * SLOPE)


LEAKY_RELU = """
@T.prim_func
def leaky_relu(A: T.Buffer((16, 12), "float32"), B: T.Buffer((16, 12), "float32")):
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(A[vi, vj] > 0, A[vi, vj], A[vi, vj] * 0.25)
"""


@kernel(private=True)
def double(A: T.Buffer[(ROWS,), "float32"], B: T.Buffer[ROWS, "float32"]) -> None:
    # an alias of the decorator, with an option
    for i in range(ROWS):
        with T.block("B"):
            vi = T.axis.spatial(ROWS, i)
            B[vi] = A[vi] * T.float32(2)


DOUBLE = """
@T.prim_func(private=True)
def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
"""


@I.ir_module
class Layer:
    I.module_attrs({"level": 1})

    @T.prim_func
    def product(x: T.handle, w: T.Buffer((COLS, 8), DTYPE), y: T.handle):
        m = T.int64()
        X = T.match_buffer(x, (m, COLS), DTYPE)
        Y = T.match_buffer(y, (m, 8), DTYPE)
        for i, j, k in T.grid(m, 8, COLS):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * w[vk, vj]

    @R.function
    def main(x: R.Tensor((n, COLS), DTYPE)) -> R.Tensor((n, 8), DTYPE):
        cls = Layer
        with R.dataflow():
            y = R.call_tir(cls.product, (x, R.const(WEIGHT)), out_sinfo=R.Tensor((n, 8), dtype=DTYPE))
            z = R.nn.relu(R.add(y, R.const(BIAS, DTYPE)))
            R.output(z)
        return z


LAYER = """
n = T.int64()
@I.ir_module
class Layer:
    I.module_attrs({"level": 1})
    @T.prim_func
    def product(x: T.handle, w: T.Buffer((12, 8), "float32"), y: T.handle):
        m = T.int64()
        X = T.match_buffer(x, (m, 12), "float32")
        Y = T.match_buffer(y, (m, 8), "float32")
        for i, j, k in T.grid(m, 8, 12):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * w[vk, vj]
    @R.function
    def main(x: R.Tensor((n, 12), "float32")) -> R.Tensor((n, 8), "float32"):
        cls = Layer
        with R.dataflow():
            y = R.call_tir(cls.product, (x, R.const(@WEIGHT@, "float32")), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            z = R.nn.relu(R.add(y, R.const([0, 1, 2, 3, 4, 5, 6, 7], "float32")))
            R.output(z)
        return z
""".replace("@WEIGHT@", str([[float(v) for v in row] for row in WEIGHT]))


def scaled(factor: float, size: int) -> Any:
    """A function made by another: `size` stands in an annotation alone, `factor` in the body."""

    @R.function(private=True)
    def main(x: R.Tensor((size,), "float32")):
        return R.multiply(x, R.const(factor, "float32"))

    return main


SCALED = """
@R.function(private=True)
def main(x: R.Tensor((5,), "float32")):
    return R.multiply(x, R.const(1.5, "float32"))
"""
