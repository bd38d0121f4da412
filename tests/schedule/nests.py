"""Small nests that the tests of the loop primitives start from."""

from __future__ import annotations

from collections.abc import Sequence


def elementwise(*extents: int) -> str:
    """One spatial block over a nest `i`, `j`, `k`."""
    names = "ijk"[: len(extents)]
    shape = ", ".join(map(str, extents)) + ","
    places = ", ".join(f"v{n}" for n in names)
    grid = f"T.grid({shape})" if len(extents) > 1 else f"range({extents[0]})"
    return f"""
@T.prim_func
def main(A: T.Buffer(({shape}), "float32"), B: T.Buffer(({shape}), "float32")):
    for {", ".join(names)} in {grid}:
        with T.block("B"):
            {places} = T.axis.remap("{"S" * len(names)}", [{", ".join(names)}])
            B[{places}] = A[{places}] * T.float32(2) + T.float32(1)
"""


def row_sums(rows: int, columns: int) -> str:
    """A reduction block over `i`, `j`."""
    return f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns}), "float32"), B: T.Buffer(({rows},), "float32")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vj]
"""


TRIANGLE = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, j)
                B[vi, vj] = A[vi, vj]
"""

BRANCHES = """
@T.prim_func
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i in range(8):
        for j in range(6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
        for k in range(6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, k])
                C[vi, vj] = A[vi, vj] * T.float32(2)
"""

FROM_2 = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(2, 8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
"""

SYMBOLIC = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)
"""


def two_nests(value: str, extents: Sequence[int] = (8, 6)) -> str:
    """Block B over a nest, then block C over another one; C stores `value`."""
    shape = ", ".join(map(str, extents))
    return f"""
@T.prim_func
def main(A: T.Buffer(({shape}), "float32"), B: T.Buffer(({shape}), "float32"), C: T.Buffer(({shape}), "float32")):
    for i, j in T.grid({shape}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for k, l in T.grid({shape}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [k, l])
            C[vi, vj] = {value}
"""
