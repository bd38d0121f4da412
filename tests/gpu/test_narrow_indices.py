"""Integers of kernels in 32 bits: only where all values fit."""

from __future__ import annotations

import cProfile

import mlcc
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceKernel
from tests.lower import lower_gpu


def kernel_of(text: str) -> DeviceKernel:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("f", func).kernels
    return kernel


def wide_arithmetic(kernel: DeviceKernel) -> list[tir.Expr]:
    """The int64 arithmetic and variables that are left."""
    nodes = (n for stmt in kernel.body for n in walk(stmt))
    return [n for n in nodes if isinstance(n, (tir.Var, tir.BinaryOp)) and n.dtype is INT64]


LOOPS = """
@T.prim_func
def f(A: T.Buffer(({n}, T.int64(64)), "float32"), B: T.Buffer(({n}, T.int64(64)), "float32")):
    for bx in T.thread_binding({n}, thread="blockIdx.x"):
        for tx in T.thread_binding(T.int64(32), thread="threadIdx.x"):
            for i in range(T.int64(2)):
                if bx * T.int64(64) + tx * T.int64(2) + i < {n} * T.int64(64) - T.int64(1):
                    B[bx, tx * T.int64(2) + i] = A[bx, (tx * T.int64(2) + i + T.int64(1)) % T.int64(64)]
"""


def test_indices_bounded_by_constant_sizes_are_narrow() -> None:
    assert not wide_arithmetic(kernel_of(LOOPS.format(n="T.int64(100)")))


def test_what_may_pass_32_bits_stays() -> None:
    left = wide_arithmetic(kernel_of(LOOPS.format(n="T.int64(1073741824)")))
    assert any(isinstance(n, tir.Mul) for n in left)


SYMBOLIC = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for bx in T.thread_binding((n + T.int64(31)) // T.int64(32), thread="blockIdx.x"):
        for tx in T.thread_binding(T.int64(32), thread="threadIdx.x"):
            if bx * T.int64(32) + tx < n:
                B[bx * T.int64(32) + tx] = A[bx * T.int64(32) + tx]
"""


def test_symbolic_sizes_stay() -> None:
    assert any(isinstance(n, (tir.LT, tir.Mul)) for n in wide_arithmetic(kernel_of(SYMBOLIC)))


def test_values_of_the_program_keep_their_type() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((64,), "int64"), B: T.Buffer((64,), "int64")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        B[tx] = A[tx] * T.int64(3) + T.Cast("int64", tx)
"""
    assert any(isinstance(n, tir.Mul) for n in wide_arithmetic(kernel_of(text)))


def test_choices_between_choices_are_not_written_out() -> None:
    """The least of a row with its place, by threads: names of choices of names, which doubled with each."""
    text = """
@R.function
def main(x: R.Tensor((5, 33, "n"), "float16")):
    lv0 = R.argmin(x, axis=-1)
    return lv0
"""
    made = cProfile.Profile()
    module = mlcc.parse(text)
    with made:
        mlcc.build(module, "cuda{arch=sm_89}", opt_level=3)
    calls = sum(entry.callcount for entry in made.getstats())
    assert calls < 5_000_000, "a clock would not say whose time it was"


def test_a_place_in_the_grid_is_divided_in_32_bits() -> None:
    """By a size that is not known: where it is beyond 32 bits the quotient is 0, as it is by their greatest number."""
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    for bx in T.thread_binding(n * m, thread="blockIdx.x"):
        B[bx % m, bx // m] = A[bx // m, bx % m]
"""
    kernel = kernel_of(text)
    divisions = [n for s in kernel.body for n in walk(s) if isinstance(n, (tir.FloorDiv, tir.FloorMod))]
    assert divisions and all(n.dtype.bits == 32 for n in divisions)
    greatest = [n.value for d in divisions for n in walk(d.rhs) if isinstance(n, tir.IntImm)]
    assert set(greatest) == {2**31 - 1}
