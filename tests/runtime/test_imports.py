"""The runtime stands on little: what loading it brings in, and how long that takes to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported_modules(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import mlcc.runtime.loader, mlcc.runtime.env", "import mlcc; mlcc.load"])
def test_loading_needs_numpy_and_the_standard_library_only(statement: str) -> None:
    modules = imported_modules(statement)
    outside = {m.split(".")[0] for m in modules} - set(sys.stdlib_module_names) - {"numpy", "mlcc"}
    assert not {m for m in outside if not m.startswith("_")}
    ours = {m for m in modules if m.startswith("mlcc.") and not m.startswith("mlcc.runtime")}
    assert ours - {"mlcc.loading"} == {"mlcc.errors"}


def test_names_of_the_runtime() -> None:
    import mlcc
    import mlcc.runtime as runtime

    assert runtime.register_func is mlcc.register_func
    assert runtime.load and runtime.load_env and runtime.read_manifest and not hasattr(runtime, "no_such_name")


def test_importing_the_package_is_cheap() -> None:
    assert "numpy" not in imported_modules("import mlcc")
    assert "numpy" not in imported_modules("import mlcc; mlcc.register_func('f', print)")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads by /proc")
def test_commands_that_multiply_nothing_start_no_threads(tmp_path: Path) -> None:
    """A pool of BLAS threads takes longer to start than the rest of NumPy."""
    (tmp_path / "m.mlc").write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return x\n")
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    code = "import sys, os; from mlcc.cli.main import run; assert run(sys.argv[1:]) == 0; import numpy; "
    code += "print(len(os.listdir('/proc/self/task')))"
    for command in (["check", "m.mlc"], ["compile", "m.mlc"]):
        done = subprocess.run(
            [sys.executable, "-c", code, command[0], str(tmp_path / command[1])],
            cwd=ROOT, capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        assert done.stdout.split()[-1] == "1"


def modules_of_a_run(*argv: str) -> set[str]:
    """The modules that a process has imported after a command."""
    code = "import sys; from mlcc.cli.main import run; code = run(sys.argv[1:]); assert code == 0; print(*sys.modules)"
    environment = {**os.environ, "MLCC_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, check=True, env=environment
    )
    return set(done.stdout.splitlines()[-1].split())


def test_a_run_of_an_object_imports_little(tmp_path: Path) -> None:
    (tmp_path / "m.mlc").write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.add(x, x)\n")
    modules_of_a_run("compile", str(tmp_path / "m.mlc"), "-o", str(tmp_path / "m.o"))
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.float32))
    modules = modules_of_a_run("run", f"{tmp_path}/m.o", "--in", f"{tmp_path}/x.npz", "--out", f"{tmp_path}/y.npz")
    ours = {m for m in modules if m.startswith("mlcc.")}
    compiler = ("mlcc.ir", "mlcc.grammar", "mlcc.targets", "mlcc.ops", "mlcc.driver", "mlcc.arith", "mlcc.verify")
    assert not {m for m in ours if m.startswith(compiler)}
    assert not modules & {"hashlib", "llvmlite", "lark", "subprocess", "importlib.metadata", "email", "socket"}
    assert len(ours) < 60


def test_a_cold_run_imports_what_it_needs(tmp_path: Path) -> None:
    """Neither what only other commands, targets and dialects need, nor large modules for what hardly happens."""
    (tmp_path / "m.mlc").write_text(
        "@R.function\ndef main(x: R.Tensor((2, 8), 'float32'), w: R.Tensor((8, 4), 'float32')):\n"
        "    y = R.matmul(x, w)\n    return R.nn.relu(y)\n"
    )
    modules = modules_of_a_run("run", str(tmp_path / "m.mlc"), "--random", "--out", str(tmp_path / "y.npz"))
    assert not modules & {"difflib", "importlib.metadata", "email", "socket", "lark", "torch", "onnx"}
    ours = {m for m in modules if m.startswith("mlcc.")}
    elsewhere = ("mlcc.passes.gpu", "mlcc.targets.launch", "mlcc.targets.emulate", "mlcc.tune", "mlcc.lsp", "mlcc.lang")
    assert not {m for m in ours if m.startswith((*elsewhere, "mlcc.reference", "mlcc.frontend.onnx"))}
    assert len(ours) < 510
