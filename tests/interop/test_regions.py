"""Regions that a block does not state are inferred as TVM infers them: one text, read by both."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402

HEAD = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 64), "float32"), B: T.Buffer((64,), "float32"), I: T.Buffer((16,), "int32"),
         C: T.Buffer((16, 64), "float32"), V: T.Buffer((16, 16), "float32x4")):
"""

# the body of a block with axes vi < 16 and vj < 64, by what it shows
BLOCKS = {
    "point": ["C[vi, vj] = A[vi, vj]"],
    "shifted": ["C[vi, vj] = A[vi + 1, vj - 1]"],
    "two points": ["C[vi, vj] = A[vi, vj] + A[vi, vj + 1]"],
    "three points": ["C[vi, vj] = A[vi, vj] + A[vi, vj + 2] + A[vi, vj + 1]"],
    "points unordered": ["C[vi, vj] = A[vi, vj] + A[vj, vi]"],
    "transposed": ["C[vi, vj] = A[vj, vi]"],
    "constant": ["C[vi, vj] = A[0, 5] + A[3, 5]"],
    "scaled": ["C[vi, vj] = A[vi * 2, vj * 4 + 1]"],
    "divided": ["C[vi, vj] = A[vi // 2, vj % 4]"],
    "divided sum": ["C[vi, vj] = A[(vi * 4 + vj) // 4, (vi + vj) % 8]"],
    "minimum": ["C[vi, vj] = A[T.min(vi, 7), T.max(vj, 3)]"],
    "select": ["C[vi, vj] = A[T.Select(vi < 8, vi, 0), vj]"],
    "loop": ["for k in range(4):", "    C[vi, vj] = C[vi, vj] + A[vi, k]"],
    "loop on the left": ["for k in range(4):", "    C[vi, vj + k] = A[vi, vj]"],
    "loop scaled": ["for k in range(4):", "    C[vi, vj] = A[vi, vj * 4 + k]"],
    "loop negative": ["for k in range(4):", "    C[vi, vj] = A[vi, vj - k]"],
    "loop halves": ["for k in range(8):", "    C[vi, vj] = A[vi, k // 2]"],
    "loop remainder": ["for k in range(8):", "    C[vi, vj] = A[vi, k % 4]"],
    "loop remainder whole": ["for k in range(3):", "    C[vi, vj] = A[vi, k % 4]"],
    "loop from": ["for k in range(2, 6):", "    C[vi, vj] = A[vi, vj + k]"],
    "loop of one": ["for k in range(1):", "    C[vi, vj] = A[vi, vj + k]"],
    "loop to an axis": ["for k in range(vj):", "    C[vi, vj] = A[vi, k]"],
    "loop from an axis": ["for k in range(vi, 16):", "    C[vi, vj] = A[k, vj]"],
    "two loops": ["for k, l in T.grid(4, 2):", "    C[vi, vj] = A[vi, vj + k * 2 + l]"],
    "loop in a loop's bound": ["for k in range(4):", "    for l in range(k + 1):", "        C[vi, vj] = A[vi, vj + l]"],
    "loop over two buffers": ["for k in range(4):", "    C[vi, k] = A[vi, k] + B[vj + k]"],
    "serial union": ["C[vi, 0] = A[vi, 1]", "C[vi, 3] = A[vi, 5]"],
    "union with a loop": ["C[vi, vj] = A[vi, vj]", "for k in range(4):", "    C[vi, vj] = A[vi, vj + k]"],
    "union of ends": ["C[vi, vj] = A[vi, 0] + A[vi, vj]"],
    "gathered": ["C[vi, vj] = A[I[vi], vj]"],
    "gathered twice": ["C[vi, vj] = A[I[vi], vj] + A[I[vi] + 1, vj]"],
    "gathered in a loop": ["for k in range(4):", "    C[vi, vj] = A[I[k], vj]"],
    "scattered": ["C[I[vi], vj] = A[vi, vj]"],
    "let": ["x: T.let = A[vi, vj]", "C[vi, vj] = x * x"],
    "let index": ["x: T.let[T.int32] = vj + 1", "C[vi, vj] = A[vi, x]"],
    "let of a let": ["x: T.let[T.int32] = vj + 1", "y: T.let[T.int32] = x * 2", "C[vi, vj] = A[vi, y]"],
    "if on an axis": ["if vi < 8:", "    C[vi, vj] = A[vi, vj]"],
    "if on a loop": ["for k in range(8):", "    if k < 4:", "        C[vi, vj] = A[vi, k]"],
    "if on a loop, else": [
        "for k in range(8):", "    if k < 4:", "        C[vi, vj] = A[vi, k]", "    else:", "        C[vi, vj] = B[k]",
    ],
    "if on two sides": ["for k in range(8):", "    if k >= 2 and k < 5:", "        C[vi, vj] = A[vi, k]"],
    "if equal": ["for k in range(8):", "    if k == 3:", "        C[vi, vj] = A[vi, k]"],
    "if on a sum": ["for k, l in T.grid(4, 4):", "    if k * 4 + l < 8:", "        C[vi, vj] = A[vi, k * 4 + l]"],
    "if on a sum, apart": ["for k, l in T.grid(4, 4):", "    if k * 4 + l < 8:", "        C[vi, vj] = A[k, l]"],
    "if on axis and loop": ["for k in range(8):", "    if k < vi:", "        C[vi, vj] = A[vi, k]"],
    "if reads": ["if A[vi, vj] > T.float32(0):", "    C[vi, vj] = B[vj]"],
    "if_then_else": ["C[vi, vj] = T.if_then_else(vi >= 1 and vj < 63, A[vi - 1, vj + 1], T.float32(0))"],
    "if_then_else on a loop": [
        "for k in range(8):", "    C[vi, vj] = C[vi, vj] + T.if_then_else(k < 4, A[vi, k], B[k])",
    ],
    "vector store": ["C[vi, T.ramp(vj * 4, 1, 4)] = A[vi, T.ramp(vj * 4, 1, 4)]"],
    "vector elements": ["V[vi, vj] = V[vj, vi]"],
    "vector strided": ["C[vi, T.ramp(0, 2, 4)] = A[vi, T.ramp(3, -1, 4)]"],
    "broadcast": ["C[vi, T.ramp(vj * 4, 1, 4)] = T.broadcast(A[vi, vj], 4)"],
    "while": ["while C[vi, vj] < T.float32(10):", "    C[vi, vj] = C[vi, vj] + A[vi, vj]"],
    "assert": ["assert A[vi, vj] > T.float32(0), \"x\"", "C[vi, vj] = T.float32(1)"],
    "order of reads": ["C[vi, vj] = B[vj] + A[vi, vj] * B[vi]"],
    "write then read": ["C[vi, vj] = T.float32(0)", "C[vi, vj] = C[vi, vj] + T.float32(1)"],
}  # fmt: skip

