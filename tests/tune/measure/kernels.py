"""Kernels for the tests of the tuner, and ways to schedule them."""

from __future__ import annotations

from mlcc import Schedule, parse
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.tune.contracts import Task

NATIVE = Target.parse("llvm{cpu=native}")

MM_RELU = """
@T.prim_func
def main(A: T.Buffer((N, K), "float32"), B: T.Buffer((K, M), "float32"), C: T.Buffer((N, M), "float32")):
    T.func_attr({"tir.noalias": True})
    Y = T.alloc_buffer((N, M), "float32")
    for i, j, k in T.grid(N, M, K):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(N, M):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))
"""


def mm_relu(n: int = 32, m: int = 48, k: int = 40) -> IRModule:
    """relu(A @ B), not scheduled."""
    return parse(MM_RELU.replace("N", str(n)).replace("M", str(m)).replace("K", str(k)))


def tiled(module: IRModule, rows: int, columns: int) -> tir.PrimFunc:
    """`mm_relu` by register tiles."""
    sch = Schedule(module)
    block = sch.get_block("Y")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(i, [None, rows])
    across, lanes = sch.split(j, [None, columns])
    sch.reorder(outer, across, k, inner, lanes)
    sch.vectorize(lanes)
    sch.unroll(inner)
    sch.decompose_reduction(block, k)
    return func_of(sch.mod)


def func_of(module: IRModule) -> tir.PrimFunc:
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    return func


def task_of(module: IRModule, threads: int = 1, **more: object) -> Task:
    return Task("0" * 32, ("main",), func_of(module), NATIVE, threads, **more)  # type: ignore[arg-type]
