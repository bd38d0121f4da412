"""Every random way through a generic space replays from its text, verifies, and computes what the kernel does."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.random import Engine
from mlcc.tune import TuneContext
from mlcc.tune.postproc import VerifyGPUCode
from mlcc.tune.replay import apply_postprocs, with_replayed_decisions
from mlcc.tune.search_strategy.strategy import without_decisions
from mlcc.verify import check

MATMUL = """
@T.prim_func
def main(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), D: T.Buffer((8, 16), "float32")):
    C = T.alloc_buffer((8, 16))
    for i, j, k in T.grid(8, 16, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(8, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0.5))
"""
SUM = """
@T.prim_func
def main(A: T.Buffer((3, 40), "float32"), B: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 40):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
MAP = """
@T.prim_func
def main(A: T.Buffer((7, 11), "float32"), B: T.Buffer((7, 11), "float32")):
    for i, j in T.grid(7, 11):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
"""
TEXTS = {"matmul": MATMUL, "sum": SUM, "map": MAP}
SAMPLES = 4


def results(mod: IRModule) -> list[np.ndarray]:
    func = mod["main"]
    assert isinstance(func, tir.PrimFunc)
    random = np.random.default_rng(0)
    shapes = [[tir.const_int(n) for n in b.shape] for b in func.buffers if b is not None]
    arrays = [random.random(shape).astype("float32") for shape in shapes]
    run_prim_func(func, arrays)
    return arrays


@pytest.mark.parametrize("target", ["llvm{num-cores=4}", "llvm{cpu=skylake-avx512 num-cores=2}", "nvidia/tesla-p100"])
@pytest.mark.parametrize("name", TEXTS)
def test_samples_compute_the_same(name: str, target: str) -> None:
    mod = mlcc.parse(TEXTS[name])
    expected = results(mod)
    context = TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=9)
    random = Engine(17)
    accepted = 0
    for space in context.generate_design_space():
        steps = space.trace.simplified(remove_postproc=True).insts
        for _ in range(SAMPLES):
            sch, _ = context.replayer.replay(without_decisions(steps), random)
            taken = with_replayed_decisions(steps, sch)
            again, _ = context.replayer.replay(taken)
            mlcc.assert_structural_equal(again.mod, sch.mod)
            sch.enter_postproc()
            if not all(p.apply(sch) for p in context.space_generator.postprocs):
                continue
            accepted += 1
            check(sch.mod)
            mlcc.assert_structural_equal(mlcc.apply_schedule(context.mod, str(sch.trace)), sch.mod)
            if target.startswith("llvm"):
                for got, wanted in zip(results(sch.mod), expected, strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert accepted or target.startswith("nvidia")


@pytest.mark.parametrize("name", TEXTS)
def test_threads_are_known_before_a_replay(name: str) -> None:
    """What is said to get too few or too many threads is turned down, and what is turned down was said to."""
    mod = mlcc.parse(TEXTS[name])
    context = TuneContext(mod, target="nvidia/tesla-p100", space_generator="post-order-apply", rand_state=9)
    spaces = context.generate_design_space()
    postprocs = context.space_generator.postprocs
    (verify,) = [p for p in postprocs if isinstance(p, VerifyGPUCode)]
    seen = set()
    for seed in range(100 if name == "matmul" else 6):
        steps = without_decisions(spaces[seed % len(spaces)].trace.simplified().insts)
        sch, _ = context.replayer.replay(steps, Engine(seed + 1))
        said = verify.may_pass(sch.trace.insts)
        assert said == apply_postprocs(sch, postprocs)
        seen.add(said)
        if len(seen) == 2 and seed > 9:
            break
    assert seen == ({True, False} if name == "matmul" else {True})
