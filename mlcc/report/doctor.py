"""The state of an installation: what is there, what it was found to be, and what to do about faults."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import mlcc
from mlcc.errors import MachineError, MlccError
from mlcc.machine import host

OK, MISSING, FAULT = "ok", "missing", "fault"

REQUIRED = ("click", "lark", "llvmlite", "numpy")
# extra -> its packages by the names of their distributions, and what they are for
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "torch": (("torch",), "torch.compile, torch.export"),
    "onnx": (("onnx",), "importing ONNX models"),
    "tune": (("lightgbm",), "mlcc tune with a learned cost model"),
    "cluster": (("cryptography", "distributed"), "mlcc tune on several machines"),
    "lsp": (("pygls",), "mlcc lsp"),
    "cuda": (("cuda-bindings",), "running on NVIDIA GPUs"),
    "pycuda": (("pycuda",), "running on NVIDIA GPUs through PyCUDA"),
}
_TIMEOUT_SECONDS = 20
_SELF_TEST = """
@R.function
def main(x: R.Tensor((7, 33), "float32"), w: R.Tensor((33, 5), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        R.output(b)
    return b
"""


@dataclass(frozen=True)
class Check:
    """One line of the report.

    `state`: OK, MISSING for what is optional and not there, FAULT for what will not work. `help` says what to do.
    `misfit`: an artifact that is not for this machine.
    """

    section: str
    name: str
    value: str
    state: str = OK
    help: str | None = None
    misfit: bool = False


def run_checks(artifacts: tuple[str, ...] = ()) -> Iterator[Check]:
    """Yield the checks of this installation and machine, and of artifact files. Compiles and runs a small graph."""
    for check in (_python, _packages, _llvm, _cpu, _environment, _folders, _c_compiler, _gpu, _self_test):
        try:
            yield from check()
        except Exception as exc:  # noqa: BLE001 - what fails is what the report is about
            yield Check("mlcc", check.__name__.strip("_"), f"{type(exc).__name__}: {exc}", FAULT)
    for path in artifacts:
        yield _artifact(path)


def _python() -> Iterator[Check]:
    yield Check("mlcc", "mlcc", f"{mlcc.__version__} in {os.path.dirname(os.path.abspath(mlcc.__file__))}")
    too_old = sys.version_info < (3, 11)
    yield Check("mlcc", "python", f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
                FAULT if too_old else OK, "install Python 3.11 or later" if too_old else None)  # fmt: skip
    name = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.system() != "Linux":
        yield Check("mlcc", "system", name, FAULT, "artifacts run under Linux: use a container or WSL")
    else:
        library, version = platform.libc_ver()
        yield Check("mlcc", "system", f"{name}, {library} {version}".rstrip(", "))


def _packages() -> Iterator[Check]:
    for name in REQUIRED:
        version = _version(name)
        yield Check("packages", name, version or "not installed", OK if version else FAULT,
                    None if version else f"pip install {name}")  # fmt: skip
    for extra, (names, purpose) in EXTRAS.items():
        for name in names:
            version = _version(name)
            yield Check("packages", name, version or f"not installed; it is for {purpose}", OK if version else MISSING,
                        None if version else f"pip install 'mlcc[{extra}]'")  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _llvm() -> Iterator[Check]:
    import llvmlite.binding as llvm

    yield Check("code", "LLVM", ".".join(map(str, llvm.llvm_version_info)))
    yield Check("code", "target", f"{host.triple()}, {host.cpu_name()}")


def _cpu() -> Iterator[Check]:
    from mlcc.machine.cpu_tables import CpuFacts
    from mlcc.machine.device import cpu_model

    yield Check("machine", "CPU", cpu_model() or platform.machine())
    yield Check("machine", "for schedules", str(CpuFacts.of("llvm{cpu=native}")))
    quota = host.cgroup_quota()
    limit = "" if quota is None else f"; the control group's quota is {quota:g}"
    yield Check("machine", "cores", f"{host.num_cores()} of {os.cpu_count()} usable{limit}")


def _environment() -> Iterator[Check]:
    from mlcc.runtime import settings
    from mlcc.runtime.threads import get_num_threads

    problems = settings.problems(os.environ)
    for problem in problems:
        yield Check("environment", "variable", problem.message, FAULT, problem.help)
    for name in settings.VARIABLES:
        if os.environ.get(name) and not any(name in problem.message for problem in problems):
            yield Check("environment", name, settings.shown(os.environ[name]))
    if not problems:
        yield Check("environment", "threads", str(get_num_threads()))


def _folders() -> Iterator[Check]:
    from mlcc.cache.folder import PLACE, SWITCH, default_cache, unusable_folder
    from mlcc.runtime.settings import is_off

    cache = default_cache()
    if cache is not None:
        usage = cache.stat()
        size = f"{usage.bytes / (1 << 20):.0f} of at most {usage.limit / (1 << 20):.0f} MiB"
        yield Check("folders", "cache", f"{usage.folder}, {usage.entries} entries, {size}")
    elif is_off(SWITCH):
        yield Check("folders", "cache", f"disabled by {SWITCH}", MISSING, f"unset {SWITCH}")
    else:
        reason = unusable_folder(os.environ.get(PLACE) or None, "compiled")
        yield Check("folders", "cache", f"not used: {reason}", FAULT, f"mend it, or set {PLACE} to a folder of yours")
    folder = tempfile.gettempdir()
    try:
        with tempfile.NamedTemporaryFile(prefix="mlcc-"):
            free = shutil.disk_usage(folder).free
        yield Check("folders", "temporary files", f"{folder}, {free >> 20} MiB free")
    except OSError as exc:
        yield Check("folders", "temporary files", f"{folder}: {exc.strerror or exc}", FAULT, "set TMPDIR")


def _c_compiler() -> Iterator[Check]:
    compiler = os.environ.get("CC") or "cc"
    path = shutil.which(compiler.split()[0])
    if path is None:
        yield Check("tools", "C compiler", f"no `{compiler}`; it is for --emit shared", MISSING, "install gcc or clang")
    else:
        yield Check("tools", "C compiler", f"{path}: {_first_line([path, '--version'])}")


def _gpu() -> Iterator[Check]:
    from mlcc.runtime.cuda import default_device, find_driver
    from mlcc.targets.cuda import ptxas

    assembler = ptxas.find_ptxas()
    if assembler is None:
        help = "pip install nvidia-cuda-nvcc-cu12, or set CUDA_HOME"
        yield Check("tools", "ptxas", "not installed; it reports the registers of GPU kernels", MISSING, help)
    else:
        yield Check("tools", "ptxas", f"{assembler}: CUDA {'.'.join(map(str, ptxas.version(assembler)))}")
    try:
        driver, device = find_driver(), default_device()
    except MlccError as exc:
        first = exc.diagnostics[0]
        yield Check("GPU", "device", first.message, MISSING, first.help)
        return
    number = int(os.environ.get("MLCC_CUDA_DEVICE", "").strip() or 0)
    version = driver.version()
    yield Check("GPU", "device", f"{driver.device_name(number)}, sm_{device.capability[0]}{device.capability[1]}")
    yield Check("GPU", "driver", f"CUDA {version // 1000}.{version % 1000 // 10}, through {driver.package}")


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return (done.stdout or done.stderr).partition("\n")[0]


def _self_test() -> Iterator[Check]:
    """Compile a product with an activation, run it, and compare with NumPy."""
    import numpy as np

    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, dtype=np.float32) for shape in ((7, 33), (33, 5)))
    help = "report this, with the whole output of `mlcc doctor`"
    try:
        y = mlcc.load(mlcc.build(mlcc.parse(_SELF_TEST), "llvm{cpu=native}"))["main"](x, w)
    except MlccError as exc:
        yield Check("self-test", "graph", exc.diagnostics[0].message, FAULT, exc.diagnostics[0].help or help)
        return
    is_right = np.allclose(y, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)
    yield Check("self-test", "graph", "compiled code runs, and agrees with NumPy" if is_right else "wrong results",
                OK if is_right else FAULT, None if is_right else help)  # fmt: skip


def _artifact(path: str) -> Check:
    """Check the checksum of an artifact and what it asks of the machine."""
    from mlcc.loading import load

    try:
        load(path)
    except MlccError as exc:
        first = exc.diagnostics[0]
        return Check("artifacts", path, first.message, FAULT, first.help, isinstance(exc, MachineError))
    from mlcc.runtime.loader import read_manifest

    manifest = read_manifest(path)
    return Check("artifacts", path, f"fits this machine; written by mlcc {manifest['mlcc']['version']}")
