"""Products that the tensor cores of a GPU do, by the rule for them: right when emulated; others are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.random import Engine
from mlcc.tune import TuneContext
from mlcc.tune.postproc import Postproc
from mlcc.tune.replay import apply_postprocs
from mlcc.tune.schedule_rule import MultiLevelTilingTensorCore, ReuseType
from mlcc.tune.search_strategy.strategy import without_decisions
from mlcc.tune.space_generator import PostOrderApply

TARGET = "nvidia/nvidia-a100"
GROUP = {
    "init": "wmma_fill_16x16x16_f32", "load_a": "wmma_load_16x16x16_f16_a_shared_dyn",
    "load_b": "wmma_load_16x16x16_f16_b_shared_dyn", "compute": "wmma_sync_16x16x16_f16f16f32",
    "store": "wmma_store_16x16x16_f32_shared_dyn",
}  # fmt: skip
BINDS = ["blockIdx.y", "blockIdx.x", "threadIdx.y"]
READ, WRITE = ReuseType("must", [4], "shared.dyn"), ReuseType("must", [2], "shared.dyn")


def product(rows: int, columns: int, depth: int, dtype: str = "float16") -> IRModule:
    return mlcc.parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {depth}), "{dtype}"), B: T.Buffer(({depth}, {columns}), "{dtype}"),
         C: T.Buffer(({rows}, {columns}), "float32")):
    for i, j, k in T.grid({rows}, {columns}, {depth}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
""")


def context_of(mod: IRModule) -> TuneContext:
    rule = MultiLevelTilingTensorCore([GROUP], "SSSRRSRS", BINDS, 4, [1, 2, 4, 8], READ, WRITE)
    postprocs = [p for p in Postproc.create("cuda") if "Layout" not in type(p).__name__]
    tensorize = [p for p in Postproc.create("avx512") if type(p).__name__ == "RewriteTensorize"]
    generator = PostOrderApply(sch_rules=[rule], postprocs=[*postprocs, *tensorize], mutator_probs={})
    return TuneContext(mod, target=TARGET, space_generator=generator, rand_state=3)


def test_random_samples_are_right() -> None:
    context = context_of(product(64, 32, 48))
    (space,) = context.generate_design_space()
    steps = without_decisions(space.trace.simplified().insts)
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 48), (48, 32)))
    tried = 0
    for seed in range(2):
        sch, _ = context.replayer.replay(steps, Engine(seed + 1))
        if not apply_postprocs(sch, context.space_generator.postprocs):
            continue
        artifact = mlcc.build(sch.mod, TARGET)
        assert b"mma.sync" in artifact.emit("ptx")
        out = np.zeros((64, 32), np.float32)
        mlcc.load(artifact, emulate=True)["main"](a, b, out)
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
        tried += 1
    assert tried


@pytest.mark.parametrize("mod", [product(24, 32, 48), product(32, 32, 20), product(32, 32, 32, "float32")])
def test_other_blocks_are_left_alone(mod: IRModule) -> None:
    """Extents that are no multiples of the intrinsic's, and other dtypes."""
    (space,) = context_of(mod).generate_design_space()
    mlcc.assert_structural_equal(space.mod["main"], mod["main"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"intrin_groups": [{"init": "wmma_fill_16x16x16_f32"}]}, "missing"),
        ({"intrin_groups": [{**GROUP, "compute": "mma_sync_m16n8k8_f16f16f32"}]}, "wmma"),
        ({"tile_binds": ["blockIdx.x", "threadIdx.x"]}, "threadIdx"),
        ({"reuse_write": None}, "a shared scope"),
    ],
)
def test_arguments_that_it_refuses(changes: dict[str, object], why: str) -> None:
    usual = {
        "intrin_groups": [GROUP], "structure": "SSSRRSRS", "tile_binds": BINDS, "reuse_read": READ,
        "reuse_write": WRITE,
    }  # fmt: skip
    with pytest.raises(ValueError, match=why):
        MultiLevelTilingTensorCore(**(usual | changes))  # type: ignore[arg-type]
