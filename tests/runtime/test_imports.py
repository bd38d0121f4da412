"""The runtime stands on little: what loading it brings in, and how long that takes to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def brought_in(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_loading_needs_numpy_and_the_standard_library_only() -> None:
    modules = brought_in("import mlcc.runtime.loader, mlcc.runtime.env")
    outside = {m.split(".")[0] for m in modules} - set(sys.stdlib_module_names) - {"numpy", "mlcc"}
    assert not {m for m in outside if not m.startswith("_")}
    ours = {m for m in modules if m.startswith("mlcc.") and not m.startswith("mlcc.runtime")}
    assert ours == {"mlcc.errors"}


def test_names_of_the_runtime() -> None:
    import mlcc
    import mlcc.runtime as runtime

    assert runtime.load is mlcc.load and runtime.register_func is mlcc.register_func
    assert runtime.load_env and runtime.read_manifest and not hasattr(runtime, "no_such_name")


def test_importing_the_package_is_cheap() -> None:
    assert "numpy" not in brought_in("import mlcc")
    assert "numpy" not in brought_in("import mlcc; mlcc.register_func('f', print)")
