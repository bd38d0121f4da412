"""The examples of docs/adding-a-primitive.md run, in their order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.passes.schedule import registry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-primitive.md"
SUM = """
@T.prim_func
def main(A: T.Buffer((5, 3), "float32"), B: T.Buffer((5,), "float32")):
    for i, k in T.grid(5, 3):
        with T.sblock("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""


def test_examples_of_the_page_run() -> None:
    assert not hasattr(mlcc.Schedule(mlcc.parse(SUM)), "reverse")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    try:
        exec("\n".join(blocks), {"__name__": "toy"})
        sch = mlcc.Schedule(mlcc.parse(SUM))
        i, k = sch.get_loops(sch.get_block("B"))
        with pytest.raises(CompileError, match="E0627.*reduces along it"):
            sch.reverse(k)
        sch.reverse(i)
        a, b = np.arange(15, dtype="float32").reshape(5, 3), np.empty(5, "float32")
        run_function(sch.mod, "main", [a, b])
        np.testing.assert_array_equal(b, a.sum(1))
    finally:
        registry._DEFINED.pop("reverse", None)
        registry._WHERE.pop("reverse", None)
