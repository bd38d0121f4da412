"""Blocks that compute a part of an intermediate buffer: all that is read must be written."""

from __future__ import annotations

import pytest

import mlcc

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,))
    for i in range(9):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[{index}]
"""


@pytest.mark.parametrize(
    ("index", "good"), [("vi", False), ("vi // 2", True), ("vi // 2 + 1", True), ("vi // 2 + 2", False)]
)
def test_what_is_read_must_be_written(index: str, good: bool) -> None:
    mod = mlcc.parse(PROGRAM.format(index=index))
    if good:
        mlcc.build(mod)
    else:
        with pytest.raises(mlcc.CompileError, match=r"E0334.*covers only 0\.\.8"):
            mlcc.build(mod)
