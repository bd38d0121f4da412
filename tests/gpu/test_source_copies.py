"""Kernels as source text: vectors that may be read only under a condition, asynchronous copies, and what the default
schedules of products make."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc
from tests.gpu.sources import Compiled

KERNELS = """
@T.prim_func
def padded(A: T.Buffer((40,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in T.thread_binding(16, thread="threadIdx.x"):
        for v in T.vectorized(4):
            B[i * 4 + v] = T.if_then_else(i * 4 + v < 40, A[i * 4 + v], T.float32(-1))
        for v in T.vectorized(4):
            C[i * 4 + v] = T.if_then_else(i * 4 + v < 38, A[i * 4 + v], T.float32(-1))
"""
COPIES = """
@T.prim_func
def copies(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    S = T.alloc_buffer((64,), "float32", scope="shared")
    for i in T.thread_binding(16, thread="threadIdx.x"):
        T.evaluate(T.ptx_cp_async("float32", S.data, i * 4, A.data, 60 - i * 4, 16, i < 10))
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.tvm_storage_sync("shared")
        for v in range(4):
            B[i * 4 + v] = S[63 - i * 4 - v]
"""
PRODUCT = """
@R.function
def main(x: R.Tensor((64, 72), "{0}"), w: R.Tensor((72, 64), "{0}")):
    with R.dataflow():
        y = R.matmul(x, w{1})
        R.output(y)
    return y
"""


def product(dtype: str, out: str = "") -> mlcc.IRModule:
    return mlcc.parse(PRODUCT.format(dtype, f', out_dtype="{out}"' * bool(out)))


@pytest.mark.parametrize("language", ["cuda-c", "metal"])
def test_nothing_is_read_where_its_condition_is_false(language: str, tmp_path: Path) -> None:
    """Not even to be thrown away: beyond the end of a buffer nothing need lie."""
    made = Compiled(mlcc.parse(KERNELS), language, tmp_path)
    (wide,) = [line for line in made.text.splitlines() if re.search(r"const float4 A_v\w* = ", line)]
    assert re.search(r"= \(?tx \* 4 < 40\)? \? \*\(", wide), wide
    a, b, c = np.arange(40, dtype="float32"), np.zeros(64, "float32"), np.zeros(64, "float32")
    made("padded", a, b, c)
    assert b.tolist() == [*range(40), *[-1] * 24] and c.tolist() == [*range(38), *[-1] * 26]


def test_asynchronous_copies_are_plain_ones_in_metal(tmp_path: Path) -> None:
    made = Compiled(mlcc.parse(COPIES), "metal", tmp_path)
    a, b = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    made("copies", a, b)
    shared = np.where(np.arange(64) < 40, a.reshape(16, 4)[::-1].reshape(-1), 0)
    np.testing.assert_array_equal(b, shared[::-1])


@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16", "bfloat16", "int8"])
def test_products_as_they_are_scheduled_by_default(dtype: str, tmp_path: Path) -> None:
    given = product("float32" if dtype == "tf32" else dtype, out="int32" if dtype == "int8" else "")
    text = mlcc.build(given, f"cuda{{arch=sm_90 tf32={str(dtype == 'tf32').lower()}}}").emit("cuda-c").decode()
    assert ("mma.sync.aligned" in text) == (dtype != "float32")
    assert 'asm volatile("cp.async.' in text or dtype == "int8"
    nvcc = shutil.which("nvcc")
    if nvcc is None or dtype not in ("float32", "tf32", "bfloat16"):
        return
    source = tmp_path / "k.cu"
    source.write_text(text)
    command = [nvcc, "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-o", tmp_path / "k.cubin", source]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0 and "0 bytes stack frame, 0 bytes spill stores" in made.stderr, made.stderr


def test_metal_takes_what_is_scheduled_without_tensor_cores() -> None:
    halves = product("float16")
    with pytest.raises(mlcc.CompileError, match=r"E0780.*(.|\n)*sm_75"):
        mlcc.build(halves, "cuda{arch=sm_90}").emit("metal")
    assert b"kernel void" in mlcc.build(halves, "cuda{arch=sm_75}").emit("metal")
    assert b"kernel void" in mlcc.build(product("float32"), "cuda{arch=sm_90}").emit("metal")


def test_products_of_warpgroups_are_not_serialized(tmp_path: Path) -> None:
    """They wait for none but those that they have to wait for, as the compiler of NVIDIA tells."""
    square = 'x: R.Tensor((512, 512), "{0}"), w: R.Tensor((512, 512), "{0}")'
    text = PRODUCT.replace('x: R.Tensor((64, 72), "{0}"), w: R.Tensor((72, 64), "{0}")', square)
    made = mlcc.build(mlcc.parse(text.format("float16", "")), "cuda{arch=sm_90a}").emit("cuda-c").decode()
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16" in made
    waits = [line for line in made.splitlines() if '"wgmma.wait_group' in line]
    assert waits and all(line.count('"+f"(') == 32 for line in waits)
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return
    source = tmp_path / "k.cu"
    source.write_text(made)
    command = [nvcc, "-cubin", "-arch=sm_90a", "-Xptxas", "-v", "-o", tmp_path / "k.cubin", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "0 bytes stack frame, 0 bytes spill stores" in done.stderr, done.stderr
    assert "serialized" not in done.stderr, done.stderr
