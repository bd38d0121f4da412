"""Plans of the rules for GPUs: what they choose, and that all of it computes what the kernel computed, emulated with
all checks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random

import numpy as np
import pytest

import mlcc
from mlcc.backends import facts_of
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.auto_schedule.plans import AppliedPlan, Plan, Plans
from mlcc.verify import check
from tests.auto_schedule.kernels import arguments, graph, lowered
from tests.auto_schedule.products import Product

OLD, NEW = "cuda{arch=sm_75}", "cuda{arch=sm_90a}"
Make = Callable[[], tir.PrimFunc]


def operators(params: str, line: str) -> tir.PrimFunc:
    made = lowered(graph(params, f"y = {line}", result="y"))
    (func,) = (f for f in made.functions.values() if isinstance(f, tir.PrimFunc))
    return func.with_attr("global_symbol", "main")


def product(form: str, dtype: str = "float32", out: str = "float32", **sizes: int) -> tir.PrimFunc:
    func = mlcc.parse(Product(form, sizes, dtype=dtype, out=out).text())["main"]
    assert isinstance(func, tir.PrimFunc)
    return func


KERNELS: dict[str, tuple[Make, str, str, set[str]]] = {
    "matmul": (lambda: product("mk,kn->mn", m=34, k=32, n=36), NEW, "gpu-matmul", {"rows", "together", "stages"}),
    "old": (lambda: product("mk,kn->mn", m=34, k=32, n=36), OLD, "gpu-matmul", {"rows", "together"}),
    "split": (
        lambda: product("mk,kn->mn", m=34, k=1600, n=36), NEW, "gpu-matmul", {"rows", "parts", "stages"},
    ),
    "halves": (
        lambda: product("mk,nk->mn", "float16", m=64, k=128, n=48), "cuda{arch=sm_80}", "gpu-tensor-cores",
        {"rows", "columns", "stages"},
    ),
    "vector": (lambda: product("k,kn->n", k=32, n=128), NEW, "gpu-gemv-columns", {"columns", "rows"}),
    "softmax": (lambda: operators('x: R.Tensor((6, 160), "float32")', "R.nn.softmax(x)"), NEW, "gpu-rows", {"threads"}),
    "elementwise": (
        lambda: operators('x: R.Tensor((256, 1024), "float32")', "R.add(x, x)"), OLD, "gpu-elementwise",
        {"lanes", "turns", "threads"},
    ),
}  # fmt: skip


def sample_plans(plans: Plans, count: int) -> list[AppliedPlan]:
    """Plans: those that rules expect most of, and as many by random steps from there."""
    found = list(islice(plans.best_first(), count))
    random = Random(0)
    for _ in range(count):
        near = plans.neighbours(random.choice(found))
        made = plans.repair(random.choice(near)[1]) if near else None
        if made is not None:
            found.append(made)
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_all_plans_are_right(name: str, all_cases: bool) -> None:
    make, target, rule, choices = KERNELS[name]
    func = make()
    plans = Plans(func, facts_of(target))
    assert plans.default is not None and plans.default.plan.rule == rule
    assert choices <= set(plans.default.plan.choices)
    given = arguments(IRModule({"main": func}))
    expected = [array.copy() for array in given]
    mlcc.load(mlcc.build(func, "llvm{cpu=native}", opt_level=1, pipeline="lower"))["main"](*expected)
    for planned in sample_plans(plans, 20) if all_cases else sample_plans(plans, 2)[1:3]:
        module = IRModule({"main": planned.func})
        check(module)
        have = [array.copy() for array in given]
        try:
            artifact = mlcc.build(module, target, pipeline="lower")
        except CompileError as exc:  # more shared memory than there is
            assert "shared" in str(exc), planned.plan
            continue
        mlcc.load(artifact, emulate=True)["main"](*have)
        np.testing.assert_allclose(have[-1], expected[-1], rtol=1e-2, atol=1e-2, err_msg=str(planned.plan))


def test_tiles_of_tensor_cores_are_judged_by_their_clocks() -> None:
    plans = Plans(product("mk,kn->mn", "float16", m=1024, k=1024, n=1024), facts_of("cuda{arch=sm_80}"))
    assert plans.default is not None
    smaller = plans.apply(Plan("gpu-tensor-cores", {"rows": 64}))
    assert smaller.predicted > plans.default.predicted == 1.0
    assert {"gpu-matmul", "gpu-fallback"} <= {p.plan.rule for p in islice(plans.best_first(), 60)}
