"""Design spaces, postprocessors and traces mean here what they mean in TVM."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.errors import CompileError  # noqa: E402
from mlcc.ir.module import IRModule  # noqa: E402
from mlcc.passes.schedule.schedule import Schedule  # noqa: E402
from mlcc.tune import TuneContext, schedule_rule  # noqa: E402
from mlcc.tune.postproc import VerifyGPUCode  # noqa: E402
from mlcc.tune.replay import apply_trace  # noqa: E402
from mlcc.tune.space_generator import PostOrderApply  # noqa: E402
from tests.interop.harness import to_tvm  # noqa: E402
from tests.interop.tune_programs import GRAPHS, kernel  # noqa: E402
from tests.interop.tune_tvm import (  # noqa: E402
    TARGETS,
    meta_schedule,
    our_context,
    replayed,
    same_module,
    steps,
    tensor_core_groups,
    their_context,
)

KERNELS = [*GRAPHS, "bytes"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_same_seed_gives_the_same_spaces(name: str, target: str) -> None:
    mod = kernel(name)
    theirs = their_context(mod, target, 42).generate_design_space()
    ours = our_context(mod, target, 42).generate_design_space()
    assert [steps(sch.trace) for sch in ours] == [steps(sch.trace) for sch in theirs]
    assert all(same_module(a.mod, b.mod) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_postprocessors_agree_on_random_decisions(name: str, target: str) -> None:
    """Random decisions of every space: what postprocessors make of them, and whether they turn them down."""
    mod = kernel(name)
    context, other = our_context(mod, target, 7), their_context(mod, target, 7)
    ours = [p for p in context.space_generator.postprocs if not isinstance(p, VerifyGPUCode)]
    theirs = [p for p in other.space_generator.postprocs if "VerifyGPUCode" not in str(p)]
    for space in context.generate_design_space():
        sch = _resampled(context.mod, space, 11)
        if sch is None:
            continue
        text = str(sch.trace)
        copy = _replayed_there(other.mod, sch)
        made = apply_trace(context.mod, sch.trace, ours, 3)
        accepted = _all_apply(theirs, copy)
        assert (made is not None) == accepted, text
        if made is not None:
            assert same_module(made.mod, copy.mod), text
            assert steps(made.trace) == steps(copy.trace)


PRODUCTS = {
    "matmul": (("i", "j"), ("k",), "A[vi, vk]", "B[vk, vj]", "float32"),
    "transposed in a batch": (("b", "i", "j"), ("k",), "A[vb, vi, vk]", "B[vb, vj, vk]", "float32"),
    "convolution": (
        ("n", "h", "w", "c"), ("p", "q", "r"), "A[vn, vh + vp, vw + vq, vr]", "B[vp, vq, vr, vc]", "float16",
    ),
}  # fmt: skip
EXTENTS = {"i": 128, "j": 96, "k": 64, "b": 4, "n": 1, "h": 16, "w": 16, "c": 64, "p": 3, "q": 3, "r": 32}


def product(name: str) -> IRModule:
    """A product of float16, whose operands have an element for every index that there is."""
    outer, inner, a, b, out = PRODUCTS[name]
    axes = (*outer, *inner)

    def extent(index: str) -> str:
        return str(sum(EXTENTS[part.strip()[1:]] for part in index.split("+")) - index.count("+"))

    shapes = [", ".join(map(extent, operand[2:-1].split(", "))) for operand in (a, b)]
    c = f"C[{', '.join(f'v{axis}' for axis in outer)}]"
    values = [f'T.Cast("{out}", {v})' if out == "float32" else v for v in (a, b)]
    return mlcc.parse(f"""
