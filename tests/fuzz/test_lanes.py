"""Generated programs whose lanes differ: the loop code and the native code of each CPU compute what the text does.

Arrays lie against pages that must not be touched, before or behind them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.passes.lowering.options import LowerOptions
from mlcc.reduce.program import Program
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.object.compile import Machine
from mlcc.targets.plan.signature import signature
from tests.fuzz.fences import fenced
from tests.fuzz.reduction import Check, note
from tests.generate.lanes import Case, lanes
from tests.lower import lower_func
from tests.targets.arguments import assert_alike
from tests.targets.harness import Native

ROOT = Path(__file__).resolve().parents[2]
SHARE = 10
CPUS = ("x86-64", "x86-64-v3", "x86-64-v4")


def arrays(func: tir.PrimFunc, case: Case, seed: int) -> list[np.ndarray]:
    """Small numbers for the buffers of a function; symbols have the values of the case."""
    rng = np.random.default_rng(seed)
    sizes = {"m": case.rows, "n": case.columns}
    made = []
    for buffer in func.buffers:
        assert buffer is not None
        shape = [sizes[d.name] if isinstance(d, tir.Var) else tir.const_int(d) or 0 for d in buffer.shape]
        kind = str(buffer.dtype)
        if buffer.name == "S":
            made.append(rng.integers(0, 5, shape).astype(kind))
            continue
        values = rng.integers(0 if kind[0] in "ub" else -9, 9, shape)
        if kind == "bfloat16":
            made.append((values.astype("float32").view("uint32") >> 16).astype("uint16"))
        else:
            made.append((values % 2 == 0) if kind == "bool" else values.astype(kind))
    return made


def check(seed: int, cpus: tuple[str, ...]) -> None:
    check_program(Program(mlcc.parse(lanes(seed).text)), str(seed), *cpus)


def check_program(program: Program, number: str, *cpus: str) -> None:
    """Compare loop code and the code for CPUs with the interpreter on the arrays of a case."""
    seed = int(number)
    case = lanes(seed)
    func = program.module["main"]
    assert isinstance(func, tir.PrimFunc)
    given = arrays(func, case, seed)
    expected = [a.copy() for a in given]
    run_prim_func(func, expected)
    options = [LowerOptions(), LowerOptions(edge_limit=0), LowerOptions(mask_bits=frozenset(), vector_lanes=8)]
    lowered = [a.copy() for a in given]
    run_prim_func(lower_func(func, {}, options[seed % 3]), lowered)
    assert_alike(func, lowered, expected, f"loop code of {seed}:\n{case.text}", exact=True)
    sizes = {"m": case.rows, "n": case.columns}
    symbols = tuple(sizes[symbol.name] for symbol in signature(func).symbols)
    for cpu in cpus:
        native = [fenced(a, seed % 2 == 0) for a in given]
        compiled = Native(func, options=EmitOptions(contract=False), machine=Machine(cpu=cpu))
        assert compiled(*native, symbols=symbols) == 0
        assert_alike(func, native, expected, f"{cpu} code of {seed}:\n{case.text}", exact=True)


def main(cpu: str, first: int, count: int, seconds: float) -> None:
    """Check seeds for a CPU, and print a dot for each that passed."""
    end = time.monotonic() + seconds
    for seed in range(first, first + count):
        check(seed, (cpu,))
        print(".", end="", flush=True)
        if time.monotonic() > end:
            break


def _in_child(seeds: range, cpu: str, seconds: float) -> int:
    """How many seeds passed, in a process of its own: a touched page ends it."""
    code = f"from tests.fuzz.test_lanes import main; main({cpu!r}, {seeds.start}, {len(seeds)}, {seconds})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    passed = done.stdout.count(".")
    if done.returncode:
        seed = seeds.start + passed
        raise AssertionError(f"seed {seed} ended with {done.returncode}:\n{done.stderr}\n{reduce_case(seed, cpu)}")
    return passed


def reduce_case(seed: int, cpu: str) -> str:
    """Reduce the program of a seed, whose code for a CPU is wrong or crashes. Return a line with the path."""
    program = Program(mlcc.parse(lanes(seed).text))
    return note(program, Check("tests.fuzz.test_lanes:check_program", (str(seed), cpu)))


@pytest.mark.parametrize("cpu", CPUS)
def test_native_code_agrees_on_every_cpu(cpu: str, fuzz_seconds: float) -> None:
    from mlcc.machine import host

    if cpu == "x86-64-v4" and "avx512bw" not in " ".join(host.cpu_features()):
        pytest.skip("no AVX-512 here")
    campaign = fuzz_seconds > 60
    first = 1000 * CPUS.index(cpu)
    seeds = range(first, first + (1_000_000 if campaign else SHARE))
    assert _in_child(seeds, cpu, fuzz_seconds / 3 if campaign else 120) >= SHARE