REDUCTIONS = {
    "sum": ["C[vi, 0] = C[vi, 0] + A[vi, vj]"],
    "sum of products": ["C[vi, 0] = C[vi, 0] + A[vi, vj] * B[vj]"],
    "own neighbour": ["C[vi, 0] = C[vi, 0] + C[vi, 1]"],
}

WHOLE = {
    "nested block": """
    for i, j in T.grid(16, 16):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            for k in range(4):
                with T.sblock("inner"):
                    vk = T.axis.spatial(64, vj * 4 + k)
                    C[vi, vk] = A[vi, vk] + B[vk]
""",
    "nested block with a region": """
    for i in range(16):
        with T.sblock("outer"):
            vi = T.axis.spatial(16, i)
            for k in range(4):
                with T.sblock("inner"):
                    vk = T.axis.spatial(4, k)
                    T.reads(A[vi, vk * 16:vk * 16 + 16])
                    T.writes(C[vi, vk * 16:vk * 16 + 16])
                    for l in range(16):
                        C[vi, vk * 16 + l] = A[vi, vk * 16 + l]
""",
    "reduction in a block": """
    for i in range(16):
        with T.sblock("outer"):
            vi = T.axis.spatial(16, i)
            for j, k in T.grid(4, 64):
                with T.sblock("inner"):
                    vj, vk = T.axis.remap("SR", [j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk]
""",
    "allocated in a block": """
    for i in range(16):
        with T.sblock("outer"):
            vi = T.axis.spatial(16, i)
            D = T.sblock_alloc_buffer((64,), "float32")
            for j in range(64):
                with T.sblock("one"):
                    vj = T.axis.spatial(64, j)
                    D[vj] = A[vi, vj]
            for j in range(64):
                with T.sblock("two"):
                    vj = T.axis.spatial(64, j)
                    C[vi, vj] = D[vj]
""",
    "allocated at the root": """
    D = T.sblock_alloc_buffer((16, 64), "float32")
    for i, j in T.grid(16, 64):
        with T.sblock("one"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj]
    for i, j in T.grid(16, 64):
        with T.sblock("two"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = D[vi, vj]
""",
    "matched": """
    for i, j in T.grid(4, 4):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            S = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 16:vj * 16 + 16], (4, 16), "float32", offset_factor=1)
            D = T.match_buffer(C[vi * 4:vi * 4 + 4, vj * 16:vj * 16 + 16], (4, 16), "float32", offset_factor=1)
            for k, l in T.grid(4, 16):
                with T.sblock("inner"):
                    vk, vl = T.axis.remap("SS", [k, l])
                    D[vk, vl] = S[vk, vl]
""",
    "matched, a part": """
    for i in range(4):
        with T.sblock("outer"):
            vi = T.axis.spatial(4, i)
            S = T.match_buffer(A[vi * 4:vi * 4 + 4, 0:16], (4, 16), "float32", offset_factor=1)
            C[vi, 0] = S[1, 2] + S[3, 4]
""",
    "predicate": """
    for i, j, k in T.grid(16, 8, 9):
        with T.sblock("b"):
            vi = T.axis.spatial(16, i)
            vj = T.axis.spatial(64, j * 9 + k)
            T.where(j * 9 + k < 64)
            C[vi, vj] = A[vi, vj]
""",
    "reads stated only": """
    for i, j in T.grid(16, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[0:16, 0:64])
            C[vi, vj] = A[vi, vj]
""",
    "writes stated only": """
    for i, j in T.grid(16, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.writes(C[0:16, 0:64])
            C[vi, vj] = A[vi, vj]
""",
    "opaque block": """
    for i in range(16):
        with T.sblock("opaque"):
            C[i, 0] = A[i, 0]
""",
    "access by pointer to read": """
    for i in range(16):
        with T.sblock("b"):
            vi = T.axis.spatial(16, i)
            T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), A.data, vi * 64, 64, 1))
            C[vi, 0] = T.float32(0)
""",
    "block without axes at the top": """
    with T.sblock("only"):
        C[0, 0] = A[0, 0]
""",
    "root as written": """
    with T.sblock("root"):
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                C[vi, 0] = A[vi, 0]
""",
    "no block": """
    for i in range(16):
        C[i, 0] = A[i, 0]
""",
}

