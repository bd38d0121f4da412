"""set_scope, storage_align, unsafe_set_dtype; unsafe_hide_buffer_access and annotate_buffer_access."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.tools import CHAIN, assert_same_results, refused, schedule

VIEWS = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
    for o in range(4):
        with T.block("C"):
            vo = T.axis.spatial(4, o)
            T.reads(B[vo * 4:vo * 4 + 4])
            T.writes(C[vo * 4:vo * 4 + 4])
            X = T.match_buffer(B[vo * 4:vo * 4 + 4], (4,), offset_factor=1)
            for i in range(4):
                C[vo * 4 + i] = X[i] + T.float32(1)
"""


def test_set_scope_changes_the_buffer() -> None:
    sch = schedule(CHAIN)
    block = sch.get_block("B")
    sch.set_scope(block, 0, "shared")
    script = sch.mod.script()
    assert 'B_shared = T.alloc_buffer((16, 12), "float32", scope="shared")' in script
    assert "T.writes(B_shared[vi, vj])" in script and "T.reads(B_shared[vi, vj])" in script
    assert sch.get(block).writes[0].buffer.scope == "shared"
    assert_same_results(mlcc.parse(CHAIN), sch.mod)
    before = sch.mod
    sch.set_scope("C", "C", "global")  # where it is
    mlcc.assert_structural_equal(sch.mod, before)


def test_views_move_with_their_source() -> None:
    sch = schedule(VIEWS)
    sch.set_scope("B", 0, "local")
    (view,) = sch.get(sch.get_block("C")).match_buffers
    assert (view.buffer.scope, view.source.buffer.scope) == ("local", "local")
    assert_same_results(mlcc.parse(VIEWS), sch.mod)
    with refused("E0614"):
        sch.set_scope("C", 1, "shared")


def test_buffers_that_are_not_allocated_here() -> None:
    for name, args in (("set_scope", ("shared",)), ("storage_align", (0, 16, 4)), ("unsafe_set_dtype", ("float16",))):
        sch = schedule(CHAIN)
        with refused("E0679", "of `D`: it is a parameter.*cache_write"):
            getattr(sch, name)("D", 0, *args)
    with refused("E0641", "'nonsense' is not a storage scope"):
        schedule(CHAIN).set_scope("B", 0, "nonsense")


def test_storage_align_annotates_the_block() -> None:
    sch = schedule(CHAIN)
    block = sch.get_block("B")
    sch.storage_align(block, 0, -2, 32, 8)
    sch.storage_align(block, 0, 1, 16, 0)
    sch.storage_align(block, 0, 0, 8, 1)  # instead of the first
    assert sch.get(block).annotations["buffer_dim_align"] == ((0, 0, 8, 1), (0, 1, 16, 0))
    with refused("E0680", "has 2 axes, and axis 2 is out of range.*0 to 1, or from the last one -1 to -2"):
        sch.storage_align(block, 0, 2, 32, 8)
    with refused("E0680", "must be positive"):
        sch.storage_align(block, 0, 0, 0, 8)
    sch.unannotate(block, "buffer_dim_align")
    sch.annotate(block, "buffer_dim_align", [1, 2])
    with refused("E0680", "not a list of four"):
        sch.storage_align(block, 0, 0, 32, 8)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_unsafe_set_dtype_changes_the_buffer(dtype: str) -> None:
    sch = schedule(CHAIN)
    sch.unsafe_set_dtype("B", 0, dtype)
    assert (f'T.Cast("{dtype}", A[vi, vj] * T.float32(2.0))' in sch.mod.script()) == (dtype == "float64")
    assert_same_results(mlcc.parse(CHAIN), sch.mod)


def test_unsafe_set_dtype_of_a_viewed_buffer() -> None:
    sch = schedule(VIEWS)
    sch.unsafe_set_dtype("B", 0, "float64")
    assert_same_results(mlcc.parse(VIEWS), sch.mod)
    for dtype in ("nonsense", "handle", "float32x4"):
        with refused("E0683", "is not a data type"):
            sch.unsafe_set_dtype("B", 0, dtype)


# ---------------------------------------------------------------- what blocks say of their accesses


def test_hidden_accesses_are_removed() -> None:
    sch = schedule(CHAIN)
    block = sch.get_block("D")
    sch.unsafe_hide_buffer_access(block, "read", [0])
    assert [r.buffer.name for r in sch.get(block).reads] == ["B"]
    with refused("E0614", "no read buffer 1"):
        sch.unsafe_hide_buffer_access(block, "read", [1])
    with refused("E0614", "read or written"):
        sch.unsafe_hide_buffer_access(block, "both", [0])
    sch.unsafe_hide_buffer_access(block, "write", [0])
    assert not sch.get(block).writes


def test_annotated_accesses_replay() -> None:
    sch = schedule(CHAIN)
    block = sch.get_block("D")
    sch.annotate_buffer_access(block, 0, "read", lambda i, j: ((i - 1, i + 2), j))
    sch.annotate_buffer_access(block, 1, "read", lambda i, j: [i // 2, (0, 12)])
    sch.annotate_buffer_access(block, 0, "read", lambda i, j: ((i, i + 1), j))
    script = sch.mod.script()
    assert "T.reads(C[vi, vj], B[vi // 2, 0:12])" in script
    assert '"explicit_read_region": [0, 1]' in script
    trace = str(sch.trace)
    assert 'buf_type="read", gen_new_ranges=lambda vi, vj: [(vi - 1, vi + 2), (vj, vj + 1)])' in trace
    again = schedule(CHAIN)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    mlcc.assert_structural_equal(again.mod, sch.mod)
    mlcc.assert_structural_equal(mlcc.apply_schedule(mlcc.parse(CHAIN), trace), sch.mod)


def test_ranges_that_do_not_fit() -> None:
    sch = schedule(CHAIN)
    with refused("E0692", "gives 1 ranges, but `C` has 2 dimensions"):
        sch.annotate_buffer_access("D", 0, "read", lambda i, j: (i,))
    with refused("E0692", "not an index or a pair"):
        sch.annotate_buffer_access("D", 0, "read", lambda i, j: ((i, i, i), j))
    with refused("E0613", "cannot be applied to 2 indices"):
        sch.annotate_buffer_access("D", 0, "read", lambda i: (i,))
    with refused("E0613", "takes a function of indices"):
        sch.annotate_buffer_access("D", 0, "read", 3)
    with refused("E0614", "no write buffer 3"):
        sch.annotate_buffer_access("D", 3, "write", lambda i, j: (i, j))
