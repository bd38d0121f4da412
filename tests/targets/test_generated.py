"""Generated functions: native code computes what the reference interpreter does, and so does their loop code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.errors import CallError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.object.compile import Machine
from tests.generate.functions import Options, prim_func
from tests.lower import lower_func
from tests.targets.arguments import arguments, assert_alike, duplicate
from tests.targets.harness import Native, lowering_for

SHARE = 8  # functions in one test; with --all-cases, 150


def check(
    func: tir.PrimFunc, seed: int, native_options: EmitOptions, machine: Machine, level: int,
    lowering: LowerOptions | None = None,
) -> None:  # fmt: skip
    args, symbols = arguments(func, seed)
    expected, lowered, native = duplicate(args), duplicate(args), duplicate(args)
    failed = _run(func, expected)
    assert _run(lower_func(func), lowered) == failed
    compiled = Native(func, options=native_options, machine=machine, level=level, lowering=lowering)
    assert (compiled(*native, symbols=symbols) != 0) == failed
    if not failed:
        assert_alike(func, lowered, expected, f"loop code of {seed}", exact=True)
        assert_alike(func, native, expected, f"native code of {seed}")


def _run(func: tir.PrimFunc, args: list[object]) -> bool:
    """Whether it fails."""
    try:
        run_prim_func(func, args)
    except CallError:
        return True
    return False


@pytest.mark.parametrize("batch", range(12))
def test_native_code_matches_the_interpreter(batch: int, all_cases: bool) -> None:
    for seed in range(batch * 150, batch * 150 + (150 if all_cases else SHARE)):
        check(prim_func(seed), seed, EmitOptions(contract=False), Machine(), 1)


@pytest.mark.parametrize("batch", range(3))
def test_optimised_for_a_newer_cpu(batch: int, all_cases: bool) -> None:
    """With all optimisation, narrow vectors, hardly any stack, much unrolled."""
    options, machine = EmitOptions(contract=False, stack_bytes=64), Machine(cpu="x86-64-v3")
    lowering = replace(lowering_for(machine, options), unroll_limit=1500, vector_lanes=4)
    for seed in range(10000 + batch * 150, 10000 + batch * 150 + (150 if all_cases else SHARE)):
        check(prim_func(seed, Options(threads=True)), seed, options, machine, 3, lowering)