SYMBOLIC = """
@T.prim_func(s_tir=True)
def main(a: T.handle, c: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            {}
"""
SYMBOLIC_BODIES = {
    "point": "C[vi, vj] = A[vi, vj]",
    "mirrored": "C[vi, vj] = A[n - 1 - vi, vj]",
    "row": "for k in range(m):\n                C[vi, vj] = A[vi, k]",
    "all but the last": "for k in range(m - 1):\n                C[vi, vj] = A[vi, k + 1]",
    "ends": "C[vi, vj] = A[vi, 0] + A[vi, m - 1]",
}


def block(body: list[str], kinds: str = "SS", init: bool = False) -> str:
    lines = [f'vi, vj = T.axis.remap("{kinds}", [i, j])']
    if init:
        lines += ["with T.init():", "    C[vi, 0] = T.float32(0)"]
    inside = "\n".join(" " * 12 + line for line in [*lines, *body])
    return HEAD + '    for i, j in T.grid(16, 64):\n        with T.sblock("b"):\n' + inside + "\n"


TEXTS = {
    **{f"block: {k}": block(v) for k, v in BLOCKS.items()},
    **{f"reduction: {k}": block(v, "SR", init=True) for k, v in REDUCTIONS.items()},
    **{f"reduction without init: {k}": block(v, "SR") for k, v in REDUCTIONS.items()},
    **{f"function: {k}": HEAD + v for k, v in WHOLE.items()},
    **{f"symbolic: {k}": SYMBOLIC.format(v) for k, v in SYMBOLIC_BODIES.items()},
}


@pytest.mark.parametrize("name", TEXTS)
def test_regions_are_tvms(name: str) -> None:
    theirs = to_tvm(TEXTS[name])
    mine = mlcc.parse(TEXTS[name])
    assert_structural_equal(mine, from_tvm(theirs))


def test_access_by_pointer_must_be_stated() -> None:
    text = (
        HEAD
        + """
    for i in range(16):
        with T.sblock("b"):
            vi = T.axis.spatial(16, i)
            T.evaluate(T.call_extern("int32", "f", A.data, vi))
"""
    )
    with pytest.raises(Exception, match="(?i)region"):
        to_tvm(text)
    with pytest.raises(mlcc.CompileError, match="E0330"):
        mlcc.parse(text)
