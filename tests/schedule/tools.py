"""Programs that the tests of schedules start from, and a check that a schedule keeps what they compute."""

from __future__ import annotations

import numpy as np

import mlcc
from mlcc.interp.prim_func import run_prim_func
from mlcc.ir.module import IRModule

MATMUL = """
@T.prim_func
def main(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    for i, j, k in T.grid(32, 16, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

CHAIN = """
@T.prim_func
def main(A: T.Buffer((16, 12), "float32"), D: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    C = T.alloc_buffer((16, 12))
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
    for i, j in T.grid(16, 12):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + B[vi, vj]
"""


def schedule(text: str, seed: int | None = 1) -> mlcc.Schedule:
    return mlcc.Schedule(mlcc.parse(text), seed=seed)


def outputs(mod: IRModule, seed: int = 0) -> list[np.ndarray]:
    """All arguments of `main` after a run of the reference interpreter on random inputs."""
    func = mod["main"]
    rng = np.random.default_rng(seed)
    arrays = []
    for buffer in func.buffers:
        shape = tuple(n.value for n in buffer.shape)
        dtype = str(buffer.dtype)
        made = rng.integers(-8, 8, shape) if dtype.startswith("int") else rng.standard_normal(shape)
        arrays.append(made.astype(dtype))
    run_prim_func(func, arrays)
    return arrays


def assert_same_results(before: IRModule, after: IRModule) -> None:
    for one, other in zip(outputs(before), outputs(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def refused(code: str, words: str = "") -> object:
    """`with refused("E0661", "not around"):` the step is refused with that code and those words."""
    import pytest

    return pytest.raises(mlcc.CompileError, match=rf"(?s){code}.*{words}")
