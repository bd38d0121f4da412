"""Every public function is exported at every level, with the parameters that the text gives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc import backends
from mlcc.interp import run_function
from mlcc.ir import relax

TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def product(A: T.Buffer((8, 16), "float32"), W: T.Buffer((16, 32), "float32"), C: T.Buffer((8, 32), "float32")):
        for i, j, k in T.grid(8, 32, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * W[vk, vj]

    @T.prim_func
    def twice(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
        for i, j in T.grid(8, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def double(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
        for i, j in T.grid(8, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def turn(A: T.Buffer((32, 16), "float32"), B: T.Buffer((16, 32), "float32")):
        for i, j in T.grid(16, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]

    @T.prim_func
    def chain(A: T.Buffer((8, 16), "float32"), W: T.Buffer((16, 32), "float32"), C: T.Buffer((8, 16), "float32")):
        M = T.alloc_buffer((8, 32), "float32")
        for i, j, k in T.grid(8, 32, 16):
            with T.block("M"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    M[vi, vj] = T.float32(0)
                M[vi, vj] = M[vi, vj] + A[vi, vk] * W[vk, vj]
        for i, j, k in T.grid(8, 16, 32):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + M[vi, vk] * W[vj, vk]

    @R.function
    def helper(x: R.Tensor((8, 16), "float32")):
        return R.add(x, x)

    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((32, 16), "float32")):
        cls = Module
        with R.dataflow():
            t = R.call_tir(cls.turn, (w,), out_sinfo=R.Tensor((16, 32), "float32"))
            c = R.call_tir(cls.chain, (x, t), out_sinfo=R.Tensor((8, 16), "float32"))
            a = R.call_tir(cls.product, (R.add(c, x), t), out_sinfo=R.Tensor((8, 32), "float32"))
            b = R.call_tir(cls.twice, (a,), out_sinfo=R.Tensor((8, 32), "float32"))
            d = R.call_tir(cls.double, (b,), out_sinfo=R.Tensor((8, 32), "float32"))
            e = R.nn.relu(R.add(d, a))
            R.output(e)
        return e
"""


def arguments(module: mlcc.IRModule, name: str) -> list[np.ndarray]:
    """Random arrays for a function; a PrimFunc's outputs are among them, as zeros."""
    random, func = np.random.default_rng(7), module[name]
    if isinstance(func, relax.Function):
        shapes = [[int(d.value) for d in p.struct_info.dims] for p in func.params]
    else:
        shapes = [[int(d.value) for d in b.shape] for b in func.buffers]
    made = [random.standard_normal(s).astype("float32") for s in shapes]
    if not isinstance(func, relax.Function):
        made[-1][:] = 0
    return made


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_public_functions_are_there_at_every_level(target: str, level: int) -> None:
    source = mlcc.parse(TEXT)
    exe = mlcc.load(mlcc.build(source, target=target, opt_level=level), emulate=target == "cuda")
    for name in source:
        want, have = arguments(source, name), arguments(source, name)
        made, told = exe[name](*have), run_function(source, name, want)
        if made is None or told is None:
            made, told = have[-1], want[-1]
        np.testing.assert_allclose(made, told, rtol=1e-4, atol=1e-4, err_msg=name)


def test_so_they_are_with_weights_bound_at_compile_time(tmp_path: Path) -> None:
    source = mlcc.parse(TEXT)
    given = arguments(source, "main")
    np.savez(tmp_path / "w.npz", w=given[1])
    bound = mlcc.run_passes(source, f"bind-params{{params={tmp_path / 'w.npz'}}}")
    exe = mlcc.load(mlcc.build(bound, opt_level=3))
    np.testing.assert_allclose(exe["main"](given[0]), run_function(source, "main", given), rtol=1e-4, atol=1e-4)
    for name in set(source) - {"main", "helper"}:
        want, have = arguments(source, name), arguments(source, name)
        exe[name](*have)
        run_function(source, name, want)
        np.testing.assert_allclose(have[-1], want[-1], rtol=1e-4, atol=1e-4, err_msg=name)


def test_the_option_says_so() -> None:
    for target in ("llvm", "cuda"):
        for level in (2, 3):
            assert "fuse-tir{keep-public=true}" in backends.of(target).level_pipeline(level)
    fused = mlcc.run_passes(mlcc.parse(TEXT), "lower-to-tir,annotate-op-pattern,fuse")
    assert "twice" not in mlcc.run_passes(fused, "fuse-tir")
    assert "twice" in mlcc.run_passes(fused, "fuse-tir{keep-public=true}")
