"""Sizes by which an extent of a tensor is negative are refused with a place, also where a pass derives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.errors import CallError
from mlcc.interp import run_function

FOUR = 'x: R.Tensor((4,), "float32")'
SOME = 'x: R.Tensor(("n",), "float32")'


def module(params: str, value: str) -> mlcc.IRModule:
    symbols = ["    n = T.int64()"] if '"n"' in params else []
    return mlcc.parse("\n".join(["@R.function", f"def main({params}):", *symbols, f"    return {value}"]))


@pytest.mark.parametrize(
    "value",
    [
        "R.full(R.shape([-1, 3]), R.const(1.0, 'float32'))", "R.zeros(R.shape([2, -3]), 'float32')",
        "R.ones(R.shape([-(2**63)]), 'int8')", "R.eye(-1, 3, 0, 'float32')", "R.eye(3, -2, 0, 'float32')",
        "R.broadcast_to(R.const(1.0, 'float32'), R.shape([-1]))", "R.nn.pad(x, [-3, -3])",
        "R.image.resize2d(R.reshape(x, (1, 1, 2, 2)), R.shape([-2, 2]))",
        "R.builtin.alloc_tensor(R.shape([-1, 3]), R.dtype('float32'), R.prim_value(0))",
        "R.sum(R.zeros(R.shape([3 - 4]), 'float32'))",
    ],
)  # fmt: skip
def test_constant_extents_are_refused_when_read(value: str) -> None:
    with pytest.raises(mlcc.CompileError, match="E0448.*extent 0|E0448.*extent 1|E0448.*extent 2"):
        module(FOUR, value)


@pytest.mark.parametrize("value", ["R.arange(5, 2, 1, 'float32')", "R.strided_slice(x, axes=[0], begin=[3], end=[1])"])
def test_ranges_that_run_backwards_are_empty(value: str) -> None:
    made = module(FOUR, value)
    assert run_function(made, "main", [np.ones(4, "float32")]).shape == (0,)


@pytest.mark.parametrize("value", ["R.sum(R.zeros(R.shape([n - 5]), 'float32'))", "R.nn.pad(x, [-3, -3])"])
@pytest.mark.parametrize("passes", ["", ",lower-to-tir"])
def test_extents_that_a_bound_size_makes_negative(value: str, passes: str) -> None:
    made = module(SOME, value)
    with pytest.raises(mlcc.CompileError, match="E0448"):
        mlcc.run_passes(made, 'bind-symbolic-vars{vars={"n": 2}}' + passes)
    assert mlcc.run_passes(made, 'bind-symbolic-vars{vars={"n": 7}}' + passes)


CALLED = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = Module.rest(x)
        return y

    @R.function(private=True)
    def rest(x: R.Tensor(("n",), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        y = R.sum(R.ones(R.shape([n - 5]), "float32"))
        return y
"""


def test_extents_that_inlining_makes_negative() -> None:
    with pytest.raises(mlcc.CompileError, match="E0448"):
        mlcc.run_passes(mlcc.parse(CALLED), "inline-functions,lower-to-tir")
    with pytest.raises(CallError, match="E0448|E0805"):
        run_function(mlcc.parse(CALLED), "main", [np.ones(2, "float32")])


def test_memory_for_results_of_a_negative_extent() -> None:
    made = mlcc.parse("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def ones(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (m,), "float32")
        for i in range(m):
            with T.block("B"):
                vi = T.axis.spatial(m, i)
                B[vi] = T.float32(1)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Module.ones, (x,), out_sinfo=R.Tensor((n - 5,), "float32"))
        return y
""")
    assert run_function(made, "main", [np.ones(7, "float32")]).tolist() == [1, 1]
    with pytest.raises(CallError, match="E0448"):
        run_function(made, "main", [np.ones(2, "float32")])


def test_the_command_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mlc"
    path.write_text('@R.function\ndef main():\n    return R.ones(R.shape([-1, 3]), "float32")\n')
    assert run(["compile", str(path), "-O0", "-o", str(tmp_path / "m.o")]) == 1
    said = capsys.readouterr().err
    assert "m.mlc:3:12: error[E0448]: `R.ones`: a tensor of shape (-1, 3): extent 0 is -1" in said
