"""Temporaries go where an output will be if nothing is lost by that, and every number stays what it was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.passes.lowering.output_reuse import reuse_outputs
from mlcc.passes.lowering.realize import realize_blocks
from tests.lower import lower_func
from tests.targets.harness import Native

PARAMS = 'A: T.Buffer((12, 20), "int32"), B: T.Buffer((12, 20), "int32")'


def parse(body: str, params: str = PARAMS, noalias: bool = True) -> tir.PrimFunc:
    attrs = "    T.func_attr({'tir.noalias': True})\n" if noalias else ""
    text = f"@T.prim_func(s_tir=False)\ndef main({params}):\n{attrs}"
    made = mlcc.parse(text + "\n".join("    " + line for line in body.strip("\n").splitlines()))["main"]
    assert isinstance(made, tir.PrimFunc)
    return made


def left(func: tir.PrimFunc, sizes: Mapping[str, int] | None = None) -> list[str]:
    """Return the temporaries that are left in the function; it and its native code compute what it did.

    `sizes` are the values of names in shapes, in the order in which native code takes them.
    """
    sizes = sizes or {}
    rng = np.random.default_rng(1)
    shapes = [
        tuple(sizes[d.name] if isinstance(d, tir.Var) else tir.const_int(d) or 0 for d in b.shape)
        for b in func.buffers
        if b is not None
    ]
    arrays = [rng.integers(-9, 9, shape).astype("int32") for shape in shapes]
    expected, changed, lowered, native = ([a.copy() for a in arrays] for _ in range(4))
    after = reuse_outputs(realize_blocks(func))
    run_prim_func(func, expected)
    run_prim_func(after, changed)
    run_prim_func(lower_func(func), lowered)
    assert Native(func)(*native, symbols=tuple(sizes.values())) == 0
    for got in (changed, lowered, native):
        for one, two in zip(expected, got, strict=True):
            np.testing.assert_array_equal(two, one)
    return [n.buffer.name for stmt in after.body for n in find(stmt, tir.AllocBuffer)]


ROWS = """
X = T.alloc_buffer((12, 20), "int32")
for i in T.parallel(12):
    for j in range(20):
        X[i, j] = A[i, j] + 1
    for j in range(1, 20):
        X[i, j] = X[i, j] + X[i, j - 1]
    for j_0 in range(3):
        for j_1 in T.vectorized(8):
            if j_0 * 8 + j_1 < 20:
                B[i, j_0 * 8 + j_1] = X[i, j_0 * 8 + j_1] * 2
"""


def test_rows_that_the_last_stage_overwrites() -> None:
    assert left(parse(ROWS)) == []


def test_a_whole_temporary_of_several_passes() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for i, j in T.grid(12, 20):
    X[i, j] = A[i, 19 - j]
for i, j in T.grid(12, 20):
    B[i, j] = X[i, j] * X[i, j] + A[i, j]
"""
    assert left(parse(body)) == []


def test_what_may_overlap_an_input_stays() -> None:
    assert left(parse(ROWS, noalias=False)) == ["X"]


@pytest.mark.parametrize(
    ("stage", "last"),
    [
        ("X[i, j] = A[i, j] + 1", "B[i, j] = X[i, 19 - j]"),  # elements are read after others were stored
        ("X[i, j] = A[i, j] + 1", "B[i, j] = X[i, j] + X[i, 0]"),
        ("X[i, j] = A[i, j] + 1", "B[i, 19 - j] = X[i, j]"),
        ("X[i, j] = A[i, j] + 1", "B[i, j // 2] = X[i, j // 2] + j"),  # twice, and half of the row never
        ("X[i, j] = A[i, j] + 1", "if j < 19:\n            B[i, j] = X[i, j]"),  # the last element keeps its value
        ("X[i, j] = A[i, j] + 1", "B[i, j] = X[i, j] + B[i, j]"),  # the output is also an input
        ("X[i, j] = A[i, j] + 1\n        B[i, j] = 0", "B[i, j] = X[i, j]"),
        ("X[i, j] = A[i, j] + 1", "X[i, j] = X[i, j] + 1\n        B[i, j] = X[i, j]"),  # within one statement
    ],
)
def test_elements_that_are_still_needed_keep_a_temporary(stage: str, last: str) -> None:
    body = f"""
X = T.alloc_buffer((12, 20), "int32")
for i in range(12):
    for j in range(20):
        {stage}
    for j in range(20):
        {last}
"""
    assert left(parse(body)) == ["X"]


def test_what_later_iterations_read_keeps_a_temporary() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for j in range(20):
    X[0, j] = A[0, j]
for i in range(12):
    for j in range(20):
        if i > 0:
            X[i, j] = X[i - 1, j] + A[i, j]
    for j in range(20):
        B[i, j] = X[i, j] * 3
"""
    assert left(parse(body)) == ["X"]


def test_the_output_of_parallel_iterations_that_share_a_scratch_row() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for i in range(12):
    for j in range(20):
        X[0, j] = A[i, j] + 1
    for j in range(20):
        B[i, j] = X[0, j]
"""
    assert left(parse(body)) == ["X"]


def test_other_dtypes_and_shapes_keep_a_temporary() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for i, j in T.grid(12, 20):
    X[i, j] = A[i, j]
for i, j in T.grid(12, 20):
    B[i * 20 + j] = X[i, j]
"""
    assert left(parse(body, 'A: T.Buffer((12, 20), "int32"), B: T.Buffer((240,), "int32")')) == ["X"]


@pytest.mark.parametrize(
    "loop",
    [
        "for again in range(2):\n    for i, j in T.grid(12, 20):\n        B[i, j] = X[i, j] * 2",
        """
N = T.alloc_buffer((1,), "int32")
N[0] = 0
while N[0] < 3:
    for i, j in T.grid(12, 20):
        B[i, j] = X[i, j] * 2
    N[0] = N[0] + 1
""",
    ],
)
def test_what_is_read_again_keeps_a_temporary(loop: str) -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for i, j in T.grid(12, 20):
    X[i, j] = A[i, j]
"""
    assert "X" in left(parse(body + loop))


def test_what_an_index_reads_keeps_a_temporary() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
for i, j in T.grid(12, 20):
    X[i, j] = A[i, j]
for i, j in T.grid(12, 20):
    B[i, j] = A[i, X[i, (j + 1) % 20] % 20] + X[i, j]
"""
    assert left(parse(body)) == ["X"]


@pytest.mark.parametrize(("n", "m"), [(12, 20), (1, 1), (0, 5), (7, 1), (3, 65)])
def test_rows_of_unknown_sizes(n: int, m: int) -> None:
    body = """
X = T.alloc_buffer((n, m), "int32")
for i in T.parallel(n):
    for j in range(m):
        X[i, j] = A[i, j]
    for j in range(1, m):
        X[i, j] = X[i, j] + X[i, j - 1]
    for j in range(m):
        B[i, j] = X[i, j] * X[i, j]
"""
    params = 'A: T.Buffer(("n", "m"), "int32"), B: T.Buffer(("n", "m"), "int32")'
    assert left(parse(body, params), {"n": n, "m": m}) == []


def test_one_temporary_for_each_output() -> None:
    body = """
X = T.alloc_buffer((12, 20), "int32")
Y = T.alloc_buffer((12, 20), "int32")
for i in range(12):
    for j in range(20):
        X[i, j] = A[i, j] + 1
    for j in range(20):
        Y[i, j] = A[i, 19 - j]
    for j in range(20):
        B[i, j] = X[i, j] * Y[i, j]
"""
    assert left(parse(body)) == ["Y"]
