"""Plans: the default is what the pass does, all of them are correct, and what they may be is said."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

import pytest

import mlcc
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.choose import answer
from mlcc.passes.auto_schedule.plans import Plan, Planned, Plans
from mlcc.verify import check
from tests.auto_schedule.kernels import graph, lowered
from tests.auto_schedule.products import Product
from tests.generate.functions import Options, prim_func
from tests.targets.arguments import arguments, assert_alike, duplicate

WIDE = "llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=2}"
HALVES = "llvm{triple=x86_64-linux-gnu cpu=znver4 num-cores=2}"
SMALL = "llvm{triple=x86_64-linux-gnu num-cores=2 l1=1024 l2=4096}"
SQUARE = Product("mk,kn->mn", {"m": 64, "k": 64, "n": 96})


def only(mod: IRModule) -> tir.PrimFunc:
    """The one TIR function of a module."""
    (func,) = (f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    return func


def operators(params: str, line: str) -> tir.PrimFunc:
    return only(lowered(graph(params, f"y = {line}", result="y")))


def kernel(text: str) -> tir.PrimFunc:
    return only(mlcc.parse(text))


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
}  # fmt: skip


def some(plans: Plans, count: int, seed: int = 0) -> list[Planned]:
    """Plans: those that rules expect most of, and as many by random steps from there."""
    found = list(islice(plans.best_first(), count))
    random = Random(seed)
    for _ in range(count):
        near = plans.neighbours(random.choice(found))
        made = plans.repair(random.choice(near)[1]) if near else None
        if made is not None:
            found.append(made)
    return found


def assert_right(func: tir.PrimFunc, found: list[Planned]) -> None:
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
    assert_right(func, some(Plans(func, CpuFacts.of(target)), 200 if all_cases else 4))


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
        found = [p for p in some(plans, 3, seed) if "unsafe_compute_in" not in str(p.answer.trace)]
        taken += len(found)
        assert_right(func, found)
    assert taken > 10


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_what_the_pass_does(name: str) -> None:
    func = KERNELS[name]()
    facts = CpuFacts.of(WIDE)
    plans, usual = Plans(func, facts), answer(func, "main", facts)
    assert plans.default is not None and plans.default.predicted == 1.0
    assert str(plans.default.answer.trace) == str(usual.trace) == str(next(plans.best_first()).answer.trace)
    again = plans.apply(plans.default.plan)  # with all its choices said
    assert again.key == plans.default.key and again.plan == plans.default.plan
    assert plans.apply(Plan(plans.default.plan.rule)).key == plans.default.key


def test_plans_come_best_first_and_each_once() -> None:
    plans = plans_of(SQUARE.text())
    found = list(islice(plans.best_first(), 60))
    times = [planned.predicted for planned in found]
    assert times[0] == 1.0 and all(b > a - 1e-9 for a, b in pairwise(times))
    assert len({planned.key for planned in found}) == len({str(planned.plan) for planned in found}) == 60
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
    with pytest.raises(CompileError, match=r"E0698.*there is no rule `gpu-rows`(.|\n)*rules: matvec, matmul"):
        plans.apply(Plan("gpu-rows"))
    with pytest.raises(CompileError, match=r"E0697.*tir.is_scheduled"):
        Plans(plans.apply(Plan("matmul")).func, CpuFacts.of(WIDE))


def test_a_rule_that_is_named_takes_what_it_would_leave_to_another() -> None:
    plans = plans_of(Product("mk,nk->mn", {"m": 2, "k": 64, "n": 64}).text())
    assert plans.default is not None and plans.default.plan.rule == "dots"
    assert "panels" in str(plans.apply(Plan("matmul")).answer.choices)
