"""Barriers in shared memory that count arrivals: their phases under emulation, and planted faults."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from mlcc.targets.source import emit_source
from tests.emulate.kernels import program

# rows of 64, reversed by way of shared memory: one barrier says that a row is there, one that it has been read
TEXT = """
@T.prim_func
def f(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 64), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.alloc_buffer((64,), "float32", scope="shared")
    T.create_barriers(2)
    if tx == 0:
        T.ptx_init_barrier_thread_count(0, 64)
        T.ptx_init_barrier_thread_count(1, 64)
        T.ptx_fence_barrier_init()
    T.tvm_storage_sync("shared")
    for k in range(4):
        S[tx] = A[k, tx]
        T.ptx_arrive_barrier(0)
        T.ptx_wait_barrier(0, k % 2)
        B[k, tx] = S[63 - tx]
        T.ptx_arrive_barrier(1)
        T.ptx_wait_barrier(1, k % 2)
"""
# the same, its barriers in memory of the text's own; waiting twice is no fault
OWN = (
    TEXT.replace("T.create_barriers(2)", 'bars = T.alloc_buffer((2,), "uint64", scope="shared")')
    .replace("count(0,", "count(T.address_of(bars[0]),").replace("count(1,", "count(T.address_of(bars[1]),")
    .replace("arrive_barrier(0)", "arrive_barrier(T.address_of(bars[0]))")
    .replace("arrive_barrier(1)", "arrive_barrier_expect_tx(T.address_of(bars[1]), 0)")
    .replace("wait_barrier(0,", "wait_barrier(T.address_of(bars[0]),")
    .replace("T.ptx_wait_barrier(1, k % 2)", "T.ptx_wait_barrier(T.address_of(bars[1]), k % 2)\n        " * 2)
)  # fmt: skip


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("text", [TEXT, OWN], ids=["numbers", "addresses"])
def test_phases_order_threads(text: str, check: bool) -> None:
    given, got = np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros((4, 64), np.float32)
    run_program(program(text), given, got, check=check)
    np.testing.assert_array_equal(got, given[:, ::-1])


FAULTS = {
    "no wait before reading": ("        T.ptx_wait_barrier(0, k % 2)\n", "", "E0742"),
    "no wait before writing": ("        T.ptx_wait_barrier(1, k % 2)\n", "", "E0742"),
    "an arrival too few": ("count(0, 64)", "count(0, 65)", "E0746"),
    "an arrival too many": ("        T.ptx_arrive_barrier(0)\n", "        T.ptx_arrive_barrier(0)\n" * 2, "E0746"),
    "the parity of the next phase": ("wait_barrier(0, k % 2)", "wait_barrier(0, 1 - k % 2)", "E0746"),
    "bytes that never come": ("arrive_barrier(0)", "arrive_barrier_expect_tx(0, 16)", "E0746"),
    "more bytes than there can be": ("arrive_barrier(0)", "arrive_barrier_expect_tx(0, 1048575)", "E0739"),
    "arrivals before all know of it": ('    T.tvm_storage_sync("shared")\n', "", "E0742"),
    "no barrier": ("        T.ptx_init_barrier_thread_count(0, 64)\n", "", "E0743"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    old, new, code = FAULTS[name]
    assert old in TEXT
    with pytest.raises(CallError) as caught:
        run_program(program(TEXT.replace(old, new, 1)), *(np.zeros((4, 64), np.float32) for _ in range(2)))
    assert code in {d.code for d in caught.value.diagnostics}


def test_reads_of_one_warp_are_not_ordered_by_an_arrival() -> None:
    """Thread 0 arrives and goes on: that says nothing of what the others of its warp did."""
    text = """
@T.prim_func
def f(B: T.Buffer((32,), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.alloc_buffer((32,), "float32", scope="shared")
    T.create_barriers(1)
    if tx == 0:
        T.ptx_init_barrier_thread_count(0, 1)
    S[tx] = T.Cast("float32", tx)
    if tx == 0:
        T.ptx_arrive_barrier(0)
        B[0] = S[1]
"""
    with pytest.raises(CallError, match="E0742"):
        run_program(program(text), np.zeros(32, np.float32))


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100", "sm_120"])
def test_ptx_has_the_instructions(arch: str) -> None:
    made = emit_ptx(program(TEXT).kernels, f"cuda{{arch={arch}}}")
    assert made.text.count("mbarrier.init.shared::cta.b64") == 2
    assert "mbarrier.try_wait.parity.shared::cta.b64" in made.text
    assert tuple(made.requirements["ptx_isa"].split(".")) >= ("8", "0")  # type: ignore[attr-defined]
    if find_ptxas() is not None:
        (found,) = assemble(made.text, arch).values()
        assert (found.stack, found.spill_stores, found.shared) == (0, 0, 256 + 16)


def test_the_source_has_them() -> None:
    text = emit_source(program(TEXT).kernels, "cuda-c")
    assert 'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"' in text
    with pytest.raises(mlcc.CompileError, match="E0780"):
        emit_source(program(TEXT).kernels, "metal")


def test_illegal_uses_are_refused() -> None:
    with pytest.raises(mlcc.CompileError, match="compile for sm_90 or later"):
        emit_ptx(program(TEXT).kernels, "cuda{arch=sm_80}")
    for old, new in (("arrive_barrier(0)", "arrive_barrier(2)"), ("    T.create_barriers(2)\n", "")):
        with pytest.raises(mlcc.CompileError, match="E0776"):
            program(TEXT.replace(old, new))
