"""Lowering for GPUs: kernels as the code of one thread, launches on the host."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from tests.lower import lower_gpu

REVERSE = """
@T.prim_func
def reverse(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    bx = T.launch_thread("blockIdx.x", 8)
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((128,), "float32", scope="shared")
    S[tx] = A[bx * 128 + tx]
    T.tvm_storage_sync("shared")
    B[bx * 128 + tx] = S[127 - tx]
"""


def lowered(text: str, name: str) -> DeviceProgram:
    func = mlcc.parse(text)[name]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu(name, func)


def test_a_launch_scope_becomes_a_kernel_and_a_launch() -> None:
    made = lowered(REVERSE, "reverse")
    (kernel,) = made.kernels
    assert kernel.name == "reverse_kernel"
    assert [p.name for p in kernel.params] == ["A", "B"]
    assert {axis: tir.const_int(e) for axis, e in kernel.extents.items()} == {"blockIdx.x": 8, "threadIdx.x": 128}
    (launch,) = made.func.body
    assert isinstance(launch, tir.Evaluate) and isinstance(launch.value, tir.Call)
    assert launch.value.op.name == "reverse_kernel"
    (shared,) = (s.buffer for s in kernel.body if isinstance(s, tir.AllocBuffer))
    assert shared.scope == "shared"


def test_thread_bound_loops_become_a_kernel() -> None:
    sch = mlcc.Schedule(
        mlcc.parse(
            """
@T.prim_func
def add(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    for i in range(1024):
        with T.block("B"):
            v = T.axis.spatial(1024, i)
            B[v] = A[v] + T.float32(1)
"""
        )
    )
    outer, inner = sch.split(sch.get_loops(sch.get_block("B", "add"))[0], [None, 128])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    func = sch.mod["add"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("add", func).kernels
    assert {axis: tir.const_int(e) for axis, e in kernel.extents.items()} == {"blockIdx.x": 8, "threadIdx.x": 128}
    assert [p.name for p in kernel.params] == ["A", "B"]


def test_kernels_know_that_their_pointers_do_not_overlap() -> None:
    (plain,) = lowered(REVERSE, "reverse").kernels
    assert not plain.attrs.get("tir.noalias")
    (apart,) = lowered(
        REVERSE.replace("    bx", '    T.func_attr({"tir.noalias": True})\n    bx', 1), "reverse"
    ).kernels
    assert apart.attrs["tir.noalias"]
