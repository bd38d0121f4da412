"""Compiling goes on from the text after any step of lowering: to the same code as in one go."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlcc
from mlcc import backends
from mlcc.driver import build_pipeline, parse_file
from mlcc.errors import CompileError
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.machine.target import Target
from mlcc.passes.lowering.stage import lowering_option_mismatch
from mlcc.passes.manage.manager import Pipeline
from mlcc.passes.manage.stages import SANITIZED, STAGE, STEP, TARGET
from tests.generate.functions import Options, prim_func

KERNELS = sorted((Path(__file__).resolve().parent / "steps").glob("*.mlc"))
TARGETS = (
    "llvm{triple=x86_64-linux-gnu}", "llvm{triple=x86_64-linux-gnu cpu=haswell}", "cuda{arch=sm_80}",
    "llvm{triple=x86_64-linux-gnu cpu=znver4}", "llvm{triple=aarch64-linux-gnu}", "cuda{arch=sm_90a}",
)  # fmt: skip
CPUS = [target for target in TARGETS if target.startswith("llvm")]
SHARE = 12  # generated functions; with --all-cases, 200


def code(module: IRModule, target: str, pipeline: Pipeline) -> str:
    """Assembly or PTX, without what it says of itself."""
    made = mlcc.build(module, target, pipeline=pipeline, prefix="p")
    lines = made.emit("ptx" if target.startswith("cuda") else "asm").decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("# mlcc", "// mlcc")))


def differing(module: IRModule, target: str, level: int, steps: int | None, seed: int) -> list[str]:
    """The steps of lowering, or a random choice of them, after which compiling gives other code."""
    where = Target.parse(target)
    passes = build_pipeline(module, where, level, None).passes
    whole = code(module, target, Pipeline(passes))
    numbers = [n for n, one in enumerate(passes) if one.name in backends.of(where).lowering]
    chosen = numbers if steps is None else sorted(random.Random(seed).sample(numbers, steps))
    wrong, done = [], 0
    for n in chosen:
        module = mlcc.run_passes(module, Pipeline(passes[done : n + 1]), target=where)
        done = n + 1
        if code(mlcc.parse(mlcc.script(module)), target, Pipeline(passes[done:])) != whole:
            wrong.append(passes[n].name)
    return wrong


def differing_sanitized(module: IRModule, target: str, level: int) -> list[str]:
    """The steps of sanitized code after which compiling from the text gives other code, but for places in messages, and
    for the numbers that a text puts behind names of buffers."""
    passes = build_pipeline(module, Target.parse(target), level, None, sanitize=True).passes
    wrong = []
    for n, one in enumerate(passes):
        module = mlcc.run_passes(module, Pipeline((one,)), target=target)
        if one.name in backends.of(target).sanitizing:
            again = mlcc.parse(mlcc.script(module))
            pair = (module, again) if n == len(passes) - 1 else (_placeless(module), _placeless(again))
            rest = Pipeline(passes[n + 1 :])
            same = len({code(m, target, rest) for m in pair}) == 1
            if not same and rest.passes:
                texts = (mlcc.script(mlcc.run_passes(m, rest, target=target)) for m in pair)
                same = len({re.sub(r"`(\w+?)_\d+`", r"`\1`", text) for text in texts}) == 1
            wrong += [] if same else [one.name]
    return wrong


def _placeless(module: IRModule) -> IRModule:
    made = module.copy()
    made.functions = {
        name: rewrite_bottom_up(func, lambda node: replace(node, span=None)) for name, func in module.functions.items()
    }
    return made


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_continued_kernels_give_the_same_code(path: Path, all_cases: bool) -> None:
    (target,) = re.findall(r"^# TARGET: (.*)$", path.read_text(), re.M)
    assert not differing(parse_file(str(path)), target, 1, None if all_cases else 4, KERNELS.index(path))


@pytest.mark.parametrize("path", [p for p in KERNELS if p.stem.startswith("cpu")], ids=lambda p: p.stem)
def test_continued_sanitized_kernels_give_the_same_code(path: Path) -> None:
    assert not differing_sanitized(parse_file(str(path)), TARGETS[0], 1)


def test_continued_views_give_the_same_code() -> None:
    """In a text a view has the data of its memory; before, it has data of its own."""
    assert not differing(parse_file(str(next(p for p in KERNELS if p.stem == "gpu-view"))), "cuda", 1, None, 0)


def generated(count: int) -> Iterator[tuple[int, IRModule]]:
    for seed in range(count):
        func = prim_func(seed, Options(threads=bool(seed % 2)))
        yield seed, mlcc.parse(mlcc.script(IRModule({"main": func.with_attr("global_symbol", "main")})))


def test_continued_generated_functions_give_the_same_code(all_cases: bool) -> None:
    wrong: dict[int, list[str]] = {}
    refused = 0
    count = 200 if all_cases else SHARE
    for seed, module in generated(count):
        try:
            found = differing(module, TARGETS[seed % 6], seed // 6 % 4, None if all_cases else 2, seed)
        except CompileError:  # not everything has a form on a GPU
            refused += 1
            continue
        wrong.update({seed: found} if found else {})
    assert not wrong
    assert refused <= count // 4


def test_continued_sanitized_functions_give_the_same_code(all_cases: bool) -> None:
    wrong = {
        seed: found
        for seed, module in generated(200 if all_cases else SHARE // 2)
        if (found := differing_sanitized(module, CPUS[seed % 4], seed // 4 % 4))
    }
    assert not wrong


@pytest.mark.parametrize(
    "first", ["lower", "init-empty-reductions", "init-empty-reductions,simplify-arg-updates,realize-blocks"]
)
def test_sanitized_code_from_any_stage(first: str) -> None:
    """What is lowered already goes through the steps of sanitized code, and says afterwards what it is."""
    module = mlcc.run_passes(parse_file(str(KERNELS[0])), first)
    for made in (mlcc.build(module, sanitize=True), mlcc.build(mlcc.run_passes(module, "sanitize"))):
        assert made.manifest["source"]["sanitize"] is True
    lowered = mlcc.run_passes(module, "sanitize")
    with pytest.raises(CompileError, match="E0545.*`vectorize-loops` is not a step for code with checked accesses"):
        mlcc.run_passes(lowered, "vectorize-loops")
    with pytest.raises(CompileError, match="E0545.*`insert-access-checks` must come after `mark-new-outputs`, which"):
        mlcc.run_passes(module, "insert-access-checks")
    with pytest.raises(CompileError, match="E0546"):
        mlcc.build(lowered, "cuda")


def test_what_is_lowered_in_part_goes_on_by_itself() -> None:
    module = parse_file(str(KERNELS[0]))
    target = TARGETS[1]
    whole = code(module, target, build_pipeline(module, Target.parse(target), 2, None))
    steps = "O2,init-empty-reductions,simplify-arg-updates,realize-blocks,simplify-divisions"
    part = mlcc.run_passes(module, steps, target=target)
    assert dict(part.attrs) == {STAGE: "loops", STEP: "simplify-divisions", TARGET: str(Target.parse(target))}
    for pipeline in (None, ""):
        made = mlcc.build(part, target, pipeline=pipeline, prefix="p").emit("asm").decode()
        assert "\n".join(line for line in made.splitlines() if not line.startswith("# mlcc")) == whole


def test_what_comes_before_lowering_is_not_left_out() -> None:
    """A pipeline that names a step of lowering and not `bind-threads`."""
    module, target = parse_file(str(next(p for p in KERNELS if p.stem == "cpu-product"))), "cuda{arch=sm_80}"
    made = build_pipeline(module, Target.parse(target), 2, "init-empty-reductions")
    assert str(made) == backends.get("cuda").lowering_pipeline


@pytest.mark.parametrize(
    ("target", "passes", "code", "text"),
    [
        ("llvm", "lower,realize-blocks", "E0545", "`realize-blocks` must come before `select-parallel-loops`"),
        ("llvm", "vectorize-loops", "E0545", "run init-empty-reductions,.*realize-blocks,.*flatten-buffers.* first"),
        ("llvm", "realize-blocks", "E0545", "must come after `simplify-arg-updates`, which"),
        ("llvm", "insert-barriers", "E0546", "pass -t cuda"),
        ("cuda", "unroll-loops", "E0546", "pass -t llvm"),
        ("cuda", "lower-loops", "E0546", "the target is cuda"),
        ("llvm", "lower-gpu", "E0546", "`lower-gpu` lowers for cuda, but the target is llvm"),
        ("cuda", "flatten-buffers", "E0545", "takes a module at stage `loops`, but this one is at stage `blocks`"),
        ("llvm", "lower,auto-schedule", "E0545", "`auto-schedule` requires a module of blocks, but this one has flat"),
        ("llvm", "lower,lower-to-tir", "E0545", "run it before the steps of lowering"),
    ],
)
def test_steps_out_of_turn_are_refused(target: str, passes: str, code: str, text: str) -> None:
    with pytest.raises(CompileError, match=text) as caught:
        mlcc.run_passes(parse_file(str(KERNELS[0])), passes, target=target)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_a_module_for_another_target() -> None:
    lowered = mlcc.run_passes(parse_file(str(KERNELS[0])), "lower")
    with pytest.raises(CompileError, match="E0546.*lowered for another target: for llvm, not for cuda"):
        mlcc.build(lowered, "cuda")
    lowered.attrs = Attrs({k: v for k, v in lowered.attrs.items() if k != TARGET})
    with pytest.raises(CompileError, match="E0546.*`select-parallel-loops` is not a step for cuda"):
        mlcc.build(lowered, "cuda")


def test_a_module_for_another_cpu() -> None:
    first, other = (Target.parse(f"llvm{{triple=x86_64-linux-gnu cpu={cpu}}}") for cpu in ("haswell", "znver4"))
    part = mlcc.run_passes(parse_file(str(KERNELS[0])), "O1,init-empty-reductions,simplify-arg-updates", target=first)
    assert not lowering_option_mismatch(part, first)
    assert not lowering_option_mismatch(part, Target.parse("llvm{triple=x86_64-linux-gnu cpu=broadwell l2=65536}"))
    (found,) = lowering_option_mismatch(mlcc.run_passes(part, "realize-blocks", target=other), other)
    assert found.code == "W0304"
    assert str(first) in found.message


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({STAGE: "flat"}, "`mlcc.stage` is `flat`, but after no lowering step"),
        ({STAGE: "round"}, "`mlcc.stage` is `round`"),
        ({STEP: "unroll-loops"}, "`mlcc.stage` is `blocks`, but after `unroll-loops` .* must be `flat`"),
        ({STAGE: "flat", STEP: "unrol-loops"}, "is not a lowering step.*did you mean `unroll-loops`"),
        ({SANITIZED: True}, "`mlcc.sanitized` is set, but after no lowering step"),
        ({SANITIZED: True, STAGE: "flat", STEP: "unroll-loops"}, "is set, but after `unroll-loops`"),
        ({STAGE: "flat", STEP: 5}, "`mlcc.step` is `5`, which is not a lowering step"),
    ],
)
@pytest.mark.parametrize("sanitize", [False, True])
def test_attributes_that_are_not_true(attributes: dict[str, object], text: str, sanitize: bool) -> None:
    module = parse_file(str(KERNELS[0])).copy()
    module.attrs = Attrs(attributes)
    with pytest.raises(CompileError, match=f"(?s)E0545.*{text}"):
        mlcc.build(module, sanitize=sanitize)


def test_blocks_where_there_are_to_be_none() -> None:
    module = parse_file(str(next(p for p in KERNELS if p.stem == "cpu-product"))).copy()
    module.attrs = Attrs({STAGE: "loops", STEP: "realize-blocks"})
    with pytest.raises(CompileError, match="E0545.*is a block, but the module must not have any"):
        mlcc.build(module)


def test_a_module_of_kernels_that_says_it_has_none() -> None:
    apart = mlcc.run_passes(parse_file(str(KERNELS[-1])), "lower-gpu", target="cuda")
    apart.attrs = Attrs({STAGE: "flat", STEP: "select-unrolled-loops"})
    with pytest.raises(CompileError, match="E0729.*can only launch kernels, and `f_kernel` is not a kernel"):
        mlcc.build(apart, "cuda")


def test_findings_of_several_steps_are_reported_together() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def late(A: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            if A[t] > T.float32(0):
                T.tvm_storage_sync("shared")

    @T.prim_func
    def early(A: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S[t] = A[t]
        for t in T.thread_binding(64, thread="threadIdx.x"):
            A[t] = S[t]
"""
    with pytest.raises(CompileError) as caught:
        mlcc.build(mlcc.parse(text), "cuda", pipeline="")
    assert sorted(d.code for d in caught.value.diagnostics) == ["E0723", "E0726"]
