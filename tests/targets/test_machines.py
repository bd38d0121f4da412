"""Triples, CPUs, features; objects are the same whatever the surroundings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlcc.errors import CompileError
from mlcc.machine.cpu import CPUS
from mlcc.machine.target import Target, baseline_cpu
from mlcc.targets.llvm.codegen.libm import ALLOWED
from mlcc.targets.llvm.object import machines
from mlcc.targets.llvm.object.compile import Machine, compile_text

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
define i32 @f(ptr %a, i64 %n) nounwind {
  %p = getelementptr half, ptr %a, i64 %n
  %x = load <8 x float>, ptr %a, align 4
  %y = fmul contract <8 x float> %x, %x
  %z = fadd contract <8 x float> %y, %x
  store <8 x float> %z, ptr %p, align 4
  ret i32 0
}
"""


@pytest.mark.parametrize("arch", list(CPUS))
def test_every_listed_cpu_and_feature_compiles(arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    triple = f"{arch}-unknown-linux-gnu"
    kinds = {"x86_64": b"\x3e\x00", "aarch64": b"\xb7\x00", "riscv64": b"\xf3\x00"}
    for cpu in CPUS[arch]:
        obj = compile_text(TEXT, Machine(triple, cpu), 1).obj
        assert obj[:4] == b"\x7fELF" and obj[18:20] == kinds[arch]
    for feature in machines.FEATURES[arch]:
        for sign in "+-":
            machine = Machine(triple, "generic", (sign + feature,))
            machine.check()
            assert compile_text(TEXT, machine, 0).obj
    assert capfd.readouterr().err == ""  # LLVM's remarks on names that it does not know


@pytest.mark.parametrize("arch", list(CPUS))
def test_code_for_a_cpu_uses_what_it_is_known_to_have(arch: str) -> None:
    """Code for a named CPU is that for its listed features: what the manifest does not list is not used."""
    triple = f"{arch}-unknown-linux-gnu"
    baseline = baseline_cpu(arch)
    for cpu in CPUS[arch]:
        named = Machine(triple, cpu)
        spelled = Machine(triple, baseline, tuple(f"+{f}" for f in sorted(named.enabled)))
        assert compile_text(TEXT, named, 1).obj == compile_text(TEXT, spelled, 1).obj, cpu


@pytest.mark.parametrize(
    "machine, code, help",
    [
        (Machine("x86_64-unknown-linux-gn"), "E0705", "x86_64-unknown-linux-gnu"),
        (Machine("sparc-sun-solaris"), "E0705", "known are"),
        (Machine("thumbv7em-none-eabi"), "E0705", "x86_64, aarch64 and riscv64"),
        (Machine("arm64-linux-gnu"), "E0705", "did you mean `aarch64-linux-gnu`?"),
        (Machine("aarch64-linux-android"), "E0705", "aarch64-linux-gnu, aarch64-linux-musl, aarch64-none-elf"),
        (Machine("riscv64-linux-gnu", "sifive-x288"), "E0706", "`sifive-x280`"),
        (Machine(cpu="skylakee"), "E0706", "`skylake`"),
        (Machine(cpu="cortex-a53"), "E0706", "known are"),
        (Machine(features=("+avx22",)), "E0706", "`avx2`"),
        (Machine(features=("-sse2",)), "E0706", ""),
        (Machine(features=("avx2",)), "E0706", ""),
    ],
)
def test_other_machines_are_refused(machine: Machine, code: str, help: str) -> None:
    with pytest.raises(CompileError) as caught:
        machine.check()
    finding = caught.value.diagnostics[0]
    assert finding.code == code
    assert help in (finding.help or "")


def test_targets_become_machines() -> None:
    assert Machine.of(Target.parse("llvm{triple=aarch64-linux-gnu}")) == Machine("aarch64-unknown-linux-gnu", "generic")
    assert Machine.of(Target.parse("llvm{cpu=haswell triple=x86_64-linux-gnu}")).enabled >= {"avx2", "f16c", "fma"}
    assert "f16c" not in Machine(cpu="haswell", features=("-avx",)).enabled
    native = Machine.of(Target.parse("llvm{cpu=native}"))
    assert native.cpu not in ("", "native")
    with pytest.raises(CompileError):
        Machine.of(Target.parse("llvm{triple=x86_64-linux-gnu cpu=hasswell}"))


@pytest.mark.parametrize(
    "written, full",
    [
        ("x86_64-linux-musl", "x86_64-unknown-linux-musl"),
        ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("riscv64-unknown-elf", "riscv64-unknown-none-elf"),
        ("riscv64-none-elf", "riscv64-unknown-none-elf"),
        ("aarch64-none-elf", "aarch64-unknown-none-elf"),
        ("x86_64-unknown-none", "x86_64-unknown-none-elf"),
    ],
)
def test_spellings_of_triples(written: str, full: str) -> None:
    assert Machine.of(Target.parse(f"llvm{{triple={written}}}")).triple == full


def test_a_build_of_llvm_without_the_code_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    def missing(triple: str) -> None:
        raise RuntimeError(f"No available targets are compatible with triple {triple!r}")

    monkeypatch.setattr(llvm.Target, "from_triple", missing)
    with pytest.raises(CompileError, match="no code generator for `riscv64-unknown-linux-gnu`"):
        compile_text(TEXT, Machine("riscv64-unknown-linux-gnu", "generic"), 1)


def test_the_loader_knows_what_objects_call() -> None:
    externs = pytest.importorskip("mlcc.runtime.externs")
    assert externs.ALLOWED >= ALLOWED


PROGRAM = """
import hashlib
from mlcc.ir.dtypes import DType
from tests.targets.harness import Native
from tests.targets.test_kernels import matmul
from tests.targets.test_calls import fixed_with_temporary
native = Native(matmul(7, 64, 9), {"g": fixed_with_temporary(6000)})
print(hashlib.sha256(native.obj).hexdigest(), hashlib.sha256(native.text.encode()).hexdigest())
"""


def test_equal_bytes_for_any_hash_seed_and_folder(tmp_path: Path) -> None:
    results = set()
    for seed, folder in (("1", ROOT), ("2", tmp_path)):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, cwd=folder, capture_output=True, text=True, check=True
        )
        results.add(done.stdout)
    assert len(results) == 1
