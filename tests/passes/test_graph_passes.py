"""Passes over graphs: what they refuse, and compiled code around them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from arguments import leaves  # noqa: E402
from networks import Network  # noqa: E402

CONV = """
@R.function
def main(x: R.Tensor((1, 2, 5, 5), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
    with R.dataflow():
        gv = R.nn.conv2d(x, w)
        R.output(gv)
    return gv
"""


@pytest.mark.parametrize(
    ("pipeline", "codes", "message"),
    [
        ('convert-layout{layouts={"nn.conv2": ["NHWC", "OHWI"]}}', ["E0514"], "nn.conv2d"),
        ('convert-layout{layouts={"relax.add": ["NHWC"]}}', ["E0514"], "takes its layout from its operands"),
        ('convert-layout{layouts={"relax.nn.conv2d": ["NHWC"]}}', ["E0514"], "not 1"),
        ('convert-layout{layouts={"relax.nn.conv2d": ["NHCW4c", "OHXX"]}}', ["E0514", "E0514"], "letters of NCHW"),
        ("convert-layout", ["E0504"], "layouts"),
        ("to-mixed-precision{out-dtype=int8}", ["E0503"], ""),
        ("topological-sort{order=random}", ["E0503"], "depth-first"),
        ("decompose{func=mian}", ["E0506"], "did you mean `main`"),
        ('to-mixed-precision{fp16-input-names=["x", "ww"]}', ["E0515"], "did you mean `w`"),
    ],
)
def test_what_is_refused(pipeline: str, codes: list[str], message: str) -> None:
    with pytest.raises(mlcc.CompileError) as caught:
        mlcc.run_passes(mlcc.parse(CONV), pipeline)
    assert [d.code for d in caught.value.diagnostics] == codes
    texts = [f"{d.message} {d.help} {d.primary.text if d.primary else ''}" for d in caught.value.diagnostics]
    assert any(message in text for text in texts)


PIPELINES = ['convert-layout{layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}}', "to-mixed-precision", "decompose"]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("seed", [3, 8])
def test_compiled_code_keeps_the_numbers(pipeline: str, seed: int) -> None:
    network = Network(seed, length=7)
    module = mlcc.parse(network.text())
    given = network.inputs()
    want = leaves(run_function(module, "main", given))
    made = mlcc.load(mlcc.build(mlcc.run_passes(module, pipeline)))
    for a, b in zip(leaves(made["main"](*given)), want, strict=True):
        np.testing.assert_allclose(a, b, network.tolerance(pipeline), network.tolerance(pipeline))


def test_a_lifted_function_keeps_its_public_name_or_is_refused() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"global_symbol": "NAME"})
            b = R.exp(a)
            return b
        z = inner(x)
        return z
"""
    assert "lifted" in mlcc.run_passes(mlcc.parse(text.replace("NAME", "lifted")), "lambda-lift")
    with pytest.raises(mlcc.CompileError, match="E0516"):
        mlcc.run_passes(mlcc.parse(text.replace("NAME", "main")), "lambda-lift")
