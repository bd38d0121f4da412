"""What accesses cost, against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.targets.emulate.analysis import Access, accesses
from mlcc.targets.emulate.compiled import Mode, load_kernels
from mlcc.targets.emulate.program import run_host
from tests.emulate.kernels import program, rand


def measured(text: str, *args: np.ndarray) -> dict[tuple[str, str], Access]:
    """The accesses of a text's only kernel by buffer and kind."""
    made = program(text)
    found: list[Access] = []

    def launched(kernel, run, grid, block):  # type: ignore[no-untyped-def]
        assert not run.findings
        found.extend(accesses(run.trace, kernel.checks))

    run_host(made, load_kernels(made.kernels, Mode(True, 1 << 16)), args, launched)
    assert len({(a.buffer, a.what) for a in found}) == len(found)
    return {(a.buffer, a.what): a for a in found}


def counts(access: Access) -> tuple[int, int, int]:
    return access.requests, access.units, access.least


COPY = """
@T.prim_func
def f(A: T.Buffer((4096,), "{dtype}"), B: T.Buffer((4096,), "{dtype}")):
    tx = T.launch_thread("threadIdx.x", 64)
    for k in range(4):
        B[k * 64 + tx] = A[{index}]
"""


@pytest.mark.parametrize(
    ("dtype", "index", "sectors"),
    [
        ("float32", "k * 64 + tx", 4), ("float32", "k * 64 + tx + 1", 5), ("float32", "tx * 8 + k", 32),
        ("float32", "tx * 2", 8), ("float64", "k * 64 + tx", 8), ("int8", "k * 64 + tx", 1), ("float32", "k", 1),
        ("float32", "(tx % 32) * 64 + tx // 32", 32), ("float16", "63 - tx", 2),
    ],
)  # fmt: skip
def test_sectors_match_counts_by_hand(dtype: str, index: str, sectors: int) -> None:
    """Two warps, four turns: eight requests."""
    found = measured(COPY.format(dtype=dtype, index=index), rand(4096).astype(dtype), np.zeros(4096, dtype))
    one = 1 if index == "k" else np.dtype(dtype).itemsize
    assert counts(found["A", "read"]) == (8, 8 * sectors, 8 * one)
    assert counts(found["B", "write"])[1] == counts(found["B", "write"])[2]


SHARED = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.alloc_buffer((4096,), "float32", scope="shared")
    for k in range(64):
        S[k * 64 + tx] = A[tx]
    T.tvm_storage_sync("shared")
    B[tx] = S[{index}]
"""


@pytest.mark.parametrize(
    ("index", "passes"),
    [("tx", 1), ("tx * 2", 2), ("tx * 32", 32), ("tx * 33", 1), ("tx // 2 * 64", 16), ("tx * 4", 4), ("5", 1)],
)
def test_bank_conflicts_match_counts_by_hand(index: str, passes: int) -> None:
    found = measured(SHARED.format(index=index), rand(64), np.zeros(64, "float32"))
    assert counts(found["S", "read"]) == (2, 2 * passes, 2)
    assert found["S", "read"].worst == passes
    assert counts(found["S", "write"]) == (128, 128, 128)


def test_wide_accesses_go_by_parts_of_a_warp() -> None:
    """16 bytes of each thread: four passes at the least; rows of 16 floats meet in banks, those of 20 do not."""
    text = """
@T.prim_func
def f(A: T.Buffer((32, 4), "float32"), B: T.Buffer((32, 4), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.alloc_buffer((1024,), "float32", scope="shared")
    for v in T.vectorized(4):
        S[tx * {row} + v] = A[tx, v]
    for v in T.vectorized(4):
        B[tx, v] = S[tx * {row} + v]
"""
    found = measured(text.format(row=16), rand(32, 4), np.zeros((32, 4), "float32"))
    assert counts(found["S", "read"]) == (1, 16, 4)
    assert counts(found["A", "read"]) == (1, 16, 16)
    found = measured(text.format(row=20), rand(32, 4), np.zeros((32, 4), "float32"))
    assert counts(found["S", "read"]) == (1, 4, 4)


def test_unrolled_accesses_are_requests_of_their_own() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    L = T.alloc_buffer((4,), "float32", scope="local")
    for k in T.unroll(4):
        L[k] = A[tx]
    if tx >= 8:
        B[tx] = L[0] + L[3]
"""
    found = measured(text, rand(32), np.zeros(32, "float32"))
    assert counts(found["A", "read"]) == (4, 16, 16)
    assert counts(found["B", "write"]) == (1, 3, 3)
