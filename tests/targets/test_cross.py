"""Objects for other systems, linked by their C compilers and run: they compute what the interpreter and this CPU do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.driver import build, parse_file
from mlcc.errors import CallError
from mlcc.grammar.parser import parse
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.runtime.loader import load
from mlcc.targets.llvm.artifact import ObjectArtifact
from tests.generate.expressions import DTYPES
from tests.generate.functions import Options, prim_func
from tests.targets.arguments import arguments, assert_alike, duplicate
from tests.targets.cross import HOSTED, PLATFORMS, Call, Platform, run

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
OPTIONS = Options(matched=False, raw=False, dtypes=tuple(d for d in DTYPES if d != "bfloat16"))
SHARE = 10  # functions in one program


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> Platform:
    found = PLATFORMS[request.param]
    found.require()
    return found


def made_for(platform: Platform, module: IRModule, level: int = 2) -> ObjectArtifact:
    artifact = build(module, Target.parse(platform.target), opt_level=level)
    assert isinstance(artifact, ObjectArtifact)
    return artifact


def generated(first: int, count: int) -> dict[str, tuple[tir.PrimFunc, int]]:
    """Functions by name, with their seeds: those that take no memory of a size that only a loop knows."""
    return {f"f{seed}": (prim_func(seed, OPTIONS), seed) for seed in range(first, first + count)}


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("batch", range(2))
def test_generated_functions(tmp_path: Path, platform: Platform, batch: int, level: int, all_cases: bool) -> None:
    count = 60 if all_cases else SHARE
    cases = generated(70_000 + batch * 60, count)
    module = IRModule({name: func for name, (func, _) in cases.items()})
    calls, expected = [], []
    for name, (func, seed) in cases.items():
        args, _ = arguments(func, seed)
        judged = duplicate(args)
        failed = False
        try:
            run_prim_func(func, judged)
        except CallError:
            failed = True
        arrays = [i for i, argument in enumerate(args) if isinstance(argument, np.ndarray)]
        calls.append(Call(name, [plain(a) for a in args], arrays))
        expected.append(None if failed else judged)
    results = run(tmp_path, platform, made_for(platform, module, level), calls)
    for call, result, judged_or_none in zip(calls, results, expected, strict=True):
        func, seed = cases[call.function]
        if judged_or_none is None:
            assert isinstance(result, int), f"{seed} must fail"
            continue
        assert not isinstance(result, int), f"{seed} fails with {result:#x}"
        actual: list[Any] = list(judged_or_none)
        for index, array in zip(call.written, result, strict=True):
            actual[index] = array
        assert_alike(func, actual, judged_or_none, f"{platform.target}: {seed}")


def plain(argument: Any) -> Any:
    """A scalar of NumPy as Python's."""
    return argument if isinstance(argument, np.ndarray) else argument.item()


@pytest.mark.parametrize("sample", ["digits/mlp.mlc", "lenet/lenet.mlc"])
def test_samples_compute_what_they_do_here(tmp_path: Path, platform: Platform, sample: str) -> None:
    module = parse_file(str(SAMPLES / sample))
    x = np.random.default_rng(7).uniform(0, 1, (3, 64)).astype(np.float32)
    expected = load(build(module, Target.parse("llvm{cpu=native}")))["main"](x)
    made = made_for(platform, module)
    result = run(tmp_path, platform, made, [Call("main", [x, np.zeros_like(expected)], [1])])[0]
    assert not isinstance(result, int), hex(result)
    np.testing.assert_allclose(result[0], expected, rtol=2e-4, atol=2e-5)


def header_flags(path: Path) -> str:
    listed = subprocess.run(["readelf", "-h", path], capture_output=True, text=True, check=True).stdout
    return next(line.split(":", 1)[1].strip() for line in listed.splitlines() if "Flags:" in line)


@pytest.mark.parametrize("triple", ["riscv64-linux-gnu", "riscv64-linux-musl", "riscv64-unknown-elf"])
@pytest.mark.parametrize("level", [0, 2])
def test_risc_v_objects_say_their_abi(tmp_path: Path, triple: str, level: int) -> None:
    """RV64GC, floats in registers, as the cross compilers' own; several LLVM modules have one attribute section."""
    module = parse_file(str(SAMPLES / "digits/mlp.mlc"))
    made = build(module, Target.parse(f"llvm{{triple={triple}}}"), opt_level=level)
    made.save(tmp_path / "m.o")
    assert header_flags(tmp_path / "m.o") == "0x5, RVC, double-float ABI"
    sections = subprocess.run(["readelf", "-SW", tmp_path / "m.o"], capture_output=True, text=True, check=True).stdout
    assert sections.count("RISCV_ATTRIBUTES") == 1


@pytest.mark.parametrize("machine", ["aarch64", "riscv64", "x86_64"])
def test_code_for_musl_is_that_for_gnu(machine: str) -> None:
    """Nothing of a C library is in the code but names, and musl has all of them."""
    module = parse_file(str(SAMPLES / "digits/mlp.mlc"))
    codes = []
    for system in ("gnu", "musl"):
        made = build(module, Target.parse(f"llvm{{triple={machine}-linux-{system}}}"))
        assert isinstance(made, ObjectArtifact)
        assert made.manifest["target"]["triple"] == f"{machine}-unknown-linux-{system}"
        codes.append(made._code)
    assert codes[0] == codes[1]


@pytest.mark.parametrize("name", HOSTED)
def test_threads(tmp_path: Path, name: str) -> None:
    """A parallel loop of several threads, also where the system calls are emulated."""
    platform = PLATFORMS[name]
    platform.require()
    text = """
@T.prim_func
def f(A: T.Buffer((64, 4096), "float32"), B: T.Buffer((64, 4096), "float32")):
    for i in T.parallel(64):
        for j in range(4096):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.sqrt(A[vi, vj]) / (A[vi, vj] + T.float32(1)) + T.exp(A[vi, vj])
"""
    made = made_for(platform, parse(text), 0)
    assert made.manifest["pool"]
    a = np.random.default_rng(0).uniform(0, 3, (64, 4096)).astype(np.float32)
    threads = "-Wl,-u,pthread_create"
    where = Platform(platform.target, (*platform.compiler, threads), platform.runner)
    result = run(tmp_path, where, made, [Call("f", [a, np.zeros_like(a)], [1])] * 3)
    for one in result:
        assert not isinstance(one, int)
        np.testing.assert_allclose(one[0], np.sqrt(a) / (a + 1) + np.exp(a), rtol=1e-5)
