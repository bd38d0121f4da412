"""The zero offset of a buffer has a type, which TVM compares: it is written where it is not that of the shape."""

from __future__ import annotations

import mlcc

TEXT = """
@T.prim_func
def main(A: T.Buffer((), "float32"), B: T.Buffer((T.int64(8),), "float32")):
    with T.block("root"):
        C = T.alloc_buffer((8,), elem_offset=T.int64(0))
        D = T.alloc_buffer((), elem_offset=T.int64(0))
        E = T.alloc_buffer((T.int64(8),), elem_offset=T.int64(0))
        C[0] = A[()] + D[()] + E[0] + B[0]
"""


def test_zero_offsets_keep_their_type() -> None:
    module = mlcc.parse(TEXT)
    assert mlcc.script(module).count("elem_offset") == 0
    text = mlcc.script(module, dialect="tvm")
    assert text.count("elem_offset=T.int64(0)") == 1 and '(8,), "float32", elem_offset=T.int64(0))' in text
    assert mlcc.script(mlcc.parse(text), dialect="tvm") == text
