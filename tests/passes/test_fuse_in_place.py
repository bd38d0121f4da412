"""Calls that work in place fuse where nobody else sees what they write into; values never change."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.passes.fusion.why_fuse import explain

TENSOR = 'R.Tensor((4,), "float32")'
TEXT = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def plus(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + B[vi]

    @T.prim_func(private=True)
    def increase(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + B[vi]

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Module
        with R.dataflow():
LINES
            R.output(RESULT)
        return RESULT
"""


def plus_call(name: str, a: str, b: str) -> str:
    return f"{name} = R.call_tir(cls.plus, ({a}, {b}), {TENSOR})"


def increase_call(name: str, a: str, b: str) -> str:
    return f"{name} = R.call_tir_inplace(cls.increase, ({a}, {b}), inplace_indices=[0], out_sinfo={TENSOR})"


CASES = {
    "inside": ([plus_call("a", "x", "y"), increase_call("b", "a", "y"), plus_call("c", "b", "b")], "c", 1),
    "at the end": ([plus_call("a", "x", "y"), increase_call("c", "a", "y")], "c", 1),
    "twice": ([plus_call("a", "x", "y"), increase_call("b", "a", "y"), increase_call("c", "b", "x")], "c", 1),
    "into an argument": ([increase_call("b", "x", "y"), plus_call("c", "b", "x")], "c", 0),
    "read before": (
        [plus_call("a", "x", "y"), plus_call("d", "a", "y"), increase_call("b", "a", "y"), plus_call("c", "b", "d")],
        "c",
        0,
    ),
    "read after": ([plus_call("a", "x", "y"), increase_call("b", "a", "y"), plus_call("c", "b", "a")], "c", 0),
    "needed outside": ([plus_call("a", "x", "y"), increase_call("c", "a", "y")], "a, c", 0),
    "with itself": ([plus_call("a", "x", "y"), increase_call("c", "a", "a")], "c", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_in_place_fuse_where_it_is_safe(case: str) -> None:
    lines, result, fused = CASES[case]
    text = TEXT.replace("LINES", "\n".join(f"            {line}" for line in lines)).replace("RESULT", result)
    module = mlcc.parse(text)
    given = [np.arange(4, dtype="float32"), np.full(4, 10, "float32")]
    want = run_function(module, "main", [a.copy() for a in given])
    grouped = mlcc.run_passes(module, "fuse")
    kernels = [n for n in grouped if n.startswith("fused")]
    assert any("increase" in n for n in kernels) == bool(fused)
    made = mlcc.run_passes(module, "fuse,fuse-tir")
    assert ("call_tir_inplace" in mlcc.script(made)) == (not fused)
    for each in (grouped, made):
        np.testing.assert_array_equal(run_function(each, "main", [a.copy() for a in given]), want)
    assert ("writes in place into a value with other uses" in explain(module)) == (not fused)
