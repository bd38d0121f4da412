"""Random programs keep their numbers through random sequences of passes; every step verifies and reads back."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.interp import run_function
from mlcc.ir import IRModule, relax
from mlcc.passes.manage.levels import LEVELS
from mlcc.relax.queries import all_bindings
from mlcc.verify import check
from tests.generate import graphs
from tests.passes.arguments import arguments, leaves
from tests.passes.programs import Program

STEPS = [
    "annotate-op-pattern", "canonicalize", "dead-code", "eliminate-common-subexpr", "ewise-fma", "fold-constants",
    "fuse",
    "fuse-matmul-add", "inline-functions", "lower-to-tir", "lower-to-tir,fuse-tir", "normalize", "pack-weights",
    'lower-to-tir{skip=["relax.add", "relax.matmul"]}', "adjust-matmul-order", "combine-parallel-matmul", "decompose",
    "expand-tuple-arguments", "lambda-lift", "remove-unused-outputs", "remove-unused-parameters", "to-dataflow",
    "to-dataflow{min-size=1}", "topological-sort",
    "topological-sort{order=breadth-first direction=from-outputs}",
]  # fmt: skip


def results(module: IRModule, program: Program) -> list[np.ndarray]:
    made = run_function(module, "main", list(program.inputs().values()))
    return list(made) if isinstance(made, (tuple, list)) else [made]


def run_steps(program: Program, steps: list[str]) -> None:
    """Run the steps one by one; numbers stay, modules verify, texts read back."""
    module = mlcc.parse(program.text(), name=f"seed {program.seed}")
    want = results(module, program)
    for step in steps:
        module = mlcc.run_passes(module, step)
        check(module)
        mlcc.assert_structural_equal(module, mlcc.parse(mlcc.script(module), name="printed"))
        for a, b in zip(results(module, program), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"after {step}")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
def test_any_sequence_of_passes_keeps_the_numbers(seed: int, steps: list[str]) -> None:
    run_steps(Program(seed), steps)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_keep_the_numbers(level: str) -> None:
    for seed in range(12):
        run_steps(Program(seed, length=12), [level])


def operations(module: IRModule, name: str = "main") -> int:
    """How many operators one call of a function runs."""
    func = module[name]
    assert isinstance(func, relax.Function)
    total = 0
    for binding, _ in all_bindings(func.body):
        value = binding.value  # type: ignore[attr-defined]
        if isinstance(value, relax.Call):
            inner = value.op.name if isinstance(value.op, relax.GlobalVar) else None
            total += operations(module, inner) if inner is not None else 1
    return total


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_computed_twice(seed: int) -> None:
    module = mlcc.run_passes(mlcc.parse(Program(seed, length=16).text()), "dead-code")
    fused = mlcc.run_passes(module, "fuse")
    assert operations(fused) == operations(module)


@pytest.mark.parametrize("part", range(4))
def test_generated_modules_keep_their_numbers(part: int, all_cases: bool) -> None:
    """Modules with symbolic sizes, branches, nested functions, tuples, calls of TIR and all dtypes."""
    for seed in range(part, 800 if all_cases else 60, 4):
        rng = random.Random(seed)
        module = graphs.module(seed)
        given = arguments(module["main"], rng)
        want = leaves(run_function(module, "main", given))
        for step in rng.choices([*STEPS, *LEVELS], k=rng.randint(1, 4)):
            module = mlcc.run_passes(module, step)
            for got, expected in zip(leaves(run_function(module, "main", given)), want, strict=True):
                assert (got.shape, got.dtype) == (expected.shape, expected.dtype), f"seed {seed}, {step}"
                tolerance = 2e-2 if got.dtype == np.float16 else 1e-4
                np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=f"seed {seed}, after {step}")
        mlcc.assert_structural_equal(module, mlcc.parse(mlcc.script(module)))
