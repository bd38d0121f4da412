"""A user's file with TVM's decorators. mypy --strict finds nothing wrong in it."""

# mypy: disable-error-code="valid-type"
# ruff: noqa: F821, UP037 - the texts are not Python's
from __future__ import annotations

import typing

import numpy as np

import mlcc
from mlcc.lang import ir as I
from mlcc.lang import relax as R
from mlcc.lang import tir as T

SIZE = 8


@T.prim_func
def scale(A: T.Buffer((SIZE,), "float32"), B: T.Buffer((SIZE,), "float32")) -> None:
    for i in range(SIZE):
        with T.block("B"):
            vi = T.axis.spatial(SIZE, i)
            B[vi] = A[vi] * T.float32(2)


@R.function(private=True)
def twice(x: R.Tensor(("n", SIZE), "float32")) -> R.Tensor(("n", SIZE), "float32"):
    return R.add(x, x)


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def negate(a: T.handle, b: T.handle) -> None:
        n = T.int64()
        A = T.match_buffer(a, (n, SIZE), "float32")
        B = T.match_buffer(b, (n, SIZE), "float32")
        for i, j in T.grid(n, SIZE):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = -A[vi, vj]

    @R.function
    def main(x: R.Tensor(("n", SIZE), "float32")) -> R.Tensor(("n", SIZE), "float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.negate, (x,), out_sinfo=R.Tensor((n, SIZE), "float32"))
            R.output(y)
        return y


def run() -> list[float]:
    func: mlcc.ir.tir.PrimFunc = scale
    graph: mlcc.relax.Function = twice
    print(func.script(), graph.script(dialect="tvm"))
    func.show()
    mod = typing.cast(mlcc.IRModule, Module)
    sch = mlcc.Schedule(mod)
    sch.parallel(sch.get_loops(sch.get_block("B", func_name="negate"))[0])
    exe = mlcc.load(mlcc.build(sch.mod))
    return [float(v) for v in exe["main"](np.ones((1, SIZE), "float32"))[0]]
