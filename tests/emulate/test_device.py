"""The emulated device: memory of the host, kernels by emulation, scalars of all kinds."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, LoadError
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.runtime.launch.device import KernelSpec
from mlcc.targets.emulate.device import EmulatedDevice
from tests.emulate.kernels import program, rand

SCALE = """
@T.prim_func
def scale(A: T.Buffer((64,), "float32"), by: T.{dtype}, B: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", {threads})
    B[tx] = A[tx] * T.Cast("float32", by)
"""


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1.5), ("bfloat16", -3.0), ("bool", True), ("int8", -2), ("float64", 0.25)]
)
def test_launches_match_numpy(dtype: str, value: float) -> None:
    (kernel,) = program(SCALE.format(dtype=dtype, threads=64)).kernels
    device = EmulatedDevice([kernel])
    params = tuple("ptr" if p.dtype.is_handle else str(p.dtype) for p in kernel.params)
    loaded = device.load_module(b"", {kernel.name: KernelSpec(kernel.name, params)})
    a, b = rand(64), np.zeros(64, "float32")
    at = {"A": device.alloc(256), "B": device.alloc(256)}
    device.copy_in(at["A"], a.ctypes.data, 256)
    args = [at.get(p.name, value) for p in kernel.params]
    device.launch(loaded[kernel.name], (1, 1, 1), (64, 1, 1), 0, args)
    device.copy_out(b.ctypes.data, at["B"], 256)
    assert np.array_equal(b, a * np.float32(value))


def test_the_end_of_an_allocation_is_known() -> None:
    (kernel,) = program(SCALE.format(dtype="int32", threads=128)).kernels
    device = EmulatedDevice([kernel])
    loaded = device.load_module(b"", {kernel.name: KernelSpec(kernel.name, ("ptr", "ptr", "int32"))})
    place = device.alloc(600)
    args = {"A": place, "B": device.alloc(256), "by": 2}
    ctypes.memset(place, 0, 600)
    with pytest.raises(CallError, match=r"`B\[64\]` is out of bounds: `B` has 64 elements") as caught:
        device.launch(loaded[kernel.name], (1, 1, 1), (128, 1, 1), 0, [args[p.name] for p in kernel.params])
    assert len(caught.value.diagnostics) == 1, "A has 150"
    unchecked = EmulatedDevice([kernel], check=False).load_module(b"", {kernel.name: KernelSpec(kernel.name, ())})
    assert unchecked[kernel.name].checks.sites == []


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(LoadError, match="no kernel `other`"):
        EmulatedDevice([]).load_module(b"", {"other": KernelSpec("other", ())})


WIDE = """
@T.prim_func
def wide(a: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (m, n), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    for i in T.thread_binding(m, thread="blockIdx.{axis}"):
        for j in T.thread_binding({threads}, thread="threadIdx.x"):
            {inner}
"""
BLOCKS = WIDE.format(axis="x", threads="n", inner="B[i, j] = A[i, j]")
GRIDS = WIDE.format(axis="y", threads="1", inner="B[i, j] = A[i, j]")
SHARED = """
@T.prim_func
def wide(a: T.handle, b: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (m, n), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    for i in T.thread_binding(m, thread="blockIdx.x"):
        S = T.alloc_buffer((n,), "float32", scope="shared.dyn")
        for j in T.thread_binding(32, thread="threadIdx.x"):
            for k in range((n + 31) // 32):
                if k * 32 + j < n:
                    S[k * 32 + j] = A[i, k * 32 + j]
        for j in T.thread_binding(32, thread="threadIdx.x"):
            for k in range((n + 31) // 32):
                if k * 32 + j < n:
                    B[i, k * 32 + j] = S[n - 1 - (k * 32 + j)]
"""


@pytest.mark.parametrize(
    ("text", "fits", "shape", "said"),
    [
        (BLOCKS, (1, 1024), (1, 1025), "blocks of 1025 x 1 x 1 threads, an emulated sm_80 takes 1024 in all"),
        (GRIDS, (65535, 1), (65536, 1), "a grid of 1 x 65536 x 1"),
        (SHARED, (1, 41000), (1, 42000), "164.1 KiB of shared memory, an emulated sm_80 has 163.0 KiB"),
    ],
)
def test_launches_that_the_gpu_would_refuse(
    text: str, fits: tuple[int, int], shape: tuple[int, int], said: str
) -> None:
    """What is known at the launch alone is refused as on hardware, at a place of the kernel."""
    exe = mlcc.load(mlcc.build(mlcc.parse(text, "wide.mlc"), "cuda{arch=sm_80}"), emulate=True, check=False)
    a, b = rand(*fits), np.zeros(fits, "float32")
    exe["wide"](a, b)
    assert np.array_equal(b, a[:, ::-1] if text is SHARED else a)
    with pytest.raises(CallError, match="E0864") as caught:
        exe["wide"](rand(*shape), np.zeros(shape, "float32"))
    (found,) = caught.value.diagnostics
    assert said in found.message and found.primary is not None and found.primary.span is not None
    assert found.primary.span.source.name == "wide.mlc"


UNROLLED = """
@T.prim_func
def sums(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        B[t] = 0.0
        for k in T.unroll(48):
            B[t] = B[t] + A[t, k]
"""


def test_loops_are_not_unrolled_for_a_cpu(tmp_path: Path) -> None:
    """A kernel for tensor cores, unrolled, took minutes to compile."""
    artifact = mlcc.build(mlcc.parse(UNROLLED), "cuda{arch=sm_80}")
    (kernel,) = artifact.launch.kernels
    assert sum(isinstance(n, tir.For) for s in kernel.body for n in walk(s)) == 1
    artifact.save(tmp_path / "sums.mlca")
    a = rand(64, 48)
    for made in (artifact, tmp_path / "sums.mlca"):
        b = np.zeros(64, "float32")
        mlcc.load(made, emulate=True)["sums"](a, b)
        np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_arguments_of_removed_loops_are_accepted(tmp_path: Path) -> None:
    """The loop is gone where it is unrolled, and the argument with it."""
    text = """
@T.prim_func
def main(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32"), a: T.float32):
    for t in T.thread_binding(4, thread="threadIdx.x"):
        Y[t] = X[t]
        for k in T.unroll(0):
            Y[t] = a
"""
    artifact = mlcc.build(mlcc.parse(text), "cuda{arch=sm_80}", pipeline="")
    artifact.save(tmp_path / "k.mlca")
    x = np.arange(4, dtype=np.float32)
    for given in (artifact, tmp_path / "k.mlca"):
        y = np.zeros(4, np.float32)
        mlcc.load(given, emulate=True)["main"](x, y, 2.0)
        np.testing.assert_array_equal(y, x)
