"""Programs tensorized by TVM's names for tensor cores: equal to their untensorized results, under emulation."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

MATMUL = """
@T.prim_func
def f(A: T.Buffer((M, K), "DTYPE"), B: T.Buffer(B_SHAPE, "DTYPE"), C: T.Buffer((M, N), "OUT")):
    for i, j, k in T.grid(M, N, K):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.OUT(0)
            C[vi, vj] = C[vi, vj] + A_VALUE * B_VALUE
"""

WMMA = """
block = sch.get_block("C", "f")
i, j, k = sch.get_loops(block)
i, ii = sch.split(i, [None, 16])
j, ji = sch.split(j, [None, 16])
k, ki = sch.split(k, [None, 16])
sch.reorder(i, j, k, ii, ji, ki)
inner = sch.blockize(ii)
bx = sch.fuse(i, j)
bx, ty = sch.split(bx, [None, 2])
sch.bind(bx, "blockIdx.x")
sch.bind(ty, "threadIdx.y")
a = sch.cache_read(inner, 0, "SHARED")
b = sch.cache_read(inner, 1, "SHARED")
fa = sch.cache_read(inner, 0, "wmma.matrix_a")
fb = sch.cache_read(inner, 1, "wmma.matrix_b")
out = sch.cache_write(inner, 0, "wmma.accumulator")
sch.reverse_compute_at(out, ty)
sch.compute_at(fa, k)
sch.compute_at(fb, k)
for x in [a, b]:
    sch.compute_at(x, k)
    fused = sch.fuse(*sch.get_loops(x)[-2:])
    fused, tx = sch.split(fused, [None, 32])
    sch.bind(tx, "threadIdx.x")
init = sch.decompose_reduction(inner, k)
"""


def tensorized(kind: str, out: str, trans: bool, m: int, n: int, k: int, scope: str = "shared") -> mlcc.IRModule:
    names = {"f16": "float16", "bf16": "bfloat16", "s8": "int8", "f32": "float32", "s32": "int32"}
    values = ["A[vi, vk]", "B[vj, vk]" if trans else "B[vk, vj]"]
    if kind != out:
        values = [f'T.Cast("{names[out]}", {v})' for v in values]
    text = MATMUL.replace("A_VALUE", values[0]).replace("B_VALUE", values[1])
    text = text.replace("B_SHAPE", "(N, K)" if trans else "(K, N)").replace("DTYPE", names[kind])
    for name, value in (("OUT", names[out]), ("M", str(m)), ("N", str(n)), ("K", str(k))):
        text = (
            text.replace(f"({name},", f"({value},")
            .replace(f" {name},", f" {value},")
            .replace(f" {name})", f" {value})")
        )
        text = text.replace(f'"{name}"', f'"{value}"').replace(f"T.{name}(", f"T.{value}(")
    suffix = "_trans" if trans else ""
    where = scope.replace(".", "_")
    script = (
        WMMA.replace("SHARED", scope)
        + f"""
sch.tensorize(sch.get_loops(fa)[-2], "wmma_load_16x16x16_{kind}_a_{where}")
sch.tensorize(sch.get_loops(fb)[-2], "wmma_load_16x16x16_{kind}_b{suffix}_{where}")
sch.tensorize(inner, "wmma_sync_16x16x16_{kind}{kind}{out}{suffix}")
sch.tensorize(init, "wmma_fill_16x16x16_{out}")
sch.tensorize(sch.get_loops(out)[-2], "wmma_store_16x16x16_{out}_global")
"""
    )
    return mlcc.apply_schedule(mlcc.parse(text), script)


def lowered(mod: mlcc.IRModule) -> DeviceProgram:
    func = mod["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


def integer_operands(shape: tuple[int, int], seed: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers as arguments, and as they are."""
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    return values.astype({"f16": np.float16, "s8": np.int8}[kind]), values


CASES = [("f16", "f32", False), ("f16", "f16", True), ("bf16", "f32", True), ("s8", "s32", False)]


@pytest.mark.parametrize(("kind", "out", "trans"), CASES)
def test_products_by_fragments_match_numpy(kind: str, out: str, trans: bool) -> None:
    m, n, k = 32, 32, 48
    made = lowered(tensorized(kind, out, trans, m, n, k))
    (a, a_value), (b, b_value) = (
        integer_operands((m, k), 0, kind),
        integer_operands((n, k) if trans else (k, n), 1, kind),
    )
    got = np.zeros((m, n), {"f32": np.float32, "f16": np.float16, "s32": np.int32}[out])
    run_program(made, a, b, got)
    np.testing.assert_array_equal(got, a_value @ (b_value.T if trans else b_value))
    text = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
    assert "mma.sync.aligned.m16n8k16" in text
    assert ("ldmatrix" in text) == (kind != "s8")
    if find_ptxas() is not None:
        (found,) = assemble(text, "sm_80").values()
        assert (found.stack, found.spill_stores) == (0, 0)
