"""Kernels as CUDA C and Metal: the text reads well, compiles, and computes what the interpreter computes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.targets.source import emit_source
from tests.gpu.sources import Compiled, kernels_of, random_array

KERNELS = """
@T.prim_func
def reverse(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    T.func_attr({"tir.noalias": True})
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    S = T.alloc_buffer((64,), "float32", scope="shared")
    D = T.alloc_buffer((64,), "float32", scope="shared.dyn")
    E = T.alloc_buffer((64,), "float32", scope="shared.dyn")
    for v in T.vectorized(4):
        S[tx * 4 + v] = A[bx * 64 + tx * 4 + v]
    T.tvm_storage_sync("shared")
    for v in T.vectorized(4):
        D[tx * 4 + v] = S[63 - tx * 4 - v]
    for v in T.vectorized(4):
        E[tx * 4 + v] = S[63 - tx * 4 - v] * T.float32(2)
    T.tvm_storage_sync("shared")
    for v in range(4):
        B[bx * 64 + tx * 4 + v] = D[tx * 4 + v] + E[(tx * 4 + v + 1) % 64]

@T.prim_func
def sums(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", 64)
    x: T.float32 = A[tx]
    y: T.float32 = x + T.tvm_warp_shuffle_xor(T.uint32(4294967295), x, 1, 32, 32)
    z: T.float32 = y + T.tvm_warp_shuffle_down(T.uint32(4294967295), y, 2, 32, 32)
    u: T.float32 = T.tvm_warp_shuffle_up(T.uint32(4294967295), z, 3, 32, 32)
    B[tx] = z + T.tvm_warp_shuffle(T.uint32(4294967295), z, 5, 32, 32) + u

@T.prim_func
def integers(A: T.Buffer((48,), "int32"), B: T.Buffer((48,), "int32"), C: T.Buffer((48, 24), "int32")):
    for i in T.thread_binding(48, thread="threadIdx.x"):
        C[i, 0] = A[i] // B[i]
        C[i, 1] = A[i] % B[i]
        C[i, 2] = T.truncdiv(A[i], B[i])
        C[i, 3] = T.truncmod(A[i], B[i])
        C[i, 4] = A[i] // 7
        C[i, 5] = A[i] % 7
        C[i, 6] = A[i] // 8
        C[i, 7] = A[i] % 8
        C[i, 8] = (A[i] & B[i]) | (A[i] ^ 5)
        C[i, 9] = T.shift_left(A[i], B[i])
        C[i, 10] = T.shift_right(A[i], B[i])
        C[i, 11] = A[i] << 3
        C[i, 12] = A[i] >> 3
        C[i, 13] = T.max(A[i], B[i]) - T.min(A[i], 3)
        C[i, 14] = T.popcount(A[i]) + T.clz(A[i])
        C[i, 15] = T.Select(A[i] < B[i] and B[i] > 0 or A[i] == 2, A[i], ~B[i])
        C[i, 16] = T.if_then_else(not A[i] < B[i], A[(i + 1) % 48], B[i])
        C[i, 17] = T.Cast("int32", T.Cast("int8", A[i]) + T.Cast("int8", B[i]))
        C[i, 18] = T.Cast("int32", T.Cast("uint8", A[i]) * T.Cast("uint8", B[i]))
        C[i, 19] = T.Cast("int32", T.Cast("int64", A[i]) * T.Cast("int64", B[i]) // T.int64(65536) % T.int64(1000))
        C[i, 20] = T.abs(A[i])
        C[i, 21] = T.Cast("int32", T.Cast("uint32", A[i]) // T.uint32(3))
        C[i, 22] = (A[i] - 1) * 3 - (A[i] - (1 - A[i]))
        C[i, 23] = T.Cast("int32", T.Cast("bool", A[i])) + (A[i] - (B[i] - 3)) - (2 - A[i])

@T.prim_func
def floats(A: T.Buffer((48,), "float32"), B: T.Buffer((48,), "float32"), C: T.Buffer((48, 24), "float32"), n: T.int32):
    for i in T.thread_binding(48, thread="threadIdx.x"):
        C[i, 0] = T.exp(A[i]) - T.tanh(B[i])
        C[i, 1] = T.sigmoid(A[i]) * T.erf(B[i])
        C[i, 2] = T.max(A[i], B[i]) / (T.fabs(A[i]) + T.float32(1.5))
        C[i, 3] = T.sqrt(T.fabs(A[i])) + T.rsqrt(T.fabs(B[i]))
        C[i, 4] = T.log(T.fabs(A[i])) + T.log1p(T.fabs(B[i]))
        C[i, 5] = T.pow(T.fabs(A[i]), B[i])
        C[i, 6] = T.floor(A[i]) + T.ceil(B[i]) + T.trunc(A[i]) + T.round(B[i])
        C[i, 7] = T.Cast("float32", T.Cast("int32", A[i] * T.float32(1e9)))
        C[i, 21] = T.Cast("float32", T.Cast("uint8", B[i] * T.float32(100)))
        C[i, 8] = T.Cast("float32", T.Cast("float16", A[i]) + T.Cast("float16", B[i]))
        C[i, 9] = T.Cast("float32", T.Cast("bfloat16", A[i]) * T.Cast("bfloat16", B[i]))
        C[i, 10] = T.fmod(A[i], B[i]) + T.atan2(A[i], B[i]) + T.hypot(A[i], B[i])
        C[i, 11] = T.if_then_else(T.isnan(A[i]), T.float32(0), T.float32("inf")) + T.min(A[i], T.float32("-inf"))
        C[i, 12] = T.reinterpret("float32", T.reinterpret("int32", A[i]) + 8)
        C[i, 13] = T.Cast("float32", n) * T.float32(0.1) + T.float32(1e-30) + T.float32(12345678)
        C[i, 14] = T.sin(A[i]) + T.cos(B[i]) * T.copysign(A[i], B[i])
        C[i, 15] = T.fma(A[i], B[i], A[i]) + T.ldexp(A[i], 3)
        C[i, 16] = A[i] - (B[i] - A[i]) - B[i] * (A[i] / (B[i] / A[i]))
        C[i, 17] = -A[i] * -B[i]
        C[i, 18] = T.Cast("float32", A[i] < B[i]) + T.Cast("float32", T.isfinite(A[i]))
        C[i, 19] = T.nearbyint(A[i]) * T.asin(T.tanh(B[i]))
        C[i, 20] = T.fmod(A[i], B[i])
        for k in range(1, n):
            for j in T.serial(0, k, step=2):
                if A[i] > T.float32(0):
                    C[i, 21] += A[(i + j) % 48]
                else:
                    C[i, 21] = C[i, 21] - T.float32(1)
        C[i, 22] = T.float32(1)
        while C[i, 22] < T.fabs(A[i]):
            C[i, 22] = C[i, 22] * T.float32(2)
        C[i, 23] = T.exp2(A[i]) + T.log2(T.fabs(A[i]))

@T.prim_func
def narrow(a: T.handle, b: T.handle, m: T.handle, c: T.handle, d: T.handle, n: T.handle):
    A, B, M = T.match_buffer(a, (64,), "float16"), T.match_buffer(b, (64,), "int8"), T.match_buffer(m, (64,), "bool")
    C, D, N = T.match_buffer(c, (64,), "float16"), T.match_buffer(d, (64,), "uint8"), T.match_buffer(n, (64,), "bool")
    for i in T.thread_binding(16, thread="threadIdx.x"):
        for v in T.vectorized(4):
            C[i * 4 + v] = A[i * 4 + v] * T.float16(2) + T.Cast("float16", B[i * 4 + v])
        for v in T.vectorized(4):
            D[i * 4 + v] = T.Cast("uint8", B[i * 4 + v])
        for v in range(4):
            N[i * 4 + v] = M[i * 4 + v] and A[i * 4 + v] > T.float16(0)

@T.prim_func
def pieces(A: T.Buffer((67,), "float32"), B: T.Buffer((67,), "float32"), I: T.Buffer((67,), "int32")):
    for i in T.thread_binding(17, thread="threadIdx.x"):
        for v in T.vectorized(4):
            if i * 4 + v < 67:
                B[i * 4 + v] = A[I[i * 4 + v]] + A[66 - i * 4 - v]
"""


@pytest.fixture(scope="module")
def module() -> mlcc.IRModule:
    return mlcc.parse(KERNELS)


@pytest.fixture(scope="module", params=["cuda-c", "metal"])
def compiled(
    request: pytest.FixtureRequest, module: mlcc.IRModule, tmp_path_factory: pytest.TempPathFactory
) -> Compiled:
    return Compiled(module, request.param, tmp_path_factory.mktemp("source"))


def agrees(compiled: Compiled, module: mlcc.IRModule, name: str, *args: Any, rtol: float = 0) -> None:
    """A function by its source and by the interpreter, on copies of the arguments."""
    func = module[name]
    assert isinstance(func, tir.PrimFunc)
    mine, wanted = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    compiled(name, *mine)
    run_prim_func(func, wanted)
    for have, want in zip(mine, wanted, strict=True):
        if isinstance(have, np.ndarray):
            np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol)


def test_barriers_vectors_and_memory_of_a_block(compiled: Compiled) -> None:
    a, b = random_array(np.random.default_rng(1), (256,), "float32"), np.zeros(256, "float32")
    compiled("reverse", a, b)
    turned = a.reshape(4, 64)[:, ::-1]
    np.testing.assert_array_equal(b.reshape(4, 64), turned + 2 * np.roll(turned, -1, 1))


def test_shuffles_agree(compiled: Compiled) -> None:
    a, b = random_array(np.random.default_rng(2), (64,), "float32"), np.zeros(64, "float32")
    compiled("sums", a, b)
    lanes = np.arange(32)
    for have, x in zip(b.reshape(2, 32), a.reshape(2, 32), strict=True):
        y = x + x[lanes ^ 1]
        z = y + y[np.where(lanes < 30, lanes + 2, lanes)]
        np.testing.assert_allclose(have, z + z[5] + z[np.where(lanes < 3, lanes, lanes - 3)], rtol=1e-6)


def test_integer_operators_agree(compiled: Compiled, module: mlcc.IRModule) -> None:
    rng = np.random.default_rng(3)
    a, b = (random_array(rng, (48,), "int32") for _ in range(2))
    agrees(compiled, module, "integers", a, b, np.zeros((48, 24), "int32"))


def test_float_operators_agree(compiled: Compiled, module: mlcc.IRModule) -> None:
    rng = np.random.default_rng(4)
    a, b = (random_array(rng, (48,), "float32") for _ in range(2))
    agrees(compiled, module, "floats", a, b, np.zeros((48, 24), "float32"), 5, rtol=2e-6)


def test_narrow_dtypes_agree(compiled: Compiled, module: mlcc.IRModule) -> None:
    rng = np.random.default_rng(5)
    inputs = [random_array(rng, (64,), d) for d in ("float16", "int8", "bool")]
    agrees(compiled, module, "narrow", *inputs, *(np.zeros(64, d) for d in ("float16", "uint8", "bool")))


def test_lanes_under_conditions_agree(compiled: Compiled, module: mlcc.IRModule) -> None:
    rng = np.random.default_rng(6)
    places = rng.integers(0, 67, 67).astype("int32")
    agrees(compiled, module, "pieces", random_array(rng, (67,), "float32"), np.zeros(67, "float32"), places)


# ---------------------------------------------------------------- the text


def test_cuda_c_reads_as_one_writes_it(module: mlcc.IRModule) -> None:
    text = emit_source(kernels_of(module)[:1], "cuda-c")
    for line in (
        "// grid: (4, 1, 1), block: (16, 1, 1), dynamic shared memory: 512 bytes",
        'extern "C" __global__ void __launch_bounds__(16) reverse_kernel('
        "const float* __restrict__ A, float* __restrict__ B) {",
        "  __shared__ __align__(16) float S[64];",
        "  *(float4*)(S + tx * 4) = A_v;",
        "  __syncthreads();",
        "  float* E = (float*)(dynamic_shared + 256);",
    ):
        assert line in text.splitlines()


def test_metal_states_where_arguments_are(module: mlcc.IRModule) -> None:
    text = emit_source(kernels_of(module)[:1], "metal")
    for line in (
        "    device const float* A [[buffer(0)]],",
        "    threadgroup uchar* dynamic_shared [[threadgroup(0)]],",
        "    uint3 block [[threadgroup_position_in_grid]],",
        "  threadgroup float S[64];",
    ):
        assert line in text.splitlines()


def test_names_are_words_of_the_language_and_unique() -> None:
    text = """
@T.prim_func
def float(int: T.Buffer((8,), "float32"), tx: T.Buffer((8,), "float32"), most: T.Buffer((8,), "float32")):
    for double in T.thread_binding(8, thread="threadIdx.x"):
        tx[double] = int[double] + T.max(most[double], most[0])
"""
    made = emit_source(kernels_of(mlcc.parse(text)), "cuda-c")
    assert "tx_1[tx] = int_[tx] + most(most_1[tx], most_1[0]);" in made, "not the name of a helper function either"


@pytest.mark.parametrize(
    ("dtype", "language", "what"),
    [("float64", "metal", "Metal has no float64"), ("float8_e4m3fn", "cuda-c", "CUDA C has no float8_e4m3fn")],
)
def test_features_that_a_language_lacks_are_refused(dtype: str, language: str, what: str) -> None:
    text = f"""
@T.prim_func
def f(A: T.Buffer((8,), "{dtype}"), B: T.Buffer((8,), "{dtype}")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        B[i] = A[i] + A[i]
"""
    with pytest.raises(CompileError) as caught:
        emit_source(kernels_of(mlcc.parse(text)), language)
    assert caught.value.diagnostics[0].code == "E0780" and what in str(caught.value)


def test_a_language_that_is_not_there() -> None:
    with pytest.raises(CompileError, match="cuda-c"):
        emit_source([], "cuda")


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nvcc_compiles_it(module: mlcc.IRModule, arch: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    source = tmp_path / "k.cu"
    source.write_text(emit_source(kernels_of(module), "cuda-c"))
    made = subprocess.run(
        [nvcc, "-cubin", f"-arch={arch}", "-o", tmp_path / "k.cubin", source],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr


def test_the_command_line_writes_sources(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from mlcc.cli.main import cli

    text = tmp_path / "k.mlc"
    text.write_text(KERNELS[: KERNELS.index("@T.prim_func\ndef sums")])
    for name, word in (("k.cu", "__global__"), ("k.metal", "kernel void")):
        done = CliRunner().invoke(cli, ["compile", str(text), "-t", "cuda", "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert word in (tmp_path / name).read_text()
