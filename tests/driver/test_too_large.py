"""Sizes that do not fit 64 bits are refused before anything is computed with what they wrap to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

FOUR = 'x: R.Tensor((4,), "float32")'
SOME = 'x: R.Tensor(("n",), "float32")'
EMPTY = 'x: R.Tensor(("n", 0), "float32"), z: R.Tensor(("m", 0), "float32")'


def module(params: str, value: str) -> mlcc.IRModule:
    symbols = [f"    {s} = T.int64()" for s in "nm" if f'"{s}"' in params]
    return mlcc.parse("\n".join(["@R.function", f"def main({params}):", *symbols, f"    return {value}"]))


@pytest.mark.parametrize(
    "value",
    [
        "R.tile(x, [2**62])", "R.sum(R.tile(x, [2**62]))", "R.repeat(x, 2**62, axis=0)", "R.tile(x, [2**60])",
        "R.sum(R.broadcast_to(x, R.shape([2**62, 4])))", "R.sum(R.zeros(R.shape([2**32, 2**31]), 'float32'))",
        "R.zeros(R.shape([0, 2**62, 2**62]), 'float32')", "R.arange(-2**63, 2**63 - 1, 1, 'int64')",
        "R.nn.pad(x, [2**63 - 1, 5])",
        "R.concat([R.zeros(R.shape([2**62]), 'int8'), R.zeros(R.shape([2**62]), 'int8')])",
        "R.sum(R.reshape(R.tile(x, [2**62]), (0,)))", "R.expand_dims(R.ones(R.shape([2**61]), 'float32'), 0)",
    ],
)  # fmt: skip
def test_constant_sizes_are_refused_when_read(value: str) -> None:
    with pytest.raises(mlcc.CompileError, match="E0447|does not fit int64"):
        module(FOUR, value)


@pytest.mark.parametrize("text", [
    '@R.function\ndef main(x: R.Tensor((4294967296, 4294967296), "float32")):\n    return x',
    "@T.prim_func\ndef main(A: T.Buffer((T.int64(4611686018427387904), 4), 'float32')):\n    A[0, 0] = T.float32(1)",
])  # fmt: skip
def test_declared_sizes_are_refused(text: str) -> None:
    with pytest.raises(mlcc.CompileError, match="E0447"):
        mlcc.build(mlcc.parse(text))


SYMBOLIC = [
    (SOME, "R.sum(R.tile(x, [2**62]))"),
    (SOME, "R.tile(x, [2**62])"),
    (SOME, "R.sum(R.repeat(x, 2**62, axis=0))"),
    (SOME, "R.sum(R.zeros(R.shape([n * 2**62]), 'float32'))"),
    (SOME, "R.sum(R.zeros(R.shape([2**32 * n, 2**32 * n]), 'float32'))"),
    (SOME, "R.sum(R.add(R.zeros(R.shape([n * 2**62]), 'float32'), R.const(1, 'float32')))"),
    (EMPTY, "R.sum(R.zeros(R.shape([n, m]), 'float32'))"),
    (EMPTY, "R.sum(R.matmul(x, R.permute_dims(z)))"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "value"), SYMBOLIC)
def test_symbolic_sizes_are_refused_when_called(params: str, value: str) -> None:
    made = module(params, value)
    given: list[Any] = [np.ones(4, "float32")] if params == SOME else [np.zeros((2**32, 0), "float32")] * 2
    with pytest.raises(mlcc.errors.CallError, match="more than 2\\*\\*63 - 1 bytes"):
        run_function(made, "main", given)
    for level in (0, 2, 3):
        with pytest.raises(mlcc.errors.CallError, match="too large"):
            mlcc.load(mlcc.build(made, opt_level=level))["main"](*given)


def test_sizes_inside_a_branch_are_checked() -> None:
    made = mlcc.parse("""
@R.function
def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
    n = T.int64()
    if c:
        y = R.sum(R.tile(x, [2**62]))
        r = y
    else:
        z = R.sum(x)
        r = z
    return r
""")
    for level in (0, 2):
        run = mlcc.load(mlcc.build(made, opt_level=level))["main"]
        with pytest.raises(mlcc.errors.CallError):
            run(np.ones(4, "float32"), np.array(True))


def test_what_the_arguments_bound_needs_no_check() -> None:
    made = module('x: R.Tensor(("n", "m", 8), "float32"), w: R.Tensor((8, 64), "float32")', "R.nn.relu(R.matmul(x, w))")
    assert mlcc.structural_equal(mlcc.run_passes(made, "check-shapes"), made)
