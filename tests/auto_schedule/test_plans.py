"""Plans: the default is what the pass does, all of them are correct, and what they may be is said."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

import mlcc
from mlcc.cli.main import cli
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.apply_rules import schedule_function
from mlcc.passes.auto_schedule.plans import AppliedPlan, Plan, Plans
from mlcc.verify import check
from tests.auto_schedule.kernels import graph, lowered
from tests.auto_schedule.products import Product
from tests.generate.functions import Options, prim_func
from tests.targets.arguments import arguments, assert_alike, duplicate

WIDE = "llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=2}"
HALVES = "llvm{triple=x86_64-linux-gnu cpu=znver4 num-cores=2}"
SMALL = "llvm{triple=x86_64-linux-gnu num-cores=2 l1=1024 l2=4096}"
SQUARE = Product("mk,kn->mn", {"m": 64, "k": 64, "n": 96})


def only_prim_func(mod: IRModule) -> tir.PrimFunc:
    """The one TIR function of a module."""
    (func,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    return func


def operators(params: str, line: str) -> tir.PrimFunc:
    return only_prim_func(lowered(graph(params, f"y = {line}", result="y")))


def kernel(text: str) -> tir.PrimFunc:
    return only_prim_func(mlcc.parse(text))


def plans_of(text: str, target: str = WIDE) -> Plans:
    return Plans(kernel(text), CpuFacts.of(target))


KERNELS = {
    "matmul": lambda: kernel(Product("mk,kn->mn", {"m": 9, "k": 8, "n": 34}, epilogue="bias-relu").text()),
    "matmul transposed": lambda: kernel(Product("km,nk->mn", {"m": 11, "k": 12, "n": 18}).text()),
    "batch": lambda: kernel(Product("bmk,bkn->bmn", {"b": 8, "m": 5, "k": 4, "n": 9}).text()),
    "symbolic": lambda: kernel(Product("mk,kn->mn", {"m": "count", "k": 6, "n": 20}).text()),
    "bytes": lambda: kernel(Product("mk,kn->mn", {"m": 17, "k": 8, "n": 20}, dtype="int8", out="int32").text()),
    "conv": lambda: operators(
        'x: R.Tensor((1, 3, 7, 9), "float32"), w: R.Tensor((5, 3, 3, 3), "float32")',
        "R.nn.conv2d(x, w, padding=(1, 1, 1, 1))",
    ),
    "strided conv": lambda: operators(
        'x: R.Tensor((1, 2, 9, 11), "float32"), w: R.Tensor((4, 2, 3, 3), "float32")',
        "R.nn.conv2d(x, w, strides=(2, 2))",
    ),
    "conv of pixels": lambda: operators(
        'x: R.Tensor((1, 6, 7, 3), "float32"), w: R.Tensor((5, 3, 3, 3), "float32")',
        'R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OIHW")',
    ),
    "matvec": lambda: kernel(Product("k,kn->n", {"k": 24, "n": 70}, epilogue="bias").text()),
    "dots": lambda: kernel(Product("mk,nk->mn", {"m": 4, "k": 40, "n": 6}).text()),
    "elementwise": lambda: operators('x: R.Tensor((37, 41), "float32")', "R.nn.gelu(x)"),
    "transposed": lambda: operators('x: R.Tensor((35, 41), "float32")', "R.permute_dims(x)"),
    "softmax": lambda: operators('x: R.Tensor((5, 136), "float32")', "R.nn.softmax(x)"),
    "norm": lambda: operators(
        'x: R.Tensor((3, 96), "float32"), g: R.Tensor((96,), "float32"), b: R.Tensor((96,), "float32")',
        "R.nn.layer_norm(x, g, b, axes=[-1])",
    ),
    "total": lambda: operators('x: R.Tensor((7, 515), "float32")', "R.sum(x)"),
    "sums of columns": lambda: operators('x: R.Tensor((9, 70), "float32")', "R.sum(x, axis=[0])"),
    "sums of long columns": lambda: operators('x: R.Tensor((16, 1061), "float32")', "R.sum(x, axis=[0])"),
    "pooling": lambda: operators('x: R.Tensor((1, 3, 12, 11), "float32")', "R.nn.max_pool2d(x, (3, 3), (2, 2))"),
    "depthwise": lambda: operators(
        'x: R.Tensor((1, 4, 9, 9), "float32"), w: R.Tensor((4, 1, 3, 3), "float32")',
        "R.nn.conv2d(x, w, padding=(1, 1, 1, 1), groups=4)",
    ),
}  # fmt: skip


def sample_plans(plans: Plans, count: int, seed: int = 0) -> list[AppliedPlan]:
    """Plans: those that rules expect most of, and as many by random steps from there."""
    found = list(islice(plans.best_first(), count))
    random = Random(seed)
    for _ in range(count):
        near = plans.neighbours(random.choice(found))
        made = plans.repair(random.choice(near)[1]) if near else None
        if made is not None:
            found.append(made)
    return found


def assert_right(func: tir.PrimFunc, found: list[AppliedPlan]) -> None:
    """Each scheduled function is well-formed and computes what the function does."""
    given, _ = arguments(func, 1)
    expected = duplicate(given)
    run_prim_func(func, expected)
    for planned in found:
        assert planned.answer.broken is None, planned.plan
        check(IRModule({"main": planned.func}))
        got = duplicate(given)
        run_prim_func(planned.func, got)
        assert_alike(func, got, expected, str(planned.plan))


@pytest.mark.parametrize("target", [WIDE, HALVES, SMALL])
@pytest.mark.parametrize("name", KERNELS)
def test_all_plans_are_right(name: str, target: str, all_cases: bool) -> None:
    func = KERNELS[name]()
    assert_right(func, sample_plans(Plans(func, CpuFacts.of(target)), 100 if all_cases else 3))


def test_plans_of_generated_functions_are_right(all_cases: bool) -> None:
    taken = 0
    for seed in range(400 if all_cases else 60):
        func = prim_func(seed, Options(asserts=False))
        try:
            plans = Plans(func, CpuFacts.of(WIDE))
            given, _ = arguments(func, 1)
            run_prim_func(func, given)
        except (CompileError, CallError):  # what somebody scheduled; what does not run
            continue
        found = [p for p in sample_plans(plans, 3, seed) if "unsafe_compute_in" not in str(p.answer.trace)]
        taken += len(found)
        assert_right(func, found)
    assert taken > 10


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_what_the_pass_does(name: str) -> None:
    func = KERNELS[name]()
    facts = CpuFacts.of(WIDE)
    plans, usual = Plans(func, facts), schedule_function(func, "main", facts)
    assert plans.default is not None and plans.default.predicted == 1.0
    assert str(plans.default.answer.trace) == str(usual.trace) == str(next(plans.best_first()).answer.trace)
    again = plans.apply(plans.default.plan)  # with all its choices said
    assert again.key == plans.default.key and again.plan == plans.default.plan
    assert plans.apply(Plan(plans.default.plan.rule)).key == plans.default.key


def test_plans_come_best_first_and_each_once() -> None:
    plans = plans_of(SQUARE.text())
    found = list(islice(plans.best_first(), 24))
    times = [planned.predicted for planned in found]
    assert times[0] == 1.0 and all(b > a - 1e-9 for a, b in pairwise(times))
    assert len({planned.key for planned in found}) == len({str(planned.plan) for planned in found}) == 24
    rules = {
        planned.plan.rule for planned in plans_of(Product("mk,kn->mn", {"m": 4, "k": 4, "n": 8}).text()).best_first()
    }
    assert {"matmul", "columns", "fallback"} <= rules


def test_neighbours_differ_in_one_choice() -> None:
    plans = plans_of(SQUARE.text())
    assert plans.default is not None
    start = plans.default.plan.choices
    near = plans.neighbours(plans.default)
    assert {change for change, *_ in near} == set(start)
    for change, plan, predicted in near:
        assert plan.choices[change] != start[change] and predicted > 0.9
        assert all(plan.choices.get(name, value) == value for name, value in start.items() if name != change)
        made = plans.repair(plan)
        assert made is not None and made.plan.choices[change] == plan.choices[change]


def test_a_plan_that_is_not_offered_says_what_is() -> None:
    plans = plans_of(SQUARE.text())
    with pytest.raises(
        CompileError, match=r"E0699.* does not offer rows=77 here(.|\n)*`rows` \(rows of a tile\) may be"
    ):
        plans.apply(Plan("matmul", {"rows": 77}))
    with pytest.raises(CompileError, match=r"E0699.* no choice `warps` here(.|\n)*it chooses panels, "):
        plans.apply(Plan("matmul", {"warps": 4}))
    with pytest.raises(CompileError, match=r"E0698.* does not take `main`: block `product` reduces"):
        plans.apply(Plan("transposes"))
    with pytest.raises(CompileError, match=r"E0698.*there is no rule `gpu-rows`(.|\n)*rules: .*matvec, matmul"):
        plans.apply(Plan("gpu-rows"))
    with pytest.raises(CompileError, match=r"E0697.*tir.is_scheduled"):
        Plans(plans.apply(Plan("matmul")).func, CpuFacts.of(WIDE))


def test_a_rule_that_is_named_takes_what_it_would_leave_to_another() -> None:
    plans = plans_of(Product("mk,nk->mn", {"m": 2, "k": 64, "n": 64}).text())
    assert plans.default is not None and plans.default.plan.rule == "dots"
    assert "panels" in str(plans.apply(Plan("matmul")).answer.choices)


def test_the_command_prints_plans_that_replay(tmp_path: Path) -> None:
    file, script, trace, out = (tmp_path / n for n in ("mm.mlc", "plans.mls", "steps.mls", "out.mlc"))
    file.write_text(SQUARE.text())
    run = CliRunner().invoke
    done = run(cli, ["schedule", str(file), "--auto", "--plans", "3", "-t", WIDE, "-o", str(script)])
    assert done.exit_code == 0, done.output
    text = script.read_text()
    assert text.count("def plan_main") == 3 and "# main: 1.000, rule matmul" in text
    assert "    # rows of a tile\n    rows = sch.sample_categorical(candidates=[" in text
    applied = ["schedule", str(file), "--script", str(script), "--trace", str(trace), "-o", str(out), "--force"]
    done = run(cli, applied)
    assert done.exit_code == 0, done.output
    made = mlcc.run_passes(mlcc.parse(SQUARE.text()), "auto-schedule", target=WIDE)
    assert out.read_text().removeprefix("# mlc 1\n") == mlcc.script(made)
    assert "schedule_by_rule" not in trace.read_text()
    assert mlcc.script(mlcc.apply_schedule(mlcc.parse(SQUARE.text()), trace.read_text())) == mlcc.script(made)
    at = text.index("    rows = ")
    script.write_text(text[:at] + text[at:].replace("decision=0", "decision=1", 1))  # of the plan that is applied
    assert run(cli, applied).exit_code == 0 and out.read_text().removeprefix("# mlc 1\n") != mlcc.script(made)
    script.write_text(text.replace('"rows": rows', '"rows": 77', 1))
    done = run(cli, applied)
    assert "plans.mls:" in str(done.exception) and "does not offer rows=77" in str(done.exception)
    done = run(cli, ["schedule", str(file), "--script", str(script), "--plans", "2"])
    assert done.exit_code == 2 and "--plans cannot be combined with --script" in done.output


def test_a_rule_is_a_step_of_a_schedule() -> None:
    sch = mlcc.Schedule(mlcc.parse(SQUARE.text()))
    with pytest.raises(CompileError, match="E0699"):
        sch.schedule_by_rule("matmul", {"rows": 77}, target=WIDE)
    with pytest.raises(CompileError, match="E0616"):
        sch.schedule_by_rule("matmul", func_name="other", target=WIDE)
    with pytest.raises(CompileError, match="E0613"):
        sch.schedule_by_rule("matmul", {"rows": 2.5}, target=WIDE)  # type: ignore[dict-item]
    with pytest.raises(CompileError, match="name the rule"):
        sch.schedule_by_rule(None, {"rows": 2}, target=WIDE)
    assert not len(sch.trace)
    rows = sch.sample_categorical([2, 4], [0.5, 0.5], decision=1)
    sch.schedule_by_rule("matmul", {"rows": rows}, target=WIDE)
    expected = plans_of(SQUARE.text()).apply(Plan("matmul", {"rows": 4}))
    mlcc.assert_structural_equal(sch.mod["main"], expected.func)
    with pytest.raises(CompileError, match="E0697"):
        sch.schedule_by_rule(target=WIDE)
    usual = mlcc.Schedule(mlcc.parse(SQUARE.text()))
    usual.schedule_by_rule(target=WIDE)
    mlcc.assert_structural_equal(usual.mod, mlcc.run_passes(mlcc.parse(SQUARE.text()), "auto-schedule", target=WIDE))
