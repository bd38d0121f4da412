"""Faults in native code: `mlcc run` and `bench` end with one line that names the kernel."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc.cli.native_faults import place
from mlcc.runtime import faults

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    platform.machine() not in faults.MACHINES or sys.platform != "linux", reason="no handler for this machine"
)
MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def far(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
        T.func_attr({"tir.noalias": True})
        for i in range(T.int64(8)):
            B[i * n * T.int64(1000000000)] = A[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((8,), "float32"), s: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
        return R.call_tir(cls.far, (x,), out_sinfo=R.Tensor((8,), "float32"), tir_vars=R.shape([n]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.mlc").write_text(MODULE)
    np.savez(tmp_path / "in.npz", x=np.ones(8, "float32"), s=np.ones(1000, "float32"))
    return tmp_path


def mlcc(folder: Path, *argv: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mlcc", *argv], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_the_kernel_and_its_line(folder: Path, command: str, level: str) -> None:
    code, out, err = mlcc(folder, command, level, "m.mlc", "--in", "in.npz")
    assert (code, out, err.count("\n")) == (139, "", 1)
    assert err.startswith("error[E0874]: SIGSEGV in kernel `far` (m.mlc:5): invalid access to memory at 0x")
    assert "`mlcc run --sanitize m.mlc`" in err


@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_faults_in_loaded_artifacts_name_the_kernel(folder: Path, suffix: str) -> None:
    if suffix == ".so" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    assert mlcc(folder, "compile", "m.mlc", "-o", f"a{suffix}")[0] == 0
    (folder / "m.mlc").unlink()
    code, _, err = mlcc(folder, "run", f"a{suffix}", "--in", "in.npz")
    assert code == 139 and err.startswith("error[E0874]: SIGSEGV in kernel `far`: ") and err.count("\n") == 1


def test_faults_are_reported_as_json(folder: Path) -> None:
    code, _, err = mlcc(folder, "--diagnostics", "json", "run", "m.mlc", "--in", "in.npz")
    assert code == 139 and json.loads(err)["code"] == "E0874" and "kernel `far`" in json.loads(err)["message"]


HEAD = '@T.prim_func\ndef main(A: T.Buffer((8,), "float32"), n: T.int64):\n    T.func_attr({"tir.noalias": True})\n'
NATIVE = """
    for i in T.serial(8, annotations={"pragma_import_llvm": "BODY"}):
        A[i] = T.call_extern("float32", "deep", A[i])
"""
DEEP = (
    r"define float @deep(float %x) noinline {\n  %m = alloca [1000 x float]\n  store volatile float %x, ptr %m\n"
    r"  %z = fadd float %x, 1.0\n  %y = call float @deep(float %z)\n  %q = load volatile float, ptr %m\n"
    r"  %w = fadd float %y, %q\n  ret float %w\n}"
)
TRAP = (
    r"declare void @llvm.trap()\ndefine float @deep(float %x) noinline {\n  call void @llvm.trap()\n  ret float %x\n}"
)
CASES = {
    # a worker of the pool, or the thread that called
    "parallel": (
        "    for i in T.parallel(64):\n        for j in range(20000):\n"
        "            A[T.int64(i) * n] = A[T.int64(i) * n] + T.float32(1)\n",
        139, r"SIGSEGV in kernel `main` \(m.mlc:2\): invalid",
    ),
    # the kernel calls memset, perhaps as the last thing that it does
    "memset": (
        "    for i in range(n):\n        A[i + n] = T.float32(0)\n",
        139, r"SIGSEGV in (kernel )?`main` \(m.mlc:2\): invalid",
    ),
    "stack": (NATIVE.replace("BODY", DEEP), 139, "SIGSEGV in native kernel `deep`: its stack overflowed"),
    "trap": (NATIVE.replace("BODY", TRAP), None, "SIG(ILL|TRAP) in native kernel `deep`"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_fault_names_the_kernel(folder: Path, case: str) -> None:
    body, expected, message = CASES[case]
    (folder / "m.mlc").write_text(HEAD + body)
    np.savez(folder / "in.npz", A=np.ones(8, "float32"), n=np.int64(10**10))
    code, _, err = mlcc(folder, "run", "--warnings=off", "--allow-native", "m.mlc", "--in", "in.npz")
    assert re.search(message, err) and err.count("\n") == 1, err
    assert code == (expected or code) and code > 128


def test_faults_in_emulated_kernels_are_reported(folder: Path) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), n: T.int64):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        with T.block("a"):
            v = T.axis.spatial(8, i)
            A[v * n] = T.float32(1)
"""
    (folder / "m.mlc").write_text(text)
    np.savez(folder / "in.npz", A=np.ones(8, "float32"), n=np.int64(10**10))
    argv = ("run", "--emulate", "--no-check", "-t", "cuda{arch=sm_80}", "m.mlc", "--in", "in.npz")
    code, _, err = mlcc(folder, *argv)
    assert code == 139 and "SIGSEGV in kernel `main_kernel` (m.mlc:3)" in err and "--no-check" in err


