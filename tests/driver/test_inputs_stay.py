"""Functions called by `call_tir` may not write what they are given: values of the graph never change."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def bump(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                part = T.match_buffer(A[vi:vi + 1], (1,), "float32", offset_factor=1)
                part[0] = part[0] + T.float32(1)
                B[vi] = part[0]

    @T.prim_func(private=True)
    def one(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        c = R.const([1.0, 2.0, 3.0, 4.0], "float32")
        y = CALL
        z = R.add(y, x)
        return z
"""
INFO = 'R.Tensor((4,), "float32")'


@pytest.mark.parametrize(
    "call",
    [
        f"R.call_tir(cls.bump, (x,), {INFO})", f"R.call_tir(cls.bump, (c,), {INFO})",
        f"R.call_dps_packed('bump', (c,), {INFO})",
        f"R.call_tir_inplace(cls.bump, (x,), inplace_indices=[-1], out_sinfo={INFO})",
    ],
)  # fmt: skip
def test_writing_an_argument_is_an_error(call: str) -> None:
    module = mlcc.parse(MODULE.replace("CALL", call))
    given = np.ones(4, "float32")
    for level in (0, 2):
        with pytest.raises(mlcc.CompileError, match=r"E0497.*`bump` writes its parameter `A`"):
            mlcc.build(module, opt_level=level)
    with pytest.raises(mlcc.errors.CallError, match="E0497"):
        run_function(module, "main", [given])
    assert (given == 1).all()


@pytest.mark.parametrize("argument", ["x", "c"])
def test_what_is_written_in_place_is_a_copy(argument: str) -> None:
    module = mlcc.parse(
        MODULE.replace("CALL", f"R.call_tir_inplace(cls.one, ({argument},), inplace_indices=[0], out_sinfo={INFO})")
    )
    given = np.ones(4, "float32")
    want = given + 1 + (given if argument == "x" else np.arange(1, 5, dtype="float32"))
    runs = [mlcc.load(mlcc.build(module, opt_level=level))["main"] for level in (0, 2)]
    for _ in range(2):
        for run in runs:
            np.testing.assert_array_equal(run(given), want)
        np.testing.assert_array_equal(run_function(module, "main", [given]), want)
        assert (given == 1).all()
