"""Run the commands behind `make gpu-check` and `make gpu-bench`: `python scripts/gpu.py check|bench [arguments]`.

Runs in a fresh environment with the extras [cuda,test]. If installation fails (no network), it uses the running
Python, provided that it has all packages. Without a GPU it prints one line and exits.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIRED_MODULES = ("click", "lark", "llvmlite", "numpy", "pytest")
PROBE = """
from mlcc.errors import MlccError
from mlcc.runtime.cuda import default_device
try:
    device = default_device()
except MlccError as exc:
    raise SystemExit(f"no GPU: {exc.diagnostics[0].message}")
major, minor = device.capability
cuda = ".".join(map(str, device.version))
print(f"{device.name}, compute capability {major}.{minor}, driver for CUDA {cuda}, by {device.driver.package}")
"""
SANITIZERS = ("memcheck", "racecheck", "synccheck")


def say(text: str) -> None:
    print(f"gpu: {text}", flush=True)


def fresh_environment(folder: Path) -> Path | None:
    """Return the Python of an environment with mlcc and its extras and the system packages, or None on failure."""
    python = folder / "bin" / "python"
    if not python.exists():
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--system-site-packages", str(folder)], capture_output=True, text=True
        )
        if made.returncode:
            say(f"cannot create an environment: {made.stderr.strip() or made.stdout.strip()}")
            return None
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[cuda,test]"]
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return python
    lines = done.stderr.strip().splitlines()
    say(f"pip cannot install mlcc[cuda,test] ({lines[-1] if lines else 'no reason given'})")
    return None


def this_python() -> Path | None:
    """Return the running Python, if it has the required packages."""
    missing = [name for name in REQUIRED_MODULES if importlib.util.find_spec(name) is None]
    if importlib.util.find_spec("cuda") is None and importlib.util.find_spec("pycuda") is None:
        missing.append("cuda-bindings (or pycuda)")
    if missing:
        say(f"{sys.executable} lacks {', '.join(missing)}")
        return None
    return Path(sys.executable)


def run(python: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> int:
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run([*prefix, str(python), *arguments], cwd=ROOT, env=environment).returncode


def check(python: Path, rest: list[str]) -> int:
    """Run the tests marked `gpu`, then some under each tool of compute-sanitizer."""
    code = run(python, "-m", "pytest", "-m", "gpu", "-q", "-rs", "tests/hardware", *rest)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        say("compute-sanitizer is not installed: not run")
        return code
    for name in SANITIZERS:
        say(f"compute-sanitizer --tool {name}")
        prefix = (tool, "--tool", name, "--error-exitcode", "9", "--target-processes", "all")
        code = code or run(python, "-m", "tests.hardware.sanitized", prefix=prefix)
    return code


def main() -> int:
    what, rest = sys.argv[1], sys.argv[2:]
    folder = ROOT / os.environ.get("VENV", ".venv-gpu")
    python = fresh_environment(folder) or this_python()
    if python is None:
        say("skipped: nothing here can run mlcc with the CUDA driver")
        return 0
    if run(python, "-c", PROBE):
        say("skipped: no test or benchmark of a GPU was run")
        return 0
    if what == "check":
        return check(python, rest)
    return run(python, "-m", "bench", "gpu", *rest)


if __name__ == "__main__":
    sys.exit(main())
