"""Generated programs whose lanes differ: the loop code and the native code of each CPU compute what the text does.

Arrays lie against pages that must not be touched, before or behind them.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.object.compile import Machine
from tests.fuzz.fences import fenced
from tests.generate.lanes import Case, lanes
from tests.lower import lower_func
from tests.targets.arguments import assert_alike
from tests.targets.harness import Native

SHARE = 10
CPUS = ("x86-64", "x86-64-v3", "x86-64-v4")


def arrays(case: Case, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (case.rows, case.columns)
    kind = {"bfloat16": "uint16"}.get(case.dtype, case.dtype)
    made = []
    for _ in range(2):
        values = rng.integers(0 if kind[0] in "ub" else -9, 9, shape)
        if case.dtype == "bfloat16":
            made.append((values.astype("float32").view("uint32") >> 16).astype("uint16"))
        else:
            made.append((values % 2 == 0) if kind == "bool" else values.astype(kind))
    return [*made, rng.integers(0, 5, 8).astype("int32")]


def check(seed: int, cpus: tuple[str, ...]) -> None:
    case = lanes(seed)
    func = mlcc.parse(case.text)["main"]
    assert isinstance(func, tir.PrimFunc)
    given = arrays(case, seed)
    expected = [a.copy() for a in given]
    run_prim_func(func, expected)
    options = [LowerOptions(), LowerOptions(edge_limit=0), LowerOptions(mask_bits=frozenset(), vector_lanes=8)]
    lowered = [a.copy() for a in given]
    run_prim_func(lower_func(func, {}, options[seed % 3]), lowered)
    assert_alike(func, lowered, expected, f"loop code of {seed}:\n{case.text}", exact=True)
    symbols = (case.rows, case.columns) if case.symbolic else ()
    for cpu in cpus:
        native = [fenced(a, seed % 2 == 0) for a in given]
        compiled = Native(func, options=EmitOptions(contract=False), machine=Machine(cpu=cpu))
        assert compiled(*native, symbols=symbols) == 0
        assert_alike(func, native, expected, f"{cpu} code of {seed}:\n{case.text}", exact=True)


def _in_child(seeds: range, cpus: tuple[str, ...], seconds: float) -> int:
    """The seed after the last one that passed: a touched page ends the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            end = time.monotonic() + seconds
            for seed in seeds:
                check(seed, cpus)
                os.write(writer, b".")
                if time.monotonic() > end:
                    break
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    passed = 0
    while data := os.read(reader, 4096):
        passed += len(data)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"seed {seeds.start + passed} ended with {status}"
    return passed


@pytest.mark.parametrize("cpu", CPUS)
def test_lanes(cpu: str, fuzz_seconds: float) -> None:
    from mlcc.machine import host

    if cpu == "x86-64-v4" and "avx512bw" not in " ".join(host.cpu_features()):
        pytest.skip("no AVX-512 here")
    campaign = fuzz_seconds > 60
    first = 1000 * CPUS.index(cpu)
    seeds = range(first, first + (1_000_000 if campaign else SHARE))
    assert _in_child(seeds, (cpu,), fuzz_seconds / 3 if campaign else 120) >= SHARE