@T.prim_func
def main(A: T.Buffer(({shapes[0]}), "float16"), B: T.Buffer(({shapes[1]}), "float16"),
         C: T.Buffer(({", ".join(str(EXTENTS[axis]) for axis in outer)}), "{out}")):
    for {", ".join(axes)} in T.grid({", ".join(str(EXTENTS[axis]) for axis in axes)}):
        with T.block("C"):
            {", ".join(f"v{axis}" for axis in axes)} = T.axis.remap(
                "{"S" * len(outer)}{"R" * len(inner)}", [{", ".join(axes)}])
            with T.init():
                {c} = T.{out}(0)
            {c} = {c} + {values[0]} * {values[1]}
""")


def tensor_cores(rules, pipelined: bool):
    """The rule of either side."""
    return rules.MultiLevelTilingTensorCore(
        intrin_groups=tensor_core_groups(),
        structure="SSSRRSRS",
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read=rules.ReuseType("must", [4], "shared.dyn"),
        reuse_write=rules.ReuseType("must", [2], "shared.dyn"),
        use_software_pipeline=pipelined,
    )


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_tensor_cores_are_used_alike(name: str, pipelined: bool) -> None:
    mod, target = product(name), "nvidia/nvidia-a100"
    theirs = meta_schedule()
    rule = tensor_cores(theirs.schedule_rule, pipelined)
    there = theirs.TuneContext(
        to_tvm(mlcc.script(mod, dialect="tvm")), target=tvm.target.Target(target), rand_state=42, num_threads=1,
        space_generator=theirs.space_generator.PostOrderApply(sch_rules=[rule], postprocs=[], mutator_probs={}),
    )  # fmt: skip
    generator = PostOrderApply(sch_rules=[tensor_cores(schedule_rule, pipelined)], postprocs=[], mutator_probs={})
    ours = TuneContext(mod, target=target, space_generator=generator, rand_state=42).generate_design_space()
    spaces = there.generate_design_space()
    assert [steps(sch.trace) for sch in ours] == [steps(sch.trace) for sch in spaces]
    assert all(same_module(a.mod, b.mod) for a, b in zip(ours, spaces, strict=True))
    assert all("wmma_sync" in str(sch.trace) for sch in ours)


def _replayed_there(mod, sch: Schedule):
    """TVM's schedule after the steps of ours, where postprocessors begin."""
    scope: dict = {}
    exec("\n".join(["def apply_trace(sch):", *(f"    {line}" for line in steps(sch.trace))]), scope)
    copy = tvm.s_tir.Schedule(mod)
    scope["apply_trace"](copy)
    copy.enter_postproc()
    return copy


def _resampled(mod, space: Schedule, seed: int) -> Schedule | None:
    sch = Schedule(mod, seed=seed)
    try:
        space.trace.apply_to_schedule(sch, True, lambda inst, inputs, attrs, decision: None)
    except CompileError:
        return None
    return sch


def _all_apply(postprocs, sch) -> bool:
    try:
        return all(p.apply(sch) for p in postprocs)
    except tvm.TVMError:
        return False


@pytest.mark.parametrize("name", ["dense_relu", "conv", "softmax"])
def test_their_traces_replay_here(name: str) -> None:
    mod = kernel(name)
    meta_schedule()
    for target in TARGETS:
        for sch in their_context(mod, target, 5).generate_design_space():
            made = replayed(mod, str(sch.trace))
            assert made is not None
            assert same_module(made.mod, sch.mod)


@pytest.mark.parametrize("name", ["dense_relu", "conv", "softmax", "sum"])
def test_same_verdicts_on_gpu_code(name: str) -> None:
    """What TVM turns down for a GPU is turned down here, and nothing else."""
    mod, target = kernel(name), "nvidia/tesla-p100"
    context, other = our_context(mod, target, 7), their_context(mod, target, 7)
    for space in context.generate_design_space():
        for seed in (1, 2, 3):
            sch = _resampled(context.mod, space, seed)
            if sch is not None:
                made = apply_trace(context.mod, sch.trace, context.space_generator.postprocs, 3)
                copy = _replayed_there(other.mod, sch)
                assert (made is not None) == _all_apply(other.space_generator.postprocs, copy)
