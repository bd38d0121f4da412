"""Intrinsics that TVM calls by dotted names, and calls of PrimFuncs from graphs: read, printed, and read by TVM."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

from tvm.script import from_source  # noqa: E402

import mlcc  # noqa: E402
from mlcc.errors import CompileError  # noqa: E402
from mlcc.ir import relax  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from tests.interop.harness import to_tvm  # noqa: E402

KERNEL = """
@T.prim_func(s_tir=True)
def kernel(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (256,), "float16", scope="warp")
    B = T.match_buffer(b, (256,), "float16", scope="shared")
    C = T.match_buffer(c, (256,), "float32", scope="local")
    {call}
"""

# what a person or a pass writes for TVM, and the op that it is in mlcc
CALLS = {
    'T.ptx_legacy.ldmatrix(T.bool(False), 4, ".b16", A.data, 8, B.data, 16, dtype="float16")': "ptx_ldmatrix",
    'T.ptx_legacy.mma("m16n8k16", "row", "col", "fp16", "fp16", "fp32", A.data, 0, B.data, 8, C.data, 0, '
    "T.bool(False))": "ptx_mma",
    'T.cuda.mma_fill_legacy(8, C.data, 8, dtype="float32")': "mma_fill",
    'T.cuda.mma_store_legacy(16, 16, C.data, C.data, 0, 16, dtype="float32")': "mma_store",
    'T.s_tir.cp_async_raw("float16", B.data, 8, A.data, 8, 16)': "ptx_cp_async",
    'T.ptx.cp("async", "commit_group", "")': "ptx_commit_group",
    'T.ptx.cp(2, "async", "wait_group", "")': "ptx_wait_group",
}


@pytest.mark.parametrize("call", CALLS)
def test_dotted_names_read_as_the_same_call(call: str) -> None:
    text = KERNEL.format(call=call)
    theirs = to_tvm(text)
    mine = mlcc.parse(text)
    assert f"T.{CALLS[call]}(" in mlcc.script(mine)
    assert_structural_equal(mlcc.parse(mlcc.script(mine)), mine)
    printed = mlcc.script(mine, dialect="tvm")
    tvm.ir.assert_structural_equal(to_tvm(printed), theirs)
    assert_structural_equal(mlcc.parse(printed), mine)


def test_other_copies_of_ptx_are_named() -> None:
    with pytest.raises(CompileError) as caught:
        mlcc.parse(KERNEL.format(call='T.ptx.cp("reduce", "async", "bulk")'))
    assert [d.code for d in caught.value.diagnostics] == ["E0203"]
    assert "cp.reduce.async.bulk" in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    "call",
    ["T.tirx.TVMBackendAnyListSetPackedArg(r, 0, args, 1)", "T.tirx.TVMBackendAnyListMoveFromPackedReturn(r, 2, args)"],
)
def test_lists_of_the_virtual_machine(call: str) -> None:
    """TVM prints these and does not read them; what mlcc prints, TVM reads."""
    text = f"@T.prim_func\ndef f(r: T.handle, args: T.handle):\n    {call}\n"
    mine = mlcc.parse(text)
    assert_structural_equal(mlcc.parse(mlcc.script(mine)), mine)
    printed = mlcc.script(mine, dialect="tvm")
    name = call.removeprefix("T.").partition("(")[0]
    assert name in tvm.ir.save_json(from_source(printed, check_well_formed=False))
    assert_structural_equal(mlcc.parse(printed), mine)


def test_a_call_of_a_prim_func_gives_what_it_returns() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def fill(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(1)

    @T.prim_func(s_tir=True)
    def twice(n: T.int64) -> T.int64:
        return n + n

    @R.function(pure=False)
    def main(x: R.Tensor((4,), dtype="float32")):
        cls = Module
        a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0, R.str("global"))
        cls.fill(a)
        nothing = cls.fill(a)
        n = cls.twice(R.prim_value(3))
        return (a, nothing, n)
"""
    mine = mlcc.parse(text)
    result = mine["main"].ret_struct_info
    assert isinstance(result, relax.TupleStructInfo)
    assert isinstance(result.fields[1], relax.TupleStructInfo) and result.fields[1].fields == ()
    assert isinstance(result.fields[2], relax.PrimStructInfo) and str(result.fields[2].dtype) == "int64"
    theirs = from_source(text, check_well_formed=False)
    printed = mlcc.script(mine, dialect="tvm")
    tvm.ir.assert_structural_equal(from_source(printed, check_well_formed=False), theirs)
    assert_structural_equal(mlcc.parse(mlcc.script(mine)), mine)
