"""simplify_indices: indices without the divisions that axes decide."""

from __future__ import annotations

import mlcc
from tests.schedule.tools import assert_same_results, schedule

RESHAPED = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), C: T.Buffer((3, 8), "float32"), D: T.Buffer((24,), "float32")):
    B = T.alloc_buffer((3, 2, 4))
    for i, j, k in T.grid(3, 2, 4):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[(vi * 2 + (vk // 4 + vj)) % 6, vk % 4]
    for i, j in T.grid(3, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj // 4, vj % 4]
    for i in range(24):
        with T.block("D"):
            vi = T.axis.remap("S", [i])
            D[vi] = A[vi // 4, vi % 4]
"""


def test_what_axes_decide_goes() -> None:
    sch = schedule(RESHAPED)
    sch.simplify_indices("B")
    block = sch.get(sch.get_block("B"))
    assert str(block.body[0]).strip() == "B[vi, vj, vk] = A[vi * 2 + vj, vk]"
    assert [str(r.min) for r in block.reads[0].region] == ["vi * 2 + vj", "vk"]
    assert_same_results(mlcc.parse(RESHAPED), sch.mod)
    assert "simplify_indices" in str(sch.trace)
    mlcc.assert_structural_equal(sch.mod, mlcc.apply_schedule(mlcc.parse(RESHAPED), str(sch.trace)))


def test_what_axes_leave_open_stays() -> None:
    sch = schedule(RESHAPED)
    for name in ("C", "D"):
        before = sch.get(sch.get_block(name)).body
        sch.simplify_indices(name)
        assert [str(s) for s in sch.get(sch.get_block(name)).body] == [str(s) for s in before]
