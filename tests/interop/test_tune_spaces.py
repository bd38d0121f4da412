"""Design spaces, postprocessors and traces mean here what they mean in TVM."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.errors import CompileError  # noqa: E402
from mlcc.passes.schedule.schedule import Schedule  # noqa: E402
from mlcc.tune.postproc import VerifyGPUCode  # noqa: E402
from mlcc.tune.replay import apply_trace  # noqa: E402
from tests.interop.tune_programs import GRAPHS, kernel  # noqa: E402
from tests.interop.tune_tvm import (  # noqa: E402
    TARGETS,
    meta_schedule,
    our_context,
    replayed,
    same_module,
    steps,
    their_context,
)

KERNELS = [*GRAPHS, "bytes"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_same_seed_same_spaces(name: str, target: str) -> None:
    mod = kernel(name)
    theirs = their_context(mod, target, 42).generate_design_space()
    ours = our_context(mod, target, 42).generate_design_space()
    assert [steps(sch.trace) for sch in ours] == [steps(sch.trace) for sch in theirs]
    assert all(same_module(a.mod, b.mod) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_postprocessors(name: str, target: str) -> None:
    """Random decisions of every space: what postprocessors make of them, and whether they turn them down."""
    mod = kernel(name)
    context, other = our_context(mod, target, 7), their_context(mod, target, 7)
    ours = [p for p in context.space_generator.postprocs if not isinstance(p, VerifyGPUCode)]
    theirs = [p for p in other.space_generator.postprocs if "VerifyGPUCode" not in str(p)]
    for space in context.generate_design_space():
        sch = _redecided(context.mod, space, 11)
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


def _replayed_there(mod, sch: Schedule):
    """TVM's schedule after the steps of ours, where postprocessors begin."""
    scope: dict = {}
    exec("\n".join(["def apply_trace(sch):", *(f"    {line}" for line in steps(sch.trace))]), scope)
    copy = tvm.s_tir.Schedule(mod)
    scope["apply_trace"](copy)
    copy.enter_postproc()
    return copy


def _redecided(mod, space: Schedule, seed: int) -> Schedule | None:
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
            sch = _redecided(context.mod, space, seed)
            if sch is not None:
                made = apply_trace(context.mod, sch.trace, context.space_generator.postprocs, 3)
                copy = _replayed_there(other.mod, sch)
                assert (made is not None) == _all_apply(other.space_generator.postprocs, copy)