def test_check_each_reports_faults_of_compiled_code(folder: Path) -> None:
    """Past its limit of work it runs compiled code: that ends with a finding, or with the line about its fault."""
    argv = ("passes", "m.mlc", "-p", "lower-to-tir", "--check-each", "in.npz", "--check-work", "1", "-o", "out.mlc")
    code, _, err = mlcc(folder, *argv)
    assert code in (1, 3) or (code == 139 and "SIGSEGV in kernel `far` (m.mlc:5)" in err)
    assert err and not (folder / "out.mlc").exists()


def test_faults_of_python_itself_are_its_own(folder: Path) -> None:
    """The interpreter's lock is held: nobody can say where it was, and the signal ends the process as without us."""
    (folder / "m.mlc").write_text(HEAD + '    T.evaluate(T.call_packed("t.f"))\n')
    (folder / "env.py").write_text(
        "import ctypes\nimport mlcc\n\n@mlcc.register_func('t.f', override=True)\ndef f():\n    ctypes.string_at(0)\n"
    )
    np.savez(folder / "in.npz", A=np.ones(8, "float32"), n=np.int64(1))
    code, _, err = mlcc(folder, "run", "m.mlc", "--in", "in.npz", "--env", "env.py")
    assert code == -signal.SIGSEGV and err.startswith("error[E0874]: a fault outside of compiled code")
    assert err.count("\n") == 1 and "`main` (m.mlc:2) corrupted memory" in err and "--sanitize m.mlc" in err


def test_names_of_symbols() -> None:
    def of(*symbols: str) -> str:
        return place(symbols, {"m.o": {}})

    assert of("kernel.fused_matmul_add") == "kernel `fused_matmul_add`"
    assert of("mlcc_pool_v1_run_work", "parallel.kernel.conv.0.piece") == "kernel `conv`"
    assert of("parallel.kernel.conv.12") == of("kernel.conv.3") == "kernel `conv`"
    assert of("mlcc.native.dot") == "native kernel `dot`"
    assert of() == of("mlcc_check_tensors") == "native code of m.o"


@pytest.mark.skipif(shutil.which("as") is None or shutil.which("objcopy") is None, reason="needs binutils")
def test_the_handler_is_what_its_listing_says(tmp_path: Path) -> None:
    machine = faults.MACHINES[platform.machine()]
    lines = [line.split(maxsplit=1)[1] for line in machine.code.splitlines() if line.strip()]
    syntax = ".intel_syntax noprefix\n" if platform.machine() == "x86_64" else ""
    (tmp_path / "h.s").write_text(syntax + "\n".join(lines) + "\n.org 128\ndata:\n")
    subprocess.run(["as", "h.s", "-o", "h.o"], cwd=tmp_path, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "h.o", "h.bin"], cwd=tmp_path, check=True)
    made = (tmp_path / "h.bin").read_bytes()
    code = faults.machine_code(machine)
    assert made[: len(code)] == code and not any(made[len(code) :])
