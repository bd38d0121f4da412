"""Texts that TVM prints with `show_meta=True` carry their constants in a line above the module."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc

tvm = pytest.importorskip("tvm")

from tests.interop.harness import to_tvm  # noqa: E402


def text(dtype: str, values: str) -> str:
    """A TVM text whose constant lies in its metadata."""
    source = f"""
@R.function
def main():
    with R.dataflow():
        y = R.add(R.const({values}, "{dtype}"), R.const({values}, "{dtype}"))
        R.output(y)
    return y
"""
    return str(to_tvm(source).script(show_meta=True))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_constants_are_read(dtype: str) -> None:
    printed = text(dtype, "[[1, 2, 3], [4, 5, 6]]")
    assert "load_json" in printed
    module = mlcc.parse(printed)
    (block,) = module["main"].body.blocks
    data = block.bindings[0].value.args[0].data
    assert (str(data.dtype), data.shape) == (dtype, (2, 3))
    want = mlcc.parse(f'@R.function\ndef f():\n    return R.const([[1, 2, 3], [4, 5, 6]], "{dtype}")')
    assert data.same_as(want["f"].body.body.data)
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(module)), module)


def test_what_the_caller_gives_counts() -> None:
    printed = text("float32", "[1, 2]")
    mine = np.array([3, 4], "float32")
    module = mlcc.parse(printed, data={"ir.GenericConst[0]": mine})
    np.testing.assert_array_equal(module["main"].body.blocks[0].bindings[0].value.args[0].data.array, mine)


@pytest.mark.parametrize(
    ("pattern", "change"),
    [
        ("P6G0lvBA", "P6G0lvBB"), ("P6G0lvBA", "P6"), (r'\\"root_index\\": \d+', r'\\"root_index\\": 99'),
        (r"load_json\(", "load_json(3, "), (r"\{\n", "{{{"), (r'\\"ffi\.Tensor\\"', '7'),
    ],
)  # fmt: skip
def test_damage_is_told(pattern: str, change: str) -> None:
    printed = text("float32", "[1, 2]")
    broken = re.sub(pattern, change, printed, count=1)
    assert broken != printed
    if "7" in change:
        mlcc.parse(broken)  # a node of another kind: its reference has no data
        return
    with pytest.raises(mlcc.CompileError, match="E0907"):
        mlcc.parse(broken)


def test_nesting_is_bounded() -> None:
    with pytest.raises(mlcc.CompileError, match="E0907"):
        mlcc.parse(f'metadata = tvm.ir.load_json("{"[" * 100_000}")\n@R.function\ndef f():\n    return R.const(1)')


STRINGS = """
@T.prim_func(s_tir=True)
def f(A: T.Buffer((4,), "float32")):
    assert A[0] > T.float32(1.0), ("ValueError", ["first\\nline `x`", "plain"])
    T.call_extern("int32", "puts", "a\\nb")
"""


def test_strings_are_read() -> None:
    """TVM prints a string of several lines as a reference to the metadata."""
    theirs = tvm.script.from_source(STRINGS)
    printed = theirs.script(show_meta=True)
    assert 'metadata["ir.StringImm"][1]' in printed
    module = mlcc.parse(printed)
    assert module["f"].body[0].message == ("first\nline `x`", "plain")
    tvm.ir.assert_structural_equal(to_tvm(mlcc.script(module, dialect="tvm"))["f"], theirs)
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(module)), module)
    with pytest.raises(mlcc.CompileError, match="metadata"):
        mlcc.parse(printed.replace('["ir.StringImm"][1]', '["ir.StringImm"][2]'))
